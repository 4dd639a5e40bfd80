package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
)

// A page is run as a reader would follow it, in one shell, in an empty folder:
//
//   - a block of sh is run by bash, whole. Each command must succeed.
//   - a block of text after it is what that block prints. "…" stands for what varies: within a line for
//     anything, on a line of its own for any lines.
//   - a block of another language is written to the file that the text above names last, as in
//     "Write `stint.yaml`:". Without a name it is not written.
//   - a block with the word no-run is not run.
//
// "go get" of this module gets the source that is tested. The shell has a network and processes of its
// own: a page names its ports as it likes, and all that it starts ends with it.

// noRun is the word of blocks that no test runs.
const noRun = "no-run"

// pageTimeout is after how long a page that hangs fails.
const pageTimeout = 5 * time.Minute

var (
	namedFile = regexp.MustCompile("`([^`\n]+)`:\\s*$")
	goGet     = regexp.MustCompile(`(?m)^go get (github\.com/stintdev/stint(/\w+)?)\b.*$`)
)

// programsOfPages are those that pages may start, the variables that require them, and their packages.
var programsOfPages = []struct{ name, required, pkg string }{
	{"bash", redistest.Required, "bash"},
	{"unshare", redistest.Required, "util-linux"},
	{"ip", redistest.Required, "iproute2"},
	{"curl", redistest.Required, "curl"},
	{"redis-server", redistest.Required, "redis-server"},
	{"python3", redistest.Required, "python3"},
	{"nginx", "STINT_REQUIRE_PROXIES", "nginx"},
}

// pageStep is one block of a page that is run.
type pageStep struct {
	line     int    // of the page
	commands string // of bash; "": the block is written to file
	file     string
	body     string
	prints   *string // what the commands print; nil: anything
}

func stepsOf(t *testing.T, path, text string) (steps []pageStep) {
	t.Helper()
	for _, b := range codeBlocks(text) {
		step := pageStep{line: b.line, body: b.body}
		file := namedFile.FindStringSubmatch(b.above)
		switch {
		case len(b.info) == 0:
			t.Fatalf("%s:%d: a block without a language", path, step.line)
		case len(b.info) > 1 && b.info[1] == noRun:
			continue
		case b.info[0] == "sh":
			step.commands = goGet.ReplaceAllStringFunc(b.body, localGet)
		case b.info[0] == "text":
			if len(steps) == 0 || steps[len(steps)-1].commands == "" || steps[len(steps)-1].prints != nil {
				t.Fatalf("%s:%d: a block of text that follows no commands", path, step.line)
			}
			steps[len(steps)-1].prints = &b.body
			continue
		case file == nil:
			continue
		default:
			step.file = file[1]
		}
		steps = append(steps, step)
	}
	return steps
}

// localGet is a "go get" of one of this repository's modules, from its folders.
func localGet(command string) string {
	m := goGet.FindStringSubmatch(command)
	modules := []string{""}
	if m[2] != "" {
		modules = append(modules, m[2])
	}
	edit, sums := "go mod edit", ""
	for _, sub := range modules {
		edit += fmt.Sprintf(` -require=github.com/stintdev/stint%s@v0.0.0 -replace=github.com/stintdev/stint%[1]s="$STINT_SOURCE"%[1]s`, sub)
		sums += fmt.Sprintf(` "$STINT_SOURCE"%s/go.sum`, sub)
	}
	return edit + "\ncat" + sums + " >> go.sum"
}

// runPage runs the page at path.
func runPage(t *testing.T, path string) {
	t.Helper()
	runText(t, path, readText(t, path))
}

func runText(t *testing.T, path, text string) {
	t.Helper()
	steps := stepsOf(t, path, text)
	if len(steps) == 0 {
		t.Fatalf("%s: no block is run", path)
	}
	requirePrograms(t, text)

	dir := t.TempDir()
	at := func(name string, i int) string { return filepath.Join(dir, fmt.Sprint(name, i)) }
	for _, sub := range []string{"bin", "page"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var script strings.Builder
	script.WriteString("ip link set lo up\nset -eE\ntrap 'echo \"exit $?: $BASH_COMMAND\"' ERR\n")
	for i, s := range steps {
		fmt.Fprintf(&script, "exec > %s 2>&1\n", at("printed", i))
		if s.commands != "" {
			script.WriteString(s.commands)
			continue
		}
		put(t, at("file", i), s.body)
		fmt.Fprintf(&script, "mkdir -p \"$(dirname '%s')\"\ncp %s '%[1]s'\n", s.file, at("file", i))
	}
	put(t, filepath.Join(dir, "script"), script.String())

	err := inNamespaces(t, dir).Run()
	transcript := func() string {
		var all strings.Builder
		for i, s := range steps {
			if printed, err := os.ReadFile(at("printed", i)); err == nil && s.commands != "" {
				fmt.Fprintf(&all, "%s:%d:\n%s-- prints:\n%s\n", path, s.line, s.commands, printed)
			}
		}
		logs, _ := filepath.Glob(filepath.Join(dir, "page", "*.log"))
		for _, name := range logs {
			text := readText(t, name)
			fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(name), text[max(0, len(text)-10_000):])
		}
		return all.String()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, transcript())
	}
	for i, s := range steps {
		if s.prints == nil {
			continue
		}
		if printed := readText(t, at("printed", i)); !fits(*s.prints, printed) {
			t.Errorf("%s:%d prints:\n%s\nThe page says:\n%s\nAll of it:\n%s", path, s.line, printed, *s.prints, transcript())
		}
	}
}

// inNamespaces is the shell that runs the script in dir.
func inNamespaces(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	self := program(t)
	put(t, filepath.Join(dir, "bin", "stint"), fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asStint, self.Path))
	if err := os.Chmod(filepath.Join(dir, "bin", "stint"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", filepath.Join(dir, "script"))
	c.Dir = filepath.Join(dir, "page")
	// The modules that the source needs are in the cache, as it is compiled.
	c.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "STINT_SOURCE="+source,
		"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off")
	return c
}

// requirePrograms skips the test if a program that the page names is missing, or the right to make
// namespaces.
func requirePrograms(t *testing.T, text string) {
	t.Helper()
	for i, p := range programsOfPages {
		if i > 2 && !strings.Contains(text, p.name) {
			continue
		}
		if _, err := exec.LookPath(p.name); err == nil {
			continue
		}
		if os.Getenv(p.required) != "" {
			t.Fatalf("%s is set, but there is no %s: install %s", p.required, p.name, p.pkg)
		}
		redistest.Skip(t, p.name, "install "+p.pkg)
	}
	if out, err := exec.Command("unshare", "--net", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("no right to make namespaces: run the tests as root (%v: %s)", err, strings.TrimSpace(string(out)))
	}
}

// fits tells whether text is what a page says, in which "…" stands for what varies.
func fits(says, text string) bool {
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for line := range strings.Lines(says) {
		line = strings.TrimRight(line, " \n")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `[ \r]*\n`)
	}
	pattern.WriteString(`\z`)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return regexp.MustCompile(pattern.String()).MatchString(text)
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		says, text string
		want       bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "a", true},
		{"a\n", "a\r\n", true},
		{"a\n", "b\n", false},
		{"a\n", "a\nb\n", false},
		{"a\n…\n", "a\nb\nc\n", true},
		{"a\n…\nc\n", "a\nc\n", true},
		{"a\n…\nc\n", "a\nb\n", false},
		{"a: …, b.\n", "a: 12, b.\n", true},
		{"a: …, b.\n", "a: 12, bc\n", false},
		{"a: …\nb\n", "a: 1\n2\nb\n", false},
	} {
		if got := fits(c.says, c.text); got != c.want {
			t.Errorf("%q fits %q: %v", c.says, c.text, got)
		}
	}
}
