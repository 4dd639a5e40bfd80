package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// through sends a request through h.
func through(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// What the gateway does of the rules, Wrap does, too.
func TestWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
blocklist: [request.path == "/bad"]
rules:
  - {name: login, match: request.path == "/login", key: client.ip, limits: [2 per 1m fixed_window], message: slow down}
  - {name: even, match: request.path == "/even", key: '"all"', limits: [10 per 1s leaky_bucket burst 5], shape: true}
  - name: guessing
    match: request.path == "/guess"
    key: client.ip
    penalty: {on_status: [401], ban_after: 2, ban_for: 10m}
`)
		reached := 0
		h := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached++
			if r.URL.Path == "/guess" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, "hello")
		}))
		for i, c := range []struct {
			target, text string
			status       int
			remaining    string
		}{
			{"/login", "hello", 200, "1"},
			{"/login?a=b", "hello", 200, "0"},
			{"/login", "slow down", 429, "0"},
			{"/bad", "blocked", 403, ""},
			{"/other", "hello", 200, ""},
			{"/guess", "hello", 401, ""},
			{"/guess", "hello", 401, ""},
			{"/guess", "banned", 429, ""},
		} {
			w := through(h, "GET", c.target)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) || w.Header().Get("X-RateLimit-Remaining") != c.remaining {
				t.Errorf("request %d, %s: %d %v %s", i+1, c.target, w.Code, w.Header(), w.Body)
			}
		}
		if reached != 5 {
			t.Errorf("%d requests reached the handler, want 5", reached)
		}
		start := time.Now()
		for range 3 {
			through(h, "GET", "/even")
		}
		if took := time.Since(start); took != 300*time.Millisecond && took != 200*time.Millisecond {
			t.Errorf("three requests at 10 a second took %v", took)
		}
	})
}

// Requests under way count among those of the instance.
func TestWrapIsBounded(t *testing.T) {
	s := newServer(t, "rules: []", func(c *server.Config) { c.Settings.Instance.InFlight = 1 })
	inside, leave := make(chan struct{}), make(chan struct{})
	h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside <- struct{}{}; <-leave }))
	done := make(chan struct{})
	go func() { defer close(done); through(h, "GET", "/") }()
	<-inside
	if w := through(h, "GET", "/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a second one: %d", w.Code)
	}
	close(leave)
	<-done
}

// The route is the pattern of the mux, whether it is wrapped whole or handler by handler.
func TestWrapRoutes(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	patterns := []string{"GET /users/{id}", "POST /users/{id}", "/files/", "example.com/"}
	rules := `
rules:
  - {name: user, match: 'request.route == "GET /users/{id}"', key: '"all"', limits: [1 per 1h]}
  - {name: routes, key: request.route, limits: [2 per 1h]}
`
	for name, wrapped := range map[string]func(s *server.Server) http.Handler{
		"a mux": func(s *server.Server) http.Handler {
			mux := http.NewServeMux()
			for _, p := range patterns {
				mux.Handle(p, ok)
			}
			return s.Wrap(mux)
		},
		"handlers": func(s *server.Server) http.Handler {
			mux := http.NewServeMux()
			for _, p := range patterns {
				mux.Handle(p, s.Wrap(ok))
			}
			return mux
		},
		"a mux in a mux": func(s *server.Server) http.Handler {
			inner, outer := http.NewServeMux(), http.NewServeMux()
			for _, p := range patterns {
				inner.Handle(p, ok)
			}
			outer.Handle("/", s.Wrap(inner))
			outer.Handle("example.com/", s.Wrap(inner))
			return outer
		},
	} {
		h := wrapped(newServer(t, rules))
		for i, c := range []struct {
			method, target string
			status         int
		}{
			{"GET", "http://a.test/users/5", 204}, {"GET", "http://a.test/users/6", 429},
			{"POST", "http://a.test/users/5", 204}, {"POST", "http://a.test/users/6", 204}, {"POST", "http://a.test/users/7", 429},
			{"GET", "http://a.test/files/a", 204}, {"GET", "http://a.test/files/b/c", 204}, {"GET", "http://a.test/files/", 429},
			{"GET", "http://example.com/files2", 204}, {"GET", "http://example.com/x", 204}, {"GET", "http://example.com/y", 429},
		} {
			if w := through(h, c.method, c.target); w.Code != c.status {
				t.Errorf("%s: request %d, %s %s: %d, want %d", name, i+1, c.method, c.target, w.Code, c.status)
			}
		}
	}
	// Without a mux there is no route, and the rule is not for the request.
	h := newServer(t, rules).Wrap(ok)
	for range 3 {
		if w := through(h, "GET", "/users/5"); w.Code != 204 {
			t.Errorf("without a mux: %d", w.Code)
		}
	}
}

// A rule without a key counts by route and client.
func TestWrapDefaultKey(t *testing.T) {
	mux := http.NewServeMux()
	ok := func(http.ResponseWriter, *http.Request) {}
	mux.HandleFunc("/a/", ok)
	mux.HandleFunc("/b/", ok)
	h := newServer(t, "rules: [{name: all, limits: [1 per 1h]}]").Wrap(mux)
	var got []int
	for _, target := range []string{"/a/1", "/a/2", "/b/1", "/b/2"} {
		got = append(got, through(h, "GET", target).Code)
	}
	if fmt.Sprint(got) != "[200 429 200 429]" {
		t.Error(got)
	}
}

// Load reads all that a file says, and what it needs besides must be given.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, "stint.yaml")
		put(t, path, []byte(text))
		return path
	}
	put(t, filepath.Join(dir, "pepper"), []byte(secret("one")))
	const rule = "\nrules: [{name: all, key: 'hmac(secrets.pepper, client.ip)', limits: [1 per 1h]}]\n"
	secrets := "secrets: {pepper: {file: " + filepath.Join(dir, "pepper") + "}}"
	s, err := server.Load(file("server: {headers: [none], "+secrets+"}"+rule), server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if a, b := through(h, "GET", "/"), through(h, "GET", "/"); a.Code != 200 || b.Code != 429 || a.Header().Get("X-RateLimit-Limit") != "" {
		t.Errorf("%d %d %v", a.Code, b.Code, a.Header())
	}
	if _, err := server.Load(file("server: {store: 'redis://:geheim@localhost'}"), server.Config{Limiter: stint.NewLimiter(nil)}); err != nil {
		t.Errorf("with a Limiter: %v", err)
	}
	for text, want := range map[string]string{
		"server: {store: 'redis://:geheim@localhost/x'}": "store",
		"server: {rules: fleet}":                         "a store that the fleet shares",
		"server: {headers: [none]}" + rule:               `stint.yaml:2:32: there is no secret "pepper"`,
		"server: {lisen: x}\nrules: [{}]":                "lisen",
		"server: {secrets: {pepper: {file: /none}}}":     `secret "pepper"`,
	} {
		if s, err := server.Load(file(text), server.Config{}); err == nil || s != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := server.Load(filepath.Join(dir, "none"), server.Config{}); !os.IsNotExist(err) && !strings.Contains(fmt.Sprint(err), "no such file") {
		t.Error(err)
	}
}

// Programs that load one file share its limits through the store that it names, and go on where that is
// away.
func TestLoadOpensTheStore(t *testing.T) {
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "stint.yaml")
	put(t, path, []byte("server: {store: '"+redis.URL()+"', namespace: shop, decision_timeout: 10s}\nrules: [{name: all, key: client.ip, limits: [2 per 1h]}]\n"))
	var all []http.Handler
	for range 2 {
		s, err := server.Load(path, server.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all = append(all, s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	var got []int
	for i := range 4 {
		got = append(got, through(all[i%2], "GET", "/").Code)
	}
	if fmt.Sprint(got) != "[200 200 429 429]" {
		t.Error(got)
	}
	redis.Kill()
	put(t, path, []byte("server: {store: '"+redis.URL()+"'}\nrules: [{name: all, key: client.ip, limits: [2 per 1h]}]\n"))
	s, err := server.Load(path, server.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if a, b, c := through(h, "GET", "/").Code, through(h, "GET", "/").Code, through(h, "GET", "/").Code; a != 200 || b != 200 || c != 429 {
		t.Errorf("without the store: %d %d %d", a, b, c)
	}
}

// Files of those who serve by themselves are followed, too.
func TestFollowReadsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pepper")
	put(t, path, []byte(secret("one")))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newServer(t, peppered, func(c *server.Config) {
			c.Settings.Secrets = []config.Secret{{Name: "pepper", File: path}}
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		s.Follow(t.Context())
		put(t, path, []byte(secret("two")))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := keyOf(t, s); got != peppers(secret("two")) || !strings.Contains(log.String(), "secrets taken") {
			t.Errorf("%s, %s", got, &log)
		}
	})
}

// Wrap writes the headers that the gateway writes.
func TestWrapTellsViolations(t *testing.T) {
	s := newServer(t, `rules: [{name: a, key: '"all"', limits: [1 per 1h], penalty: {ban_after: 9, ban_for: 1h}}]`, func(c *server.Config) { c.Settings.ViolationsHeader = true })
	h := s.Wrap(who("up"))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://example.com/", nil))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "http://example.com/", nil))
	if w.Header().Get("Stint-Violations") == "" {
		t.Errorf("%d without Stint-Violations: %v", w.Code, w.Header())
	}
}
