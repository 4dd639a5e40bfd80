package auth_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
)

// secretOf is a token of a test.
func secretOf(name string) string { return "geheim-" + name + "-0123456789abcdef" }

// inFile puts a token into a file of the test's.
func inFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokens(t *testing.T) {
	t.Setenv("STINT_TEST_TOKEN", secretOf("grafana"))
	tokens, err := auth.OpenTokens([]config.Token{
		{Name: "ops", Scope: config.WriteScope, File: inFile(t, secretOf("ops")+"\r\n")},
		{Name: "grafana", Scope: config.ReadScope, Env: "STINT_TEST_TOKEN"},
		{Name: "shortest", Scope: config.ReadScope, File: inFile(t, "0123456789abcdef\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for presented, want := range map[string]string{
		secretOf("ops"):                       "ops write true",
		secretOf("grafana"):                   "grafana read true",
		"0123456789abcdef":                    "shortest read true",
		"":                                    "",
		secretOf("ops") + "\n":                "",
		secretOf("op"):                        "",
		secretOf("ops")[1:]:                   "",
		strings.ToUpper(secretOf("ops")):      "",
		strings.Repeat("0", 1<<20):            "",
		"\x00" + secretOf("ops"):              "",
		secretOf("ops") + secretOf("grafana"): "",
	} {
		caller, ok := tokens.Find(presented)
		if got := fmt.Sprint(caller.Name, " ", caller.Scope, " ", ok); got != want && !(want == "" && !ok && caller == auth.Caller{}) {
			t.Errorf("%.40q: %s, want %s", presented, got, want)
		}
	}
	if _, ok := (*auth.Tokens)(nil).Find(secretOf("ops")); ok {
		t.Error("no tokens know one")
	}
}

// Errors name the token, never what it is.
func TestTokensRefused(t *testing.T) {
	t.Setenv("STINT_TEST_TOKEN", secretOf("env"))
	t.Setenv("STINT_TEST_EMPTY", "")
	for _, c := range []struct {
		token config.Token
		want  string
	}{
		{config.Token{File: inFile(t, "geheim-15-bytes\n")}, `token "a": too short: want at least 16 bytes`},
		{config.Token{File: inFile(t, "")}, `token "a": too short`},
		{config.Token{File: inFile(t, secretOf("a")+" "+secretOf("b"))}, `token "a": a token is one line`},
		{config.Token{File: inFile(t, secretOf("a")+"\n"+secretOf("b"))}, `token "a": a token is one line`},
		{config.Token{File: inFile(t, secretOf("ä"))}, `token "a": a token is one line`},
		{config.Token{File: filepath.Join(t.TempDir(), "none")}, "no such file"},
		{config.Token{File: t.TempDir()}, `token "a": read `},
		{config.Token{Env: "STINT_TEST_EMPTY"}, `token "a": the environment variable named in env`},
		{config.Token{Env: secretOf("written in its place")}, `token "a": the environment variable named in env`},
		{config.Token{File: inFile(t, secretOf("env")+"\n")}, `tokens "z" and "a" are the same`},
	} {
		c.token.Name, c.token.Scope = "a", config.ReadScope
		_, err := auth.OpenTokens([]config.Token{{Name: "z", Scope: config.ReadScope, Env: "STINT_TEST_TOKEN"}, c.token})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
