package main

import (
	"regexp"
	"strings"
	"testing"
)

// The README is one screen to read, and its commands work where they stand, from top to bottom. The short
// form runs the program that make run would build; make test is what runs this.
func TestReadme(t *testing.T) {
	const path = "../../README.md"
	text := readText(t, path)
	words := 0
	for _, word := range strings.Fields(regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(text, "]")) {
		if regexp.MustCompile(`\w`).MatchString(word) {
			words++
		}
	}
	if words > 700 {
		t.Errorf("it has %d words, want at most 700", words)
	}
	measured := readText(t, "../../docs/benchmarks.md")
	_, figures, _ := strings.Cut(text, "\n## Three figures\n")
	figures, _, _ = strings.Cut(figures, "\n## ")
	all := regexp.MustCompile(`\d\.\d+`).FindAllString(figures, -1)
	for _, figure := range all {
		if !strings.Contains(measured, figure+" (") {
			t.Errorf("docs/benchmarks.md has no %s", figure)
		}
	}
	if len(all) < 3 {
		t.Errorf("figures: %q", all)
	}
	commands := regexp.MustCompile("(?m)^make run .*\nmake test .*$")
	if len(commands.FindAllString(text, -1)) != 1 || !strings.Contains(text, "```sh\nmake run ") {
		t.Fatal("it does not begin with make run and make test")
	}
	run := "git clone -q \"$STINT_SOURCE\" clone\ncd clone\nunset GOFLAGS GOWORK\nmake -s run"
	if testing.Short() {
		run = "mkdir bin\nln -s \"$(command -v stint)\" bin/stint\nbin/stint serve --demo"
	}
	const ready = "curl -s -o /dev/null --retry 280 --retry-delay 1 --retry-connrefused http://localhost:8080/"
	runText(t, path, commands.ReplaceAllLiteralString(text, run+" >run.log 2>&1 &\n"+ready))
}
