package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func limited(amount int, rest string) string {
	return fmt.Sprintf("rules:\n  - {name: client, key: client.ip, limits: [%d per 1h sliding_log]%s}\n", amount, rest)
}

// put replaces a file as a careful editor does.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// says waits for a line of the log that contains all of some words.
func (s *served) says(t *testing.T, words ...string) {
	t.Helper()
next:
	for line := range s.log.lines {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		return
	}
	t.Fatalf("it never said %q:\n%s", words, s.log)
}

// While it runs, new rules are taken as soon as the file holds them, with what was
// counted; wrong ones are told, and those of before stay.
func TestServeReloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	put(t, path, limited(2, ""))
	s := serving(t, "--config", path, "--upstream", hello(t))
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if got := get(t, "GET", s.gateway); got != w {
				t.Errorf("%s, want %s", got, w)
			}
		}
	}
	expect("200 1", "200 0", "429 0")

	put(t, path, limited(4, ""))
	s.says(t, "rules taken", "count=1")
	expect("200 1", "200 0", "429 0")

	put(t, path, limited(0, ""))
	s.says(t, "rules not taken", "amount 0", "stint.yaml:2:")
	expect("429 0")

	put(t, path, limited(4, ", mode: shadow"))
	s.says(t, "rules taken")
	expect("200 ")

	put(t, path, "enabled: false\n"+limited(4, ""))
	s.says(t, "rules taken")
	expect("200 ")

	if err := os.WriteFile(path, []byte("server: {listen: \":1\"}\n"+limited(5, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.says(t, "takes a restart")
	expect("200 0", "429 0")
}

func TestRulesCheck(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	put(t, good, limited(2, ""))
	put(t, bad, "server: {listen: 5}\n"+limited(2, ""))
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"check", good}, 0, "good.yaml: 1 rules, version ", ""},
		{[]string{"check", good, bad}, 1, "good.yaml: 1 rules", "bad.yaml:1:"},
		{[]string{"check", filepath.Join(dir, "none.yaml")}, 1, "", "no such file"},
		{[]string{"check"}, 2, "", "stint rules check FILE"},
		{nil, 2, "", "stint rules check FILE"},
		{[]string{"push", good}, 2, "", "stint rules check FILE"},
		{[]string{"--help"}, 0, "stint rules check FILE...", ""},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"rules"}, c.args...), nil, &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}
