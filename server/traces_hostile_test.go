package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

var validTraceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$`)

// hostileContexts are headers about traces that must not be continued as they are.
var hostileContexts = map[string][]string{
	"empty":                {"traceparent: "},
	"garbage":              {"traceparent: garbage"},
	"all zero":             {"traceparent: 00-00000000000000000000000000000000-0000000000000000-01"},
	"no span":              {"traceparent: 00-" + callersTrace + "-0000000000000000-01"},
	"upper case":           {"traceparent: 00-" + strings.ToUpper(callersTrace) + "-" + callersSpan + "-01"},
	"version ff":           {"traceparent: ff-" + callersTrace + "-" + callersSpan + "-01"},
	"too long for 00":      {"traceparent: " + traceparent + "-more"},
	"two":                  {"traceparent: " + traceparent, "traceparent: 00-" + strings.Repeat("a", 32) + "-" + callersSpan + "-01"},
	"very long":            {"traceparent: " + strings.Repeat("0", 30_000)},
	"not ASCII":            {"traceparent: 00-\xff\xfe-\x80-01"},
	"state without parent": {"tracestate: a=1"},
}

// Whatever a trusted caller sends about traces, the request is decided, the upstream gets one
// valid traceparent of a new trace, and all spans arrive.
func TestHostileTraceContext(t *testing.T) {
	c := newCollector(t)
	var got http.Header
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	g := start(t, newServer(t, tracedRules, everythingTo(up), c.sends()))
	for name, headers := range hostileContexts {
		if a := send(t, g.gateway, "GET", "/a", headers...); a.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", name, a.StatusCode)
			continue
		}
		if v := got["Traceparent"]; len(v) != 1 || !validTraceparent.MatchString(v[0]) || strings.Contains(v[0], callersTrace) || got["Tracestate"] != nil {
			t.Errorf("%s: the upstream got %q, %q", name, v, got["Tracestate"])
		}
	}
	_ = g.stop()
	if spans := c.got(); len(spans) != 3*len(hostileContexts) {
		t.Errorf("%d spans, want %d", len(spans), 3*len(hostileContexts))
	}
}

// A tracestate that is wrong or too long does not break the trace; it is left out.
func TestHostileTraceState(t *testing.T) {
	c := newCollector(t)
	var got http.Header
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	g := start(t, newServer(t, tracedRules, everythingTo(up), c.sends()))
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf("k%d=v", i))
	}
	for name, state := range map[string]string{
		"garbage": "=", "twice": "a=1,a=2", "too many": strings.Join(many, ","), "not ASCII": "a=\xff", "long": "a=" + strings.Repeat("x", 20_000),
	} {
		send(t, g.gateway, "GET", "/a", "traceparent: "+traceparent, "tracestate: "+state)
		if !strings.Contains(got.Get("Traceparent"), callersTrace) || got["Tracestate"] != nil {
			t.Errorf("%s: the upstream got %q, %.60q", name, got["Traceparent"], got["Tracestate"])
		}
	}
}

// Bytes of clients that are not UTF-8 reach the spans of paths and keys as text: otherwise the collector would not get any span that is sent with them.
func TestHostileBytesInSpans(t *testing.T) {
	const rule = `
trusted_proxies: [127.0.0.0/8]
rules:
  - {name: by-header, key: 'request.headers["x-user"]', limits: [1 per 1h]}
  - {name: by-operation, key: operation, limits: [1 per 1h]}
`
	c := newCollector(t)
	s := newServer(t, rule, everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) {})), c.sends())
	g := start(t, s)
	for range 2 {
		send(t, g.gateway, "GET", "/%ff%fe", "X-User: \xff\xfe\x80evil"+strings.Repeat("\xe4", 300))
		send(t, g.gateway, "FOO", "/%ffX", "X-User: b")
	}
	r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(`{"operation":"x\ud83d\ude00\u2028\u001b"}`))
	r.Header.Set("Content-Type", "application/json")
	checkAPI(s).ServeHTTP(httptest.NewRecorder(), r)
	_ = g.stop()
	spans := c.got()
	const want = `gateway server outcome=malformed path=/%ff%fe
  decide internal outcome=malformed path=/\xff\xfe
gateway server outcome=allowed path=/%ffX
  decide internal outcome=allowed path=/\xffX key=b
  upstream client
gateway server outcome=malformed path=/%ff%fe
  decide internal outcome=malformed path=/\xff\xfe
gateway server outcome=limited path=/%ffX
  decide internal outcome=limited path=/\xffX key=b
check server outcome=allowed path=/v1/check
  decide internal outcome=allowed key=x\U0001f600\u2028\x1b
`
	if got := tree(spans, "stint.outcome", "url.path", "stint.key"); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	for _, span := range spans {
		for name, v := range texts(span.Attributes) {
			if !utf8.ValidString(v) || len(v) > 1000 {
				t.Errorf("%s: %s is %d bytes: %.80q", span.Name, name, len(v), v)
			}
		}
	}
}

// FuzzTraceContext: no header breaks a request, and what is passed on is valid.
func FuzzTraceContext(f *testing.F) {
	f.Add(traceparent, "a=1", true)
	f.Add("00-"+callersTrace+"-"+callersSpan+"-03", "a@b=1,c=2", false)
	f.Add("01-"+callersTrace+"-"+callersSpan+"-01-x", "", true)
	for _, h := range hostileContexts {
		_, v, _ := strings.Cut(h[0], ": ")
		f.Add(v, v, true)
	}
	recorded := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(recorded))
	s := newServer(f, strings.Replace(tracedRules, "100 per 1h", "1000000000 per 1s", 1), func(c *server.Config) { c.TracerProvider = provider })
	var passed context.Context
	h := s.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed = r.Context() }))
	f.Fuzz(func(t *testing.T, parent, state string, trusted bool) {
		recorded.Reset()
		passed = nil
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "198.51.100.1:1"
		if trusted {
			r.RemoteAddr = "127.0.0.1:1"
		}
		r.Header["Traceparent"], r.Header["Tracestate"] = []string{parent}, []string{state}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || passed == nil {
			t.Fatalf("status %d", w.Code)
		}
		of := trace.SpanContextFromContext(passed)
		if !of.IsValid() || !of.IsSampled() && !trusted {
			t.Fatalf("the handler got the span %+v", of)
		}
		if continued := strings.Contains(parent, of.TraceID().String()); continued && !trusted {
			t.Errorf("a stranger's trace %q was continued", parent)
		}
		if of.TraceState().Len() > 0 && !trusted {
			t.Errorf("a stranger's state was taken: %q", of.TraceState())
		}
	})
}

// With privacy: hash no span has a raw key or address, and equal keys look alike.
func TestPrivacyInTraces(t *testing.T) {
	c := newCollector(t)
	s := newServer(t, tracedRules, c.sends(), func(c *server.Config) { c.Settings.HashKeys = true }, everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})))
	g := start(t, s)
	for range 3 {
		send(t, g.gateway, "POST", "/login", "X-Forwarded-For: 198.51.100.77")
	}
	_ = g.stop()
	keys := map[string]bool{}
	spans := c.got()
	for _, span := range spans {
		if strings.Contains(span.String(), "198.51.100.77") {
			t.Errorf("%s shows the client: %s", span.Name, span)
		}
		if key := texts(span.Attributes)["stint.key"]; key != "" {
			keys[key] = true
		}
	}
	if len(keys) != 1 || len(spans) < 9 {
		t.Errorf("%d spans, keys %v", len(spans), keys)
	}
	for key := range keys {
		if !strings.HasPrefix(key, "h:") {
			t.Errorf("key %q", key)
		}
	}
}

// In a program, the spans are children of its own, and its handler gets the span.
func TestTracesOfWrap(t *testing.T) {
	recorded := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(recorded))
	s := newServer(t, tracedRules, func(c *server.Config) {
		c.TracerProvider = provider
		c.Settings.Traces = &config.Traces{Endpoint: "http://127.0.0.1:1/"} // not used
	})
	tracer := provider.Tracer("program")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, span := tracer.Start(r.Context(), "handler")
		defer span.End()
		w.(http.Flusher).Flush()
	})
	h := s.Wrap(mux)
	ctx, span := tracer.Start(t.Context(), "program")
	r := httptest.NewRequest("GET", "/users/7", nil).WithContext(ctx)
	r.Header.Set("Traceparent", traceparent) // the program's span counts
	h.ServeHTTP(httptest.NewRecorder(), r)
	span.End()
	by := map[string]tracetest.SpanStub{}
	for _, s := range recorded.GetSpans() {
		by[s.Name] = s
	}
	for child, parent := range map[string]string{"limited": "program", "decide": "limited", "handler": "limited"} {
		if by[child].Parent.SpanID() != by[parent].SpanContext.SpanID() || !by[parent].SpanContext.IsValid() {
			t.Errorf("%s is not a child of %s: %+v", child, parent, by)
		}
	}
	found := false
	for _, a := range by["limited"].Attributes {
		found = found || string(a.Key) == "http.route" && a.Value.AsString() == "GET /users/{id}"
	}
	if !found {
		t.Errorf("no route in %v", by["limited"].Attributes)
	}
}
