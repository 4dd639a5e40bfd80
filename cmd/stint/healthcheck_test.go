package main

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// checkHealth runs stint healthcheck, which must end with code and say what is told on the stream for that.
func checkHealth(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	got, out, errs := call("", append([]string{"healthcheck"}, args...)...)
	said := out
	if code != 0 {
		said = errs
	}
	if got != code || !strings.Contains(said, says) || strings.Count(out+errs, "\n") != 1 {
		t.Errorf("healthcheck %q: exit %d, %q and %q, want exit %d and one line with %q", args, got, out, errs, code, says)
	}
}

func hostPort(url string) string { return url[strings.LastIndex(url, "/")+1:] }

// It finds the instance by the settings of a file, variables and flags, with TLS, and asks the
// listener for probes if there is one.
func TestHealthcheck(t *testing.T) {
	s, dir, _ := serveTLS(t) // its certificate is for localhost, and of an unknown authority
	file := filepath.Join(dir, "stint.yaml")
	_, port, _ := net.SplitHostPort(hostPort(s.check))
	checkHealth(t, 0, "/healthz: ok\n", "--config", file, "--check-listen", hostPort(s.check))
	checkHealth(t, 0, "https://127.0.0.1:"+port+"/readyz: ready\n", "--config", file, "--check-listen", "127.0.0.1:"+port, "--ready")
	checkHealth(t, 0, "https://"+hostPort(s.check)+"/readyz: ready\n", "--url", "https://"+hostPort(s.check)+"/", "--ready")
	checkHealth(t, 1, "answers 400: Client sent an HTTP request to an HTTPS server.", "--url", "http://"+hostPort(s.check))
	t.Setenv("STINT_SERVER_CHECK_LISTEN", hostPort(s.check))
	checkHealth(t, 0, "/healthz: ok\n", "--config", file)

	put(t, file, "server:\n  check_listen: "+hostPort(s.check)+"\n  check_tls: {cert: "+dir+"/cert.pem, key: "+dir+"/key.pem, client_ca: "+dir+"/cert.pem}\nrules: [wrong]\n")
	checkHealth(t, 1, "set probe_listen", "--config", file)
	probes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			http.Error(w, "stopping\x1b[2J\nand more", http.StatusServiceUnavailable)
		}
	}))
	defer probes.Close()
	checkHealth(t, 0, probes.URL+"/healthz: \n", "--config", file, "--probe-listen", hostPort(probes.URL))
	_, port, _ = net.SplitHostPort(hostPort(probes.URL))
	for _, anywhere := range []string{":", "0.0.0.0:", "[::]:"} {
		checkHealth(t, 0, "http://127.0.0.1:"+port+"/healthz: \n", "--config", file, "--probe-listen", anywhere+port)
	}
	checkHealth(t, 1, probes.URL+`/readyz answers 503: stopping\x1b[2J`+"\n", "--config", file, "--probe-listen", hostPort(probes.URL), "--ready")
}

func TestHealthcheckWithoutAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	if err != nil {
		t.Fatal(err)
	}
	at := silent.Addr().String()
	checkHealth(t, 1, "http://"+at+"/healthz: no answer within 50ms", "--check-listen", at, "--timeout", "50ms")
	silent.Close()
	checkHealth(t, 1, "http://"+at+"/healthz: ", "--check-listen", at)
	elsewhere := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
	defer elsewhere.Close()
	checkHealth(t, 1, "answers 302", "--url", elsewhere.URL)
	checkHealth(t, 1, "https://"+hostPort(elsewhere.URL)+"/healthz: there is no TLS: ask "+elsewhere.URL+"\n", "--url", "https://"+hostPort(elsewhere.URL))
	asking := httptest.NewUnstartedServer(nil)
	asking.TLS, asking.Config.ErrorLog = &tls.Config{ClientAuth: tls.RequireAnyClientCert}, slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	asking.StartTLS()
	defer asking.Close()
	checkHealth(t, 1, "certificate required", "--url", asking.URL)
	for _, wrong := range []string{"/readyz", "?x=1", "#x"} {
		checkHealth(t, 2, "want a URL without a path", "--url", elsewhere.URL+wrong)
	}
	if code, _, errs := call("", "healthcheck", "--url", "http://user:geheim@localhost"); code != 2 || strings.Contains(errs, "geheim") {
		t.Errorf("a password: exit %d, %s", code, errs)
	}
}

// With --wait it asks again until the answer is good, and else ends with the last one.
func TestHealthcheckWait(t *testing.T) {
	var asked atomic.Int64
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // as while no pod is there
		case 2:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("ready\n"))
		}
	}))
	defer starting.Close()
	checkHealth(t, 0, "/readyz: ready\n", "--ready", "--url", starting.URL, "--wait", "1h")
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times", n)
	}
	never := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	defer never.Close()
	checkHealth(t, 1, "/healthz answers 503: not yet\n", "--url", never.URL, "--wait", "50ms")
	checkHealth(t, 2, "--wait -1s: want some time", "--url", never.URL, "--wait=-1s")
}

// An instance of stint envoy answers on the HTTP port of envoyproxy/ratelimit.
func TestHealthcheckEnvoy(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthcheck" {
			http.NotFound(w, r)
		}
		_, _ = w.Write([]byte("OK"))
	}))
	defer service.Close()
	host, port, _ := net.SplitHostPort(hostPort(service.URL))
	t.Setenv("HOST", host)
	t.Setenv("PORT", port)
	checkHealth(t, 0, service.URL+"/healthcheck: OK\n", "--envoy", "--ready")
}
