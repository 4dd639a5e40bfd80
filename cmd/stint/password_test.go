package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// A Redis whose password changes while stint serve runs, by the settings of a file, is
// used again once the new one is in its file; meanwhile decisions go on. No password is
// told.
func TestServePasswordFile(t *testing.T) {
	redis := redistest.Start(t, "--requirepass", "geheim-1")
	admin, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis.Addr}, Password: "geheim-1", ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	do := func(args ...string) {
		t.Helper()
		if err := admin.Do(t.Context(), admin.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password := write("password", "geheim-1\n")
	s := serving(t, "--config", write("stint.yaml", "server: {store: 'redis://"+redis.Addr+"?timeout=500ms&password_file="+password+"'}\n"+
		"rules: [{name: a, key: client.ip, limits: [3 per 1h]}]\n"))
	status := func() string {
		_, out, _ := call("", "status", "--admin", s.admin)
		return out
	}
	answers := func() bool { return !strings.Contains(status(), "DOES NOT ANSWER") }
	if !answers() {
		t.Fatal(status())
	}
	do("CONFIG", "SET", "requirepass", "geheim-2")
	do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	await.Until(t, "status says that the password is wrong", func() bool { return strings.Contains(status(), "does not accept this user and password") })
	for i, want := range []int{200, 200, 200, 429} {
		if code := checked(t, s, `{"client":"192.0.2.1"}`); code != want {
			t.Errorf("check %d: %d, want %d", i, code, want)
		}
	}
	wrong := status()
	write("password", "geheim-2\n")
	await.Until(t, "the store answers again", answers)
	if text := s.log.String() + wrong + status(); strings.Contains(text, "geheim") {
		t.Errorf("a password is told:\n%s", text)
	}
	if line := wrong[strings.Index(wrong, "store "):]; strings.Count(line[:strings.Index(line, "\n")], "password") != 1 {
		t.Errorf("said twice: %s", line)
	}
}
