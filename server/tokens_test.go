package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
)

// secret is a token of a test.
func secret(of string) string { return "geheim-" + of + "-0123456789abcdef" }

// inFile puts a token into a file of the test's.
func inFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	put(t, path, []byte(text))
	return path
}

// However tokens, or a server that has them, are printed, neither their texts nor
// their digests are.
func TestTokensAreNotPrinted(t *testing.T) {
	text := secret("ops")
	list := []config.Token{{Name: "ops", Scope: config.WriteScope, File: inFile(t, text)}}
	tokens, err := auth.OpenTokens(list)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, generous, func(c *server.Config) { c.Settings.Admin.Tokens = list })
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	type holder struct {
		Tokens *auth.Tokens
		Server *server.Server
	}
	for _, x := range []any{tokens, holder{Tokens: tokens, Server: s}, []any{tokens}, map[string]any{"a": tokens}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&b, verb+"\n", x)
		}
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "tokens", x)
		slog.New(slog.NewTextHandler(&b, nil)).Info("x", "tokens", x)
	}
	js, err := json.Marshal([]any{tokens})
	if err != nil {
		t.Fatal(err)
	}
	b.Write(js)
	fmt.Fprintf(&b, "%v %+v %#v", s, s, s)
	if got := b.String(); !strings.Contains(got, "tokens of ops") {
		t.Errorf("nothing was printed: %s", got)
	}
	expectHidden(t, b.String(), text)
}

// Whoever has been told of a new token may use it, and of an old one no more; while
// the file is wrong, the old one stays.
func TestTokenRotation(t *testing.T) {
	path, other := inFile(t, secret("one")), inFile(t, secret("other"))
	log := new(logged)
	s := newServer(t, generous, logTo(log), func(c *server.Config) {
		c.Settings.Admin.Tokens = []config.Token{{Name: "ops", Scope: config.ReadScope, File: path}, {Name: "other", Scope: config.ReadScope, File: other}}
	})
	g := start(t, s)
	expect := func(when string, want map[string]int) {
		t.Helper()
		for of, status := range want {
			if got := send(t, g.admin, "GET", "/v1/status", "Authorization: Bearer "+secret(of)); got.StatusCode != status {
				t.Errorf("%s: %s: %s, want %d", when, of, got.Status, status)
			}
		}
	}
	old := map[string]int{"one": 200, "two": 401, "other": 200}
	expect("at first", old)
	for _, bad := range []string{"", "geheim-short", secret("a") + "\n" + secret("b"), secret("other")} {
		put(t, path, []byte(bad))
		log.taken()
		s.ReloadFiles()
		if said := log.taken(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "ops") || strings.Contains(said, "geheim") {
			t.Errorf("%q: it says %s", bad, said)
		}
		expect("with a file that is wrong", old)
	}
	put(t, other, []byte(secret("next"))) // so that the file that had the same is right
	s.ReloadFiles()
	expect("moved on", map[string]int{"one": 401, "other": 200, "next": 200})
	put(t, path, []byte(secret("two")+"\n"))
	s.ReloadFiles()
	expect("rotated", map[string]int{"one": 401, "two": 200, "other": 401, "next": 200})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	log.taken()
	s.ReloadFiles()
	if said := log.taken(); !strings.Contains(said, "no such file") {
		t.Errorf("without the file: it says %s", said)
	}
	expect("without the file", map[string]int{"two": 200})
}

// Without a token that can be read it does not start.
func TestNoTokenAtStart(t *testing.T) {
	s := newServer(t, generous, func(c *server.Config) {
		c.Settings.Admin.Tokens = []config.Token{{Name: "ops", Scope: config.ReadScope, File: "nowhere"}}
	})
	admin := listen(t)
	if err := s.Run(t.Context(), server.Listeners{Admin: admin}); err == nil || !strings.HasPrefix(err.Error(), `admin: token "ops": open nowhere`) {
		t.Error(err)
	}
	if !refuses(admin.Addr().String()) {
		t.Error("it listens")
	}
}
