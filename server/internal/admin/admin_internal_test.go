package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/inflight"
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

// Who may only look changes nothing, and what is allowed is told who it is.
func TestScopes(t *testing.T) {
	settings := config.Default()
	settings.Admin.Tokens = []config.Token{{Name: "reader", Scope: config.ReadScope, File: tokenFile(t, aToken)}, {Name: "writer", Scope: config.WriteScope, File: tokenFile(t, anotherToken)}}
	callers := auth.ForAdmin(&settings.Admin, nil)
	if err := callers.ReadTokens(); err != nil {
		t.Fatal(err)
	}
	a := &API{Callers: callers, Bytes: inflight.NewUndivided(config.AdminBytes), Refused: func(*auth.Authenticator, *http.Request, auth.Caller, error) {}}
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
