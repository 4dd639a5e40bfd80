package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkFiftyPages is a check by HTTP while no page is open, and while fifty show the
// overview: each has a stream, and calls what the page calls, as often as it does. Run both in
// one go and compare; cpu-ms/s is what the instance computes in a second for the pages alone.
func BenchmarkFiftyPages(b *testing.B) {
	s := serve(b, "rules: [{name: all, key: client.ip, limits: [1000000 per 1s]}]")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	for _, pages := range []int{0, 50} {
		b.Run(fmt.Sprintf("pages=%d", pages), func(b *testing.B) {
			ctx, end := context.WithCancel(b.Context())
			var open sync.WaitGroup
			for range pages {
				open.Go(func() { s.page(ctx) })
			}
			time.Sleep(500 * time.Millisecond) // until all are open
			idle, began := s.cpu(b), time.Now()
			time.Sleep(2 * time.Second)
			idle = (s.cpu(b) - idle) * 1000 / time.Since(began).Seconds()
			for b.Loop() {
				resp, err := client.Post(s.check+"/v1/check", "application/json", strings.NewReader(`{"client":"192.0.2.1"}`))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			b.ReportMetric(idle, "cpu-ms/s")
			end()
			open.Wait()
		})
	}
}

// page does what a browser does that shows the overview, until ctx ends.
func (s *instance) page(ctx context.Context) {
	get := func(path string, read func(io.Reader)) {
		r, err := http.NewRequestWithContext(ctx, "GET", s.admin+path, nil)
		if err != nil {
			panic(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return // it is over
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			s.t.Errorf("GET %s: %s", path, resp.Status)
		}
		read(resp.Body)
	}
	all := func(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
	go get("/v1/live", func(r io.Reader) {
		for lines := bufio.NewScanner(r); lines.Scan(); {
		}
	})
	get("/v1/series", all)
	for second := 0; ; second++ {
		if second%5 == 0 {
			get("/v1/instances", all)
		}
		if second%10 == 0 {
			get("/v1/status", all)
			get("/v1/offenders?limit=8", all)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// cpu is the time that the instance has computed, in seconds.
func (s *instance) cpu(t testing.TB) (seconds float64) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.process.Pid))
	if err != nil || len(threads) == 0 {
		t.Skip("this system does not say how much a process computes")
	}
	for _, thread := range threads {
		var ns int64
		if text, err := os.ReadFile(thread); err == nil {
			_, _ = fmt.Sscan(string(text), &ns)
		}
		seconds += float64(ns) / 1e9
	}
	return seconds
}
