package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stintdev/stint/server/rules"
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

// configured is the path of a new configuration file.
func configured(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stint.yaml")
	put(t, path, text)
	return path
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
// counted; wrong ones are told, and the previous ones stay.
func TestServeReloads(t *testing.T) {
	path := configured(t, limited(2, ""))
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

	put(t, path, limited(-1, ""))
	s.says(t, "rules not taken", "amount -1", "stint.yaml:2:")
	expect("429 0")

	put(t, path, limited(4, ", mode: shadow"))
	s.says(t, "rules taken")
	expect("200 ")

	put(t, path, "enabled: false\n"+limited(4, ""))
	s.says(t, "rules taken")
	expect("200 ")

	if err := os.WriteFile(path, []byte("server: {max_delay: 3s}\n"+limited(5, "")), 0o600); err != nil {
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
	many := filepath.Join(dir, "many.yaml")
	text := "rules:\n"
	for i := range 12 {
		text += fmt.Sprintf("- {name: a%d, match: operation == \"o%[1]d\", key: client.ip, limits: [1 per 1s]}\n- {name: b%[1]d, match: request.path.endsWith(\"%[1]d\"), key: client.ip, limits: [1 per 1s]}\n", i)
	}
	put(t, many, text)
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"check", good}, 0, "good.yaml: 1 rule, version ", ""},
		{[]string{"check", many}, 0, "many.yaml: each request evaluates 12 rules, because the match does not begin with a comparison of a field with a constant: b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, …\n", ""},
		{[]string{"check", good, bad}, 1, "good.yaml: 1 rule", "bad.yaml:1:"},
		{[]string{"check", filepath.Join(dir, "none.yaml")}, 1, "", "no such file"},
		{[]string{"check"}, 2, "", "stint rules check FILE"},
		{[]string{"check", "--fast", good}, 2, "", "rules check: unknown flag: --fast"},
		{[]string{"--help"}, 0, "stint rules COMMAND", ""},
		{[]string{"check", "--help"}, 0, "stint rules check [--strict] [--envoy DIR] [FILE...]", ""},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"rules"}, c.args...), nil, &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}

// A directory of rules is served, checked and simulated as one, and what comes into
// it is taken over.
func TestServeDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	put(t, a, "server: {headers: [x-ratelimit]}\n"+limited(2, ""))
	s := serving(t, "--config", dir, "--upstream", hello(t))
	if got := get(t, "GET", s.gateway); got != "200 1" {
		t.Error(got)
	}
	put(t, b, "rules: [{name: copy, key: client.ip, limits: [1 per 1h sliding_log]}]")
	s.says(t, "rules taken", "count=2")
	s.says(t, "level=WARN", "code=ST004", "where="+b+":1:")
	if got := get(t, "GET", s.gateway); got != "200 0" {
		t.Error(got)
	}
	put(t, b, "\nrules: [{name: client, key: client.ip, limits: [1 per 1h]}]")
	s.says(t, "rules not taken", "b.yaml:2:16: ", "a.yaml:3 has it already")
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	s.says(t, "rules taken", "count=1")
	put(t, filepath.Join(dir, "c.yml"), "server: {listen: \":1\"}\nrules: []")
	s.says(t, "rules not taken", "server is given twice", "a.yaml:1")
}

// Findings are logged at the start, and again only when there are others.
func TestServeFindings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stint.yaml")
	const never = ", match: \"request.path == 'x'\""
	put(t, path, limited(2, never))
	s := serving(t, "--config", path)
	if strings.Count(s.log.String(), "code=ST006") != 1 {
		t.Errorf("log:\n%s", s.log)
	}
	put(t, path, "\n"+limited(3, never))
	s.says(t, "rules taken")
	put(t, path, "trusted_proxies: [0.0.0.0/0]\n"+limited(4, never))
	s.says(t, "rules taken")
	s.says(t, "code=ST002")
	if strings.Count(s.log.String(), "code=ST006") != 1 {
		t.Errorf("it was told again:\n%s", s.log)
	}
}

func TestRulesCheckFindings(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), limited(2, ", cost: 3"))
	put(t, filepath.Join(dir, "b.yml"), "blocklist: ['false']")
	good := filepath.Join(t.TempDir(), "good.yaml")
	put(t, good, limited(2, ""))
	claims := filepath.Join(t.TempDir(), "claims.yaml")
	put(t, claims, "server: {listen: \":8080\"}\nrules:\n  - {name: a, match: claims.sub == \"x\", limits: [1 per 1s]}\n")
	warnings := dir + "/a.yaml:2:" // and what follows
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"check", dir}, 0, warnings, ""},
		{[]string{"check", "--strict", dir}, 1, warnings, "stint: rules: 2 warnings, and --strict takes none"},
		{[]string{"check", "--strict", good}, 0, good + ": 1 rule, version ", ""},
		{[]string{"check", "--strict", claims}, 1, claims + ": warning ST013: ", "--strict takes none"},
		{[]string{"check", "--strict"}, 2, "", "stint rules check FILE"},
		{[]string{"check", t.TempDir()}, 1, "", "no file in it ends in .yaml or .yml"},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"rules"}, c.args...), nil, &out, &errs)
		if code != c.code || !strings.HasPrefix(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) || c.errs == "" && errs.Len() > 0 {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out.String(), errs.String())
		}
		if c.out == warnings && (strings.Count(out.String(), ": warning ST00") != 2 || !strings.Contains(out.String(), dir+": 1 rule, version ")) {
			t.Errorf("%v: %s", c.args, &out)
		}
	}
	var out, errs strings.Builder
	code := run(t.Context(), []string{"simulate", "--rules", dir}, strings.NewReader(`{"t_us":0,"client":"192.0.2.1"}`), &out, &errs)
	if code != 0 || !strings.Contains(out.String(), `"outcome":"limited","rule":"client"`) {
		t.Errorf("simulate: exit %d, %s%s", code, &out, &errs)
	}
}

func TestWithoutServer(t *testing.T) {
	const some = "rules:\n  - {name: a, key: client.ip, limits: [1 per 1m]}\n"
	for text, want := range map[string]string{
		some:                                some,
		"server:\n  listen: :1\n" + some:    "\n\n" + some,
		"server: {listen: \":1\"}\n" + some: "\n" + some,
		"server:\n  listen: :1\n\n# ours\n" + some:            "\n\n\n# ours\n" + some,
		some + "server:\n  # secret\n  store: redis://:x@h\n": some + "\n\n\n",
		some + "server:\n  store: redis://:x@h":               some + "\n\n",
		"\"server\":\n  listen: :1\n" + some:                  "\n\n" + some,
		"# server:\n" + some:                                  "# server:\n" + some,
		"tiers: {server: cost > 1}\n" + some:                  "tiers: {server: cost > 1}\n" + some,
		"{server: {listen: \":1\"}, rules: []}":               "{server: {listen: \":1\"}, rules: []}",
		"server: [\n":                                         "server: [\n",
	} {
		got, had := withoutServer(text)
		if strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") || had != (got != text) {
			t.Errorf("%q: %q, %t, want %q", text, got, had, want)
		}
		if !had {
			continue
		}
		if strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q: lines have moved: %q", text, got)
		}
		if set, err := rules.Parse("x", []byte(got)); err != nil || set.HasServer || len(set.Rules) != 1 {
			t.Errorf("%q: %v", got, err)
		}
	}
}
