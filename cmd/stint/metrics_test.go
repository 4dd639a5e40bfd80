package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// metrics is what /metrics says.
func metrics(t *testing.T, s *served) string {
	t.Helper()
	resp, err := http.Get(s.check + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return bodyOf(t, resp)
}

// metric is the value of a metric; name holds its labels, if it has any.
func metric(t *testing.T, s *served, name string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics(t, s)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// ofProcess is a number of KiB in /proc/PID/status, and the CPU time that the process
// has taken.
func ofProcess(t *testing.T, pid int, name string) (kib int, cpu time.Duration) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if kib, err = strconv.Atoi(strings.Fields(rest)[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kib == 0 {
		t.Fatalf("it is gone: %s", status)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return kib, time.Duration(user+system) * 10 * time.Millisecond
}
