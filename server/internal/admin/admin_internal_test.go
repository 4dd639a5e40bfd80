package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/rules"
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

// readerAndWriter returns an API with two tokens.
func readerAndWriter(t *testing.T) *API {
	t.Helper()
	settings := config.Default()
	settings.Admin.Tokens = []config.Token{{Name: "reader", Scope: config.ReadScope, File: tokenFile(t, aToken)}, {Name: "writer", Scope: config.WriteScope, File: tokenFile(t, anotherToken)}}
	callers := auth.ForAdmin(&settings.Admin, nil)
	if err := callers.ReadTokens(); err != nil {
		t.Fatal(err)
	}
	return &API{Callers: callers, Bytes: inflight.NewUndivided(config.AdminBytes), Refused: func(*auth.Authenticator, *http.Request, auth.Caller, error) {}}
}

// Who may only look changes nothing, and what is allowed is told who it is.
func TestScopes(t *testing.T) {
	a := readerAndWriter(t)
	for _, c := range []struct {
		need  config.Scope
		token string
		want  string
	}{
		{config.ReadScope, aToken, "200 reader read"},
		{config.ReadScope, anotherToken, "200 writer write"},
		{config.WriteScope, aToken, "403 "},
		{config.WriteScope, anotherToken, "200 writer write"},
		{config.ReadScope, "x", "401 "},
		{config.WriteScope, "x", "401 "},
	} {
		was := ""
		h := a.endpoint(endpoint{c.need, func(c *call) (int, any, error) {
			was = fmt.Sprint(c.who.Name, " ", c.who.Scope)
			return http.StatusOK, nil, nil
		}})
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Authorization", "Bearer "+c.token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", was); got != c.want {
			t.Errorf("%s for %s: %s, want %s", c.token, c.need, got, c.want)
		}
		if challenged := w.Header().Get("WWW-Authenticate") != ""; challenged != (w.Code == 401) {
			t.Errorf("%d: WWW-Authenticate %v", w.Code, challenged)
		}
	}
}

// A holder of a read token who makes a hundred large calls at once has few of them under way, and
// neither previews nor large calls of it hold up those of a write token.
func TestAttackLargeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := readerAndWriter(t)
		none, err := rules.Parse("rules.yaml", []byte("rules: []"))
		if err != nil {
			t.Fatal(err)
		}
		a.Control = control.New(control.Options{
			File: none, Instance: new(rules.Instance), Log: slog.New(slog.DiscardHandler),
			Hooks: control.Hooks{Installed: func(*rules.Set) {}},
		})
		var under, most atomic.Int64
		wait := func() {
			if n := under.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(3 * time.Second)
			under.Add(-1)
		}
		a.OffenderHistory = func(context.Context, HistoryQuery) (*adminapi.History, error) {
			wait()
			return &adminapi.History{}, nil
		}
		a.Preview = func(context.Context, *rules.Set, string) (*adminapi.Preview, error) {
			wait()
			return &adminapi.Preview{}, nil
		}
		h := a.Handler()
		call := func(token, method, path, body string) int {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		for _, c := range []struct {
			method, path, body string
			most               int64
		}{
			{"GET", "/v1/offenders/history?of=paths&name=x", "", maxLarge},
			{"POST", "/v1/rules/preview", `{"text":"rules: []"}`, 1},
		} {
			most.Store(0)
			var all sync.WaitGroup
			var refused atomic.Int64
			for range 100 {
				all.Go(func() {
					if call(aToken, c.method, c.path, c.body) == 503 {
						refused.Add(1)
					}
				})
			}
			synctest.Wait()
			if got := most.Load(); got != c.most {
				t.Errorf("%s: %d under way, want %d", c.path, got, c.most)
			}
			began := time.Now()
			if code := call(anotherToken, c.method, c.path, c.body); code != 200 || time.Since(began) != 3*time.Second {
				t.Errorf("%s: another caller gets %d after %v", c.path, code, time.Since(began))
			}
			all.Wait()
			if refused.Load() < 100-5*c.most {
				t.Errorf("%s: %d calls of 100 were refused", c.path, refused.Load())
			}
		}
	})
}
