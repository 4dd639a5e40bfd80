package server_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

const peppered = `rules: [{name: user, key: 'hmac(secrets.pepper, attrs.user)', limits: [5 per 1m]}]`

// keyOf is the key that a check of ann is counted by, as explained.
func keyOf(t *testing.T, s *server.Server) string {
	t.Helper()
	x, err := s.Explain(t.Context(), &rules.Input{Attrs: map[string]any{"user": "ann"}, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	return string(x.Rules[0].Key)
}

func peppers(pepper string) string {
	m := hmac.New(sha256.New, []byte(pepper))
	m.Write([]byte("ann"))
	return hex.EncodeToString(m.Sum(nil))
}

// Secrets are read from files, and again when they change; one that is wrong leaves the
// old one, and none is ever told.
func TestSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pepper")
	put(t, path, []byte(secret("one")+"\r\n"))
	var log bytes.Buffer
	s := newServer(t, peppered, func(c *server.Config) {
		c.Settings.Secrets = []config.Secret{{Name: "pepper", File: path}}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if w := check(s, `{"attrs":{"user":"ann"}}`); w.Code != 400 {
		t.Errorf("before Open: %d %s", w.Code, w.Body)
	}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	if got, want := keyOf(t, s), peppers(secret("one")); got != want {
		t.Errorf("key %s, want %s", got, want)
	}
	for _, step := range []struct{ text, want string }{{"geheim", "one"}, {secret("two"), "two"}} {
		put(t, path, []byte(step.text))
		s.ReloadFiles()
		if got, want := keyOf(t, s), peppers(secret(step.want)); got != want {
			t.Errorf("after %s: key %s, want %s", step.text, got, want)
		}
	}
	if text := log.String(); strings.Contains(text, "geheim") || !strings.Contains(text, "too short") {
		t.Error(text)
	}
}

// A Server whose rules name a secret that it does not have does not start, and takes no
// such rules later.
func TestUnknownSecrets(t *testing.T) {
	if err := newServer(t, peppered).Open(); err == nil || !strings.Contains(err.Error(), `rules.yaml:1:33: there is no secret "pepper"`) {
		t.Errorf("Open: %v", err)
	}
	missing := newServer(t, peppered, func(c *server.Config) {
		c.Settings.Secrets = []config.Secret{{Name: "pepper", File: filepath.Join(t.TempDir(), "none")}}
	})
	if err := missing.Open(); err == nil || !strings.Contains(err.Error(), `secret "pepper"`) {
		t.Errorf("without its file: %v", err)
	}
	s := newServer(t, "rules: []")
	set, err := rules.Parse("rules.yaml", []byte(peppered))
	if err != nil {
		t.Fatal(err)
	}
	if taken, err := s.SetRules(set); taken || err == nil || len(s.Rules().Rules) != 0 {
		t.Errorf("SetRules: %t, %v", taken, err)
	}
}

// A fleet's rules that need a secret are pushed only where it is known, and an instance
// that does not have it says so and keeps what it has.
func TestUnknownSecretsOfAFleet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pepper")
	put(t, path, []byte(secret("one")))
	synctest.Test(t, func(t *testing.T) {
		const old = "rules: [{name: old, key: client.ip, limits: [5 per 1m]}]"
		f := newFleet(t)
		var log bytes.Buffer
		knows, one := f.join(old, func(c *server.Config) {
			c.Settings.Secrets = []config.Secret{{Name: "pepper", File: path}}
		})
		lacks, two := f.join(old, func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		if err := one.Open(); err != nil {
			t.Fatal(err)
		}
		lacks.want(422, "PUT", "/v1/rules", push(peppered, 0), `there is no secret`, `"where":"1:33"`)
		lacks.want(422, "POST", "/v1/rules/check", `{"text":`+strconv.Quote(peppered)+`}`, `there is no secret`)
		knows.want(200, "PUT", "/v1/rules", push(peppered, 0))
		synctest.Wait()
		if got, want := keyOf(t, one), peppers(secret("one")); got != want {
			t.Errorf("key %s, want %s", got, want)
		}
		if got := two.Rules().Rules[0].Name; got != "old" || !strings.Contains(log.String(), "the fleet's rules were not taken") {
			t.Errorf("the other decides by %q and says %s", got, &log)
		}
		lacks.want(200, "GET", "/v1/status", "", "there is no secret")
	})
}
