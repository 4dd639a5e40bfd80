package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// manyRules is a file of n rules, each for a path of its own. One counts client.ip.
func manyRules(n, version int) string {
	var f strings.Builder
	fmt.Fprintf(&f, "# %d\nrules:\n  - {name: all, key: client.ip, limits: [1000000000 per 24h]}\n", version)
	for i := range n - 1 {
		fmt.Fprintf(&f, "  - {name: rule%d, match: 'request.method == \"POST\" && request.path == \"/v1/route%d\"', key: client.ip, limits: [100 per 1m]}\n", i, i)
	}
	return f.String()
}

// latencies are those of one caller of the check API, over loopback.
type latencies []time.Duration

// call asks again and again until stop, with pauses, so that a request finds the
// machine as a client would, rather than a queue of its own making.
func call(b *testing.B, url string, stop *atomic.Bool) (all latencies) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for !stop.Load() {
		start := time.Now()
		resp, err := client.Post(url+"/v1/check", "application/json", strings.NewReader(`{"client":"192.0.2.1","request":{"method":"GET","path":"/v1/route500"}}`))
		if err != nil {
			b.Error(err)
			return all
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		all = append(all, time.Since(start))
		if resp.StatusCode != http.StatusOK {
			b.Errorf("status %d", resp.StatusCode)
		}
		time.Sleep(200 * time.Microsecond)
	}
	slices.Sort(all)
	return all
}

func (l latencies) report(b *testing.B, what string) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	over, _ := slices.BinarySearch(l, 5*time.Millisecond+1)
	b.ReportMetric(ms(l[len(l)-1]), what+"-slowest-ms")
	b.ReportMetric(ms(l[len(l)*999/1000]), what+"-p99.9-ms")
	b.ReportMetric(float64(len(l)-over), what+"-over-5ms")
	b.ReportMetric(float64(len(l)), what+"-requests")
}

// BenchmarkReload is how long the slowest request takes while 1,000 rules are
// reloaded, again and again, and how long without, over as much time. Run it with
// -benchtime 100x.
func BenchmarkReload(b *testing.B) {
	s := newServer(b, manyRules(1000, 0))
	url := serve(b, s.Check())
	measure := func(what string, during func()) {
		var stop atomic.Bool
		done := make(chan latencies)
		go func() { done <- call(b, url, &stop) }()
		during()
		stop.Store(true)
		(<-done).report(b, what)
	}
	start := time.Now()
	version := 0
	measure("reloading", func() {
		for b.Loop() {
			version++
			set, err := rules.Parse("rules.yaml", []byte(manyRules(1000, version)))
			if err != nil {
				b.Fatal(err)
			}
			s.SetRules(set)
		}
	})
	took := time.Since(start)
	measure("quiet", func() { time.Sleep(took) })
}

// BenchmarkChangeArrives is the time from a change at one instance until another
// one goes by it, through Redis. Run it with -benchtime 100x.
func BenchmarkChangeArrives(b *testing.B) {
	redis := redistest.Start(b)
	join := func() (operator, *server.Server) {
		store, err := redislimit.Connect(b.Context(), redis.URL(), redislimit.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(store.Close)
		s := newServer(b, adminRules, over(store), func(c *server.Config) { c.Documents = store.Documents() })
		s.Follow(b.Context())
		return operator{b, s.Admin()}, s
	}
	here, _ := join()
	_, there := join()
	time.Sleep(time.Second) // until it listens
	var all latencies
	enabled := true
	for b.Loop() {
		enabled = !enabled
		start := time.Now()
		here.change("PATCH", "/v1/switches", fmt.Sprintf(`{"enabled":%t}`, enabled))
		for there.Rules().Enabled != enabled {
			time.Sleep(20 * time.Microsecond)
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "slowest-ms")
}

// BenchmarkChange is what a change by the admin API takes beside 10,000 bans, and
// what it takes to list them.
func BenchmarkChange(b *testing.B) {
	var c rules.Controls
	for i := range rules.MaxBans - 10 {
		c.Bans = append(c.Bans, rules.Ban{Note: rules.Note{ID: fmt.Sprint("b", i), Reason: "tries passwords", Author: "ops", At: noon}, Rule: "login", Key: rules.Key(fmt.Sprintf("10.0.%d.%d", i/250, i%250))})
	}
	text, err := json.Marshal(map[string]any{"author": "ops", "at": noon, "controls": c})
	if err != nil {
		b.Fatal(err)
	}
	f := newFleet(b)
	f.shelf.versions = map[string][][]byte{"controls": {text}}
	o, _ := f.join(adminRules)
	b.Run("switch", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			o.change("PATCH", "/v1/switches", fmt.Sprintf(`{"enabled":%t}`, i%2 == 0))
		}
		b.ReportMetric(float64(len(text)), "B/document")
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			o.change("GET", "/v1/bans?limit=10000", "")
		}
	})
	b.Run("list of a rule that is gone", func(b *testing.B) {
		o.change("PUT", "/v1/rules", push("rules: []", 0))
		for b.Loop() {
			o.change("GET", "/v1/bans?limit=10000", "")
		}
	})
}

// change makes a call that must be done, without a look at the contract.
func (o operator) change(method, path, body string) {
	r, _ := http.NewRequest(method, "http://127.0.0.1:8090"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := &discard{header: http.Header{}}
	if o.h.ServeHTTP(w, r); w.status != http.StatusOK {
		o.Fatalf("%s %s: %d", method, path, w.status)
	}
}

// discard keeps the status of an answer.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
