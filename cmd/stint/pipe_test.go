package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever a rules file is for a moment, a pipe that nobody writes to among it, the
// program answers by the rules of before, says what is wrong, and takes the next file
// that is one.
func TestAttackRulesPipe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	rules := func(amount string) string {
		return "rules: [{name: client, key: client.ip, limits: [" + amount + " per 24h]}]\n"
	}
	if err := os.WriteFile(path, []byte(rules("1000")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, s := process(t, "--config", path, "--check-listen", "127.0.0.1:0", "--admin-listen", "off")
	for i, put := range []func(string) error{
		func(at string) error { return syscall.Mkfifo(at, 0o600) },
		func(at string) error { return os.Symlink(filepath.Join(dir, "none"), at) },
		func(at string) error { return os.Mkdir(at, 0o700) },
	} {
		_ = os.RemoveAll(path)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		until(t, "the log tells of it", 20*time.Second, func() bool { return strings.Count(s.log.String(), "rules not taken") > i })
		if status := checked(t, s, `{"client":"192.0.2.1"}`); status != 200 {
			t.Errorf("%d: status %d", i, status)
		}
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte(rules("100"+string(rune('1'+i)))), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(path)
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		until(t, "it is watched again", 20*time.Second, func() bool { return strings.Count(s.log.String(), `msg="rules taken"`) > i })
	}
}
