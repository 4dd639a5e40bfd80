package server_test

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const tracedRules = `
trusted_proxies: [127.0.0.0/8]
rules:
  - name: login
    match: request.path == "/login"
    key: client.ip
    limits: [2 per 1h sliding_log]
    penalty: {ban_after: 3, ban_for: 1h, on_status: [401]}
  - name: all
    key: client.ip
    limits: [100 per 1h]
`

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
	traceparent  = "00-" + callersTrace + "-" + callersSpan + "-01"
)

func hexOf(id []byte) string { return hex.EncodeToString(id) }

// A request of a caller with a trace makes spans of the gateway, the decision, the store and
// the upstream, which continue it; the upstream gets the span that called it, and the
// caller's tracestate.
func TestTraceOfGateway(t *testing.T) {
	redis := redistest.Start(t)
	store := openRedis(t, redis.URL())
	c := newCollector(t)
	var mu sync.Mutex
	var seen []http.Header
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Clone())
		if r.URL.Path == "/login" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	s := newServer(t, tracedRules, over(store), everythingTo(up), c.sends(), func(c *server.Config) {
		c.Settings.DecisionTimeout = 20 * time.Second // so that a slow machine does not decide by itself
	})
	g := start(t, s)
	client := "X-Forwarded-For: 192.0.2.7"
	for range 3 {
		send(t, g.gateway, "POST", "/login?secret=1", client, "traceparent: "+traceparent, "tracestate: a=1", "tracestate: b=2")
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	spans := c.got()
	const want = `gateway server method=POST path=/login route=/ status_code=401 outcome=allowed rule=login
  decide internal method=POST path=/login outcome=allowed rule=login rules=login,all key=192.0.2.7 remaining=1 by=store
    stint.store take client outcome=allowed by=store requests=1 asks=2 keys=1 merged_requests=1
  upstream client method=POST status_code=401
    violate internal outcome=limited rule=login key=192.0.2.7
gateway server method=POST path=/login route=/ status_code=401 outcome=allowed rule=login
  decide internal method=POST path=/login outcome=allowed rule=login rules=login,all key=192.0.2.7 remaining=0 by=store
    stint.store take client outcome=allowed by=store requests=1 asks=2 keys=1 merged_requests=1
  upstream client method=POST status_code=401
    violate internal outcome=limited rule=login key=192.0.2.7
gateway server method=POST path=/login route=/ status_code=429 outcome=banned rule=login
  decide internal method=POST path=/login outcome=banned rule=login rules=login,all key=192.0.2.7 remaining=0 by=store
    stint.store take client outcome=banned by=store requests=1 asks=2 keys=1 merged_requests=1
`
	got := tree(spans, "http.request.method", "url.path", "http.route", "http.response.status_code", "stint.outcome", "stint.rule",
		"stint.rules", "stint.key", "stint.remaining", "stint.by", "stint.requests", "stint.asks", "stint.keys", "stint.merged_requests")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(seen) != 2 {
		t.Fatalf("the upstream got %d requests", len(seen))
	}
	for _, span := range spans {
		if hexOf(span.TraceId) != callersTrace {
			t.Errorf("%s is in another trace, %s", span.Name, hexOf(span.TraceId))
		}
		if span.Kind == otlp.Span_SPAN_KIND_SERVER && hexOf(span.ParentSpanId) != callersSpan {
			t.Errorf("%s has the parent %s", span.Name, hexOf(span.ParentSpanId))
		}
		if strings.Contains(span.String(), "secret") {
			t.Errorf("a span has the query: %s", span)
		}
	}
	for _, h := range seen {
		parts := strings.Split(h.Get("Traceparent"), "-")
		if len(h["Traceparent"]) != 1 || len(parts) != 4 || parts[1] != callersTrace || parts[2] == callersSpan || parts[3] != "01" || h.Get("Tracestate") != "a=1,b=2" {
			t.Errorf("the upstream got %q, %q", h["Traceparent"], h["Tracestate"])
			continue
		}
		for _, span := range spans {
			if hexOf(span.SpanId) == parts[2] && span.Name != "upstream" {
				t.Errorf("the upstream was called by %s", span.Name)
			}
		}
	}
	if r := c.resource; r["service.name"] != "stint" || r["service.instance.id"] == "" || r["telemetry.sdk.language"] != "go" {
		t.Errorf("resource %v", r)
	}
}

// A caller that is not trusted begins a trace, with a link to its own, unless all are to be
// continued. The gateway's sampling decides, and not the caller's.
func TestTraceOfStrangers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*config.Traces)
		spans  int
		same   bool
	}{
		"trusted":              {func(*config.Traces) {}, 3, false},
		"trusted, not sampled": {func(t *config.Traces) { t.Sample = 0 }, 0, false},
		"all":                  {func(t *config.Traces) { t.Continue, t.Sample = config.ContinueAll, 0 }, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			var got http.Header
			up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
			s := newServer(t, strings.Replace(tracedRules, "127.0.0.0/8", "203.0.113.0/24", 1), everythingTo(up), c.sends(test.change))
			g := start(t, s)
			send(t, g.gateway, "GET", "/a", "traceparent: "+traceparent, "tracestate: a=1")
			_ = g.stop()
			spans := c.got()
			if len(spans) != test.spans {
				t.Errorf("%d spans:\n%s", len(spans), tree(spans))
			}
			for _, span := range spans {
				if same := hexOf(span.TraceId) == callersTrace; same != test.same {
					t.Errorf("%s is in trace %s", span.Name, hexOf(span.TraceId))
				}
				if linked := len(span.Links) == 1 && hexOf(span.Links[0].TraceId) == callersTrace; linked != (span.Name == "gateway" && !test.same) {
					t.Errorf("%s has links %v", span.Name, span.Links)
				}
			}
			passed := got.Get("Traceparent")
			if strings.Contains(passed, callersTrace) != test.same || strings.HasSuffix(passed, "-01") != (test.spans > 0) || (got.Get("Tracestate") == "a=1") != test.same {
				t.Errorf("the upstream got %q, %q", passed, got["Tracestate"])
			}
		})
	}
}

// Without traces, what the client sends passes as it is.
func TestTraceContextWithoutTraces(t *testing.T) {
	var got http.Header
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	g := start(t, newServer(t, tracedRules, everythingTo(up)))
	send(t, g.gateway, "GET", "/a", "traceparent: "+traceparent, "tracestate: a=1")
	if got.Get("Traceparent") != traceparent || got.Get("Tracestate") != "a=1" {
		t.Errorf("the upstream got %q, %q", got["Traceparent"], got["Tracestate"])
	}
}

// A check, a list of checks and a question of a proxy have spans.
func TestTraceOfChecks(t *testing.T) {
	c := newCollector(t)
	s := newServer(t, tracedRules, c.sends())
	ask := func(method, path, body string, headers ...string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("Traceparent", traceparent)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		checkAPI(s).ServeHTTP(httptest.NewRecorder(), r)
	}
	const one = `{"client":"192.0.2.1","request":{"method":"GET","path":"/login"}}`
	ask("POST", "/v1/check", one)
	ask("POST", "/v1/check", "["+one+","+one+`,{"cost":-1},`+one+"]")
	ask("GET", "/v1/authorize", "", "X-Original-Method: BREW", "X-Original-URI: /x?y", "X-Forwarded-For: 192.0.2.9")
	s.Close()
	spans := c.got()
	const want = `check server method=POST path=/v1/check status_code=200 outcome=allowed rule=login
  decide internal method=GET path=/login outcome=allowed rule=login
check server method=POST path=/v1/check status_code=200
  decide internal checks=4 passed=1 [stint.decision method=GET path=/login outcome=limited rule=login check=1] [stint.decision outcome=malformed check=2] [stint.decision method=GET path=/login outcome=limited rule=login check=3]
authorize server method=GET path=/v1/authorize status_code=200 outcome=allowed rule=all
  decide internal method=_OTHER path=/x outcome=allowed rule=all
`
	got := tree(spans, "http.request.method", "url.path", "http.response.status_code", "stint.outcome", "stint.rule", "stint.checks", "stint.passed", "stint.check")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, span := range spans {
		if hexOf(span.TraceId) != callersTrace {
			t.Errorf("%s is in trace %s", span.Name, hexOf(span.TraceId))
		}
	}
}
