package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
)

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const aToken, anotherToken = "0123456789abcdef-a", "0123456789abcdef-b"

func quiet(t *testing.T, settings config.Settings) *Server {
	return New(Config{Settings: settings, Rules: parsed(t, "rules: []"), Log: slog.New(slog.DiscardHandler)})
}

// localCheck is a request of the check API, as from this machine.
func localCheck(body string) *http.Request {
	r := httptest.NewRequest("POST", "http://localhost/v1/check", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// It is where a connection comes in that tells whether it is from this machine, not
// the settings alone.
func TestLocalIsByConnection(t *testing.T) {
	s := quiet(t, config.Default())
	for ip, want := range map[string]bool{"127.0.0.1": true, "127.1.1.1": true, "::1": true, "192.0.2.1": false, "::": false, "2001:db8::1": false} {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		addr := &net.TCPAddr{IP: net.ParseIP(ip), Port: 8090}
		p, err := s.admin.callers.Authenticate(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr)), auth.Bearer)
		if (err == nil) != want || want && p != (auth.Caller{Name: "local", Scope: config.WriteScope, By: auth.ByLocal}) || !want && p != (auth.Caller{}) {
			t.Errorf("%s: %v %v", ip, p, err)
		}
	}
}

// The files of certificates and tokens are looked at every 5 seconds, and found
// changed also where Kubernetes has swapped a link above them.
func TestFilesAreWatched(t *testing.T) {
	dir := t.TempDir()
	copyTo := func(version, name, from string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, version, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for version, token := range map[string]string{"1": aToken, "2": anotherToken} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		_, cert, key := redistest.Certificate(t)
		copyTo(version, "cert", cert)
		copyTo(version, "key", key)
		copyTo(version, "token", tokenFile(t, token))
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("1", "..data")
	for _, name := range []string{"cert", "key", "token"} {
		link("..data/"+name, name)
	}
	settings := config.Default()
	settings.Admin.Tokens = []config.Token{{Name: "a", Scope: config.ReadScope, File: filepath.Join(dir, "token")}}
	settings.TLS = &config.TLSFiles{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	synctest.Test(t, func(t *testing.T) {
		s := quiet(t, settings)
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, Listeners{}) }()
		before := s.files.certificates.all[0].now.Load()
		is := func(after time.Duration, token string, changed bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			_, err := s.admin.callers.Authenticate(r, auth.Bearer)
			if ok := err == nil; !ok || (s.files.certificates.all[0].now.Load() != before) != changed {
				t.Errorf("want token %s, %v; certificate changed: %v", token, ok, s.files.certificates.all[0].now.Load() != before)
			}
		}
		is(time.Minute, aToken, false) // nothing has changed, so nothing was taken
		link("2", "..data_tmp")
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		is(lookEvery-time.Second, aToken, false)
		is(time.Second, anotherToken, true)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// errorCount is a log that counts errors.
type errorCount struct{ atomic.Int64 }

func (*errorCount) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (c *errorCount) Handle(context.Context, slog.Record) error  { c.Add(1); return nil }
func (c *errorCount) WithAttrs([]slog.Attr) slog.Handler         { return c }
func (c *errorCount) WithGroup(string) slog.Handler              { return c }

// What is wrong with a file is told once, not at every look.
func TestBadFilesAreLoggedOnce(t *testing.T) {
	path := tokenFile(t, aToken)
	settings := config.Default()
	settings.Admin.Tokens = []config.Token{{Name: "a", Scope: config.ReadScope, File: path}}
	synctest.Test(t, func(t *testing.T) {
		var errors errorCount
		s := New(Config{Settings: settings, Rules: parsed(t, "rules: []"), Log: slog.New(&errors)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, Listeners{}) }()
		told := func(want int64) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := errors.Load(); got != want {
				t.Errorf("told %d times, want %d", got, want)
			}
		}
		told(0)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		told(1)
		for i, text := range []string{"", "short", aToken} { // no file is something else than an empty one
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			told(int64(min(i+2, 3)))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
