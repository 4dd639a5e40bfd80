package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

const benchRules = `
rules:
  - {name: login, match: 'request.method == "POST" && request.path == "/login"', key: client.ip, limits: [5 per 1m sliding_log]}
  - {name: client, key: client.ip, limits: [1000000000 per 1s, 1000000000 per 1m]}
`

// load sends requests over loopback, each after the answer to the one before.
func load(b *testing.B, url string, request func(url string) *http.Request) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			resp, err := client.Do(request(url))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
}

func serve(b *testing.B, h http.Handler) string {
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	return s.URL
}

func empty(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// nowhere is where an answer goes that nobody reads.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header          { return n.header }
func (nowhere) Write(body []byte) (int, error) { return len(body), nil }
func (nowhere) WriteHeader(status int) {
	if status != http.StatusOK {
		panic(status)
	}
}

// The floor is a handler that reads the request and does nothing.
func BenchmarkCheck(b *testing.B) {
	const body = `{"client":"192.0.2.1","request":{"method":"GET","path":"/v1/users?page=7","host":"example.com","headers":{"user-agent":"curl"}}}`
	request := func(url string) *http.Request {
		r, _ := http.NewRequest("POST", url+"/v1/check", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return r
	}
	s := newServer(b, benchRules)
	b.Run("floor", func(b *testing.B) {
		load(b, serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			empty(w, r)
		})), request)
	})
	b.Run("check", func(b *testing.B) { load(b, serve(b, s.Check()), request) })
	b.Run("without net", func(b *testing.B) { checksWithoutNet(b, s, body) })
	b.Run("without net, a list of 100", func(b *testing.B) { checksWithoutNet(b, s, "["+strings.Repeat(body+",", 99)+body+"]") })
}

func checksWithoutNet(b *testing.B, s *server.Server, body string) {
	h := s.Check()
	b.ReportAllocs()
	for b.Loop() {
		w := nowhere{http.Header{}}
		r, _ := http.NewRequest("POST", "http://localhost/v1/check", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
	}
}

// Lists of 20 checks, to each of which one rule of many applies.
func BenchmarkChecksOfMany(b *testing.B) {
	for _, by := range []struct{ what, match, check string }{
		{"operation", `operation == "o%d"`, `{"client":"192.0.2.1","operation":"o%d"}`},
		{"attribute", `attrs.x == "o%d"`, `{"client":"192.0.2.1","attrs":{"x":"o%d"}}`},
		{"header", `request.headers["x-tenant"] == "o%d"`, `{"client":"192.0.2.1","request":{"path":"/","headers":{"x-tenant":"o%d"}}}`},
		{"path", `request.path == "/o%d"`, `{"client":"192.0.2.1","request":{"path":"/o%d"}}`},
	} {
		for _, n := range []int{1, 1000, 10_000} {
			b.Run(fmt.Sprintf("by=%s/rules=%d", by.what, n), func(b *testing.B) {
				file := "rules:\n"
				for i := range n {
					file += fmt.Sprintf("- {name: r%d, match: '%s', key: client.ip, limits: [1000000000 per 1h]}\n", i, fmt.Sprintf(by.match, i))
				}
				checks := make([]string, 20)
				for i := range checks {
					checks[i] = fmt.Sprintf(by.check, n*i/20)
				}
				checksWithoutNet(b, newServer(b, file), "["+strings.Join(checks, ",")+"]")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20, "ns/check")
			})
		}
	}
}

// One check and a list of 100, each of another client, and lists of calls of Envoy's service.
func BenchmarkCheckThroughRedis(b *testing.B) {
	store, err := redislimit.Connect(b.Context(), redistest.Start(b).URL(), redislimit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(store.Close)
	url := serve(b, newCalls(b, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1000000000}}]", benchRules, over(store)).Check())
	of := func(body string) string {
		var all []string
		for i := range 100 {
			all = append(all, fmt.Sprintf(body, i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	const request = `{"client":"192.0.2.%d","request":{"method":"GET","path":"/v1/users?page=7","host":"example.com","headers":{"user-agent":"curl"}}}`
	const call = `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"%d"}]HITS}]}`
	for name, body := range map[string]string{
		"one": fmt.Sprintf(request, 0), "a list of 100": of(request), "a list of 100 calls": of(strings.Replace(call, "HITS", "", 1)),
		"a list of 100 calls that are charged if they are refused": of(strings.Replace(call, "HITS", `,"hits_addend":2`, 1)),
	} {
		b.Run(name, func(b *testing.B) {
			load(b, url, func(url string) *http.Request {
				r, _ := http.NewRequest("POST", url+"/v1/check", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				return r
			})
		})
	}
}

// The floors are an upstream asked directly, and one behind a ReverseProxy that
// does nothing.
func BenchmarkGateway(b *testing.B) {
	request := func(url string) *http.Request {
		r, _ := http.NewRequest("GET", url+"/v1/users?page=7", nil)
		return r
	}
	up := upstream(b, empty)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	bare := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(up) }}
	b.Run("upstream", func(b *testing.B) { load(b, up.String(), request) })
	b.Run("bare proxy", func(b *testing.B) { load(b, serve(b, bare), request) })
	b.Run("gateway", func(b *testing.B) { load(b, serve(b, newServer(b, benchRules, everythingTo(up)).Gateway()), request) })
}

func BenchmarkDecide(b *testing.B) {
	for name, file := range map[string]string{
		"two limits": benchRules,
		"and shadow": benchRules + "  - {name: shadow, key: client.ip, limits: [1000000000 per 1s], mode: shadow}\n",
		"no rule":    `rules: [{name: none, match: operation == "x", key: client.ip, limits: [1 per 1s]}]`,
	} {
		b.Run(name, func(b *testing.B) { decide(b, newServer(b, file)) })
	}
}

func decide(b *testing.B, s *server.Server) {
	in := from("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		if v, err := s.Decide(context.Background(), in, time.Time{}); err != nil || !v.Allowed {
			b.Fatal(v, err)
		}
	}
}

// BenchmarkDecideObserved is what a request pays for everything that records it: offenders,
// recent requests, alerts about keys and lines about refusals, which the request here is not.
func BenchmarkDecideObserved(b *testing.B) {
	const watched = benchRules + "alerts: [{name: near, when: usage > 80% of client}]\n"
	for _, c := range []struct {
		name, file string
		on         bool
	}{{"off", benchRules, false}, {"on", watched, true}} {
		b.Run(c.name, func(b *testing.B) {
			decide(b, newServer(b, c.file, func(of *server.Config) {
				if !c.on {
					of.Settings.Offenders, of.Settings.RecentRequests, of.Settings.Log.Refusals = 0, 0, 0
				}
			}))
		})
	}
}

// A call of Envoy's service beside a request whose rule counts the same.
func BenchmarkDecideCall(b *testing.B) {
	s := newCalls(b, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: second, requests_per_unit: 1000000000}}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 1000000000}}
  - {key: c, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 1000000000}}
  - {key: over, rate_limit: {unit: year, requests_per_unit: 0}}
`, `rules: [{name: r, match: operation == "plain", key: client.ip, limits: [1000000000 per 1s fixed_window]}]`)
	plain := from("192.0.2.1")
	plain.Operation = "plain"
	for _, c := range []struct {
		name string
		in   *rules.Input
	}{
		{"a request", plain},
		{"one descriptor", calling("a=192.0.2.1")},
		{"two descriptors", calling("a=192.0.2.1", "b=192.0.2.1")},
		{"two groups", calling("a=192.0.2.1", "c=192.0.2.1")},
		{"over", calling("over=192.0.2.1")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Decide(context.Background(), c.in, time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
