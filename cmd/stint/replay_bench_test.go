package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkReplay reads a log of a million lines with one rule by address, and beside it GoAccess, a bufio.Scanner
// that counts lines, and wc -l. cpu-ns/line is the time of all processors.
func BenchmarkReplay(b *testing.B) {
	const lines = 1_000_000
	dir := b.TempDir()
	path, rules := filepath.Join(dir, "access.log"), filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules: [{name: address, key: client.ip, limits: [100 per 1m]}]"), 0o600); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	var log strings.Builder
	at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for range lines {
		at = at.Add(time.Duration(random.IntN(400)) * time.Millisecond)
		fmt.Fprintf(&log, "198.51.%d.%d - - [%s] \"GET /api/v1/items/%d?page=%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n",
			random.IntN(20), random.IntN(250), at.Format("02/Jan/2006:15:04:05 -0700"), random.IntN(1000), random.IntN(9), random.IntN(10_000))
	}
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, row := range []struct {
		name string
		run  func() error
	}{
		{"replay", func() error {
			if code, _, errs := call("", "replay", "--rules", rules, path); code != 0 {
				return fmt.Errorf("%s", errs)
			}
			return nil
		}},
		{"goaccess", func() error {
			return exec.Command("goaccess", path, "--log-format=COMBINED", "--no-progress", "--output", filepath.Join(dir, "report.json")).Run()
		}},
		{"scanner", func() error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			n := 0
			for s := bufio.NewScanner(f); s.Scan(); n++ {
				_ = s.Text()
			}
			if n != lines {
				return io.ErrUnexpectedEOF
			}
			return nil
		}},
		{"wc", func() error { return exec.Command("wc", "-l", path).Run() }},
	} {
		b.Run(row.name, func(b *testing.B) {
			if _, err := exec.LookPath(row.name); row.name == "goaccess" && err != nil {
				b.Skip("there is no goaccess: scripts/get goaccess")
			}
			before := usedTime(b)
			for b.Loop() {
				if err := row.run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(usedTime(b)-before)/float64(b.N)/lines, "cpu-ns/line")
		})
	}
}

// usedTime is that of this process and its children.
func usedTime(b *testing.B) (all time.Duration) {
	for _, whose := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(whose, &used); err != nil {
			b.Fatal(err)
		}
		all += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return all
}
