package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// A collector that takes connections and never answers stops no request: more than there is
// room for are decided while it hangs. What has no room is dropped and counted, and Close does
// not wait for the collector.
func TestCollectorHangs(t *testing.T) {
	c := newCollector(t)
	released := make(chan struct{})
	t.Cleanup(func() { close(released) }) // before the collector's Close, which waits for handlers
	var once sync.Once
	asked := make(chan struct{})
	c.answer = func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		_, _ = io.Copy(io.Discard, r.Body)
		<-released
	}
	s := newServer(t, tracedRules, c.sends())
	h := checkAPI(s)
	askOnce(h)
	before := heap()
	const spansEach = 2
	more := 500
	for i := range config.MaxSpans/spansEach - 1 + more {
		if i == 1000 {
			<-asked // from here on it hangs
		}
		if status := askOnce(h); status != http.StatusOK {
			t.Fatalf("request %d: status %d", i, status)
		}
	}
	if dropped := metric(t, s, `stint_trace_spans_total{result="dropped"}`); dropped != float64(spansEach*more) {
		t.Errorf("%v spans dropped, want %d", dropped, spansEach*more)
	}
	most := spanBytes(t)
	each := (heap() - before) / config.MaxSpans
	t.Logf("%d bytes a span", each)
	if each > most {
		t.Errorf("a span that waits takes %d bytes, more than %d", each, most)
	}
	s.Close()
	if got := c.got(); len(got) > 0 {
		t.Errorf("%d spans arrived", len(got))
	}
	await.Until(t, "all spans count as failed", func() bool {
		return metric(t, s, `stint_trace_spans_total{result="failed"}`) == config.MaxSpans
	})
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// spanBytes is what the bounds allow for a span.
func spanBytes(t *testing.T) int64 {
	t.Helper()
	s := config.Default()
	s.Traces = new(config.Traces)
	for _, p := range s.FitMemory().Parts {
		if p.Name == "spans to be sent" && p.Most == config.MaxSpans {
			return p.Each
		}
	}
	t.Fatal("the bounds have no spans")
	return 0
}

// askOnce makes a check that is allowed and returns the status.
func askOnce(h http.Handler) int {
	r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(`{"operation":"x","client":"192.0.2.1","cost":1,"request":{"path":"/none"}}`))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == http.StatusTooManyRequests {
		return http.StatusOK // decided, too
	}
	return w.Code
}

// A collector that is away, and one that refuses, cost spans and nothing else. The log names
// the reason, without what the collector sent in excess.
func TestCollectorRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		url    string
		logged string
	}{
		"away": {url: unreachable(t).String() + "/v1/traces", logged: "connection refused"},
		"no key": {answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no key\x1b[31m\n"+strings.Repeat("x", 100<<10), http.StatusUnauthorized)
		}, logged: "401"},
		"redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, logged: "307"},
		"not a web": {answer: func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, logged: "EOF"},
		"throttling": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
		}, logged: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			c.answer = test.answer
			var log logged
			s := newServer(t, tracedRules, c.sends(func(tr *config.Traces) {
				if test.url != "" {
					tr.Endpoint = test.url
				}
			}), logTo(&log))
			for range 3 {
				if status := askOnce(checkAPI(s)); status != http.StatusOK {
					t.Errorf("status %d", status)
				}
			}
			s.Close()
			await.Until(t, "the spans count as failed", func() bool { return metric(t, s, `stint_trace_spans_total{result="failed"}`) == 6 })
			text := log.taken()
			if !strings.Contains(text, "the collector has not taken spans") || !strings.Contains(text, test.logged) || len(text) > 2000 || strings.Contains(text, "\x1b") || strings.Count(text, "\n") > 1 {
				t.Errorf("logged %d bytes: %.2000s", len(text), text)
			}
		})
	}
}

// Headers come from the file, which may change; a wrong one leaves the former, and no error
// shows what it holds.
func TestCollectorHeaders(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	withFile := c.sends(func(tr *config.Traces) { tr.HeadersFile = file })
	for name, text := range map[string]string{
		"no colon":     "Authorization Bearer s3cret",
		"bad name":     "A b: s3cret",
		"bad value":    "A: s3cret\x00",
		"the protocol": "content-type: s3cret",
	} {
		write(text)
		s := newServer(t, tracedRules, withFile)
		if err := s.Open(); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "traces") {
			t.Errorf("%s: %v", name, err)
		}
	}
	write("# for the collector\r\n\r\nX-Key: one\r\nAuthorization:  Bearer s3cret \n")
	var log logged
	s := newServer(t, tracedRules, withFile, logTo(&log))
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	askOnce(checkAPI(s))
	await.Until(t, "the first spans arrive", func() bool { return len(c.got()) == 2 })
	write("X-Key: two")
	s.ReloadFiles()
	write("broken s3cret")
	s.ReloadFiles()
	askOnce(checkAPI(s))
	s.Close()
	if len(c.requests) != 2 {
		t.Fatalf("%d requests", len(c.requests))
	}
	for i, want := range []string{"one Bearer s3cret", "two "} {
		if h := c.requests[i].Header; h.Get("X-Key")+" "+h.Get("Authorization") != want {
			t.Errorf("request %d had %v", i, h)
		}
	}
	if text := log.taken(); strings.Contains(text, "s3cret") || !strings.Contains(text, "headers for traces not taken") {
		t.Errorf("logged %s", text)
	}
}

// What the settings leave out, the standard variables say.
func TestTracesByEnvironment(t *testing.T) {
	c := newCollector(t)
	for name, test := range map[string]struct {
		env           map[string]string
		settings      config.Traces
		service, want string
	}{
		"base":         {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL + "/"}, config.Traces{}, "stint", ""},
		"own":          {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL + "/v1/traces", "OTEL_SERVICE_NAME": "edge"}, config.Traces{}, "edge", ""},
		"the settings": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SERVICE_NAME": "edge", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=1"}, config.Traces{Endpoint: c.URL + "/v1/traces", Service: "mine"}, "mine", ""},
		"nonsense":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, config.Traces{}, "", "$OTEL_EXPORTER_OTLP_ENDPOINT"},
		"attributes":   {map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "service.name=x,%zz"}, config.Traces{Endpoint: c.URL + "/v1/traces"}, "", "$OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			before := len(c.got())
			test.settings.Sample = 1
			s := newServer(t, tracedRules, func(c *server.Config) { c.Settings.Traces = &test.settings })
			err := s.Open()
			askOnce(checkAPI(s))
			s.Close()
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("Open: %v", err)
				}
				return
			}
			if err != nil || len(c.got()) != before+2 || c.resource["service.name"] != test.service {
				t.Errorf("%v, %d spans, %v", err, len(c.got())-before, c.resource)
			}
			if test.env["OTEL_EXPORTER_OTLP_HEADERS"] != "" && c.requests[len(c.requests)-1].Header.Get("X-Key") != "1" {
				t.Error("no header of the environment")
			}
		})
	}
}

// A collector with TLS is believed by the authority of the settings, and shown a certificate.
func TestCollectorTLS(t *testing.T) {
	theirs, ours := newAuthority(t), newAuthority(t)
	shown := theirs.sign(t, "collector", dnsName("collector.internal"))
	pair, err := tls.X509KeyPair(shown.cert, shown.key)
	if err != nil {
		t.Fatal(err)
	}
	c := new(collector)
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.receive))
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	c.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.StartTLS()
	t.Cleanup(c.Close)
	files := ours.sign(t, "stint").write(t, theirs)
	for name, test := range map[string]struct {
		tls   *config.UpstreamTLS
		spans int
	}{
		"all":          {&config.UpstreamTLS{CA: files.ClientCA, Cert: files.Cert, Key: files.Key, ServerName: "collector.internal"}, 2},
		"no authority": {&config.UpstreamTLS{Cert: files.Cert, Key: files.Key, ServerName: "collector.internal"}, 0},
		"no cert":      {&config.UpstreamTLS{CA: files.ClientCA, ServerName: "collector.internal"}, 0},
		"nothing":      {nil, 0},
	} {
		before := len(c.got())
		s := newServer(t, tracedRules, c.sends(func(tr *config.Traces) { tr.TLS = test.tls }))
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		askOnce(checkAPI(s))
		s.Close()
		if n := len(c.got()) - before; n != test.spans {
			t.Errorf("%s: %d spans", name, n)
		}
	}
}
