package main

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"

	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/server"
)

// A block of a page, with what its first line says of it.
var anyBlock = regexp.MustCompile("(?ms)^( *)```([^\n]*)\n(.*?)^ *```$")

// Each block of code in a page is what its language says: JSON, YAML and Go are read, bash takes the
// commands, and stint takes the arguments of each "stint …". Other tests run many of them. Blocks in
// languages that nothing here reads say no-run.
func TestBlocks(t *testing.T) {
	checks := map[string]func(*testing.T, string) error{
		"json": func(_ *testing.T, text string) error { return json.Unmarshal([]byte(text), new(any)) },
		"yaml": func(_ *testing.T, text string) error { return yaml.Unmarshal([]byte(text), new(any)) },
		"go":   goBlock, "sh": commandsBlock, "console": console,
		"text":   func(*testing.T, string) error { return nil }, // what a program prints
		"promql": func(*testing.T, string) error { return nil }, // package monitoring reads those
		"nginx":  func(*testing.T, string) error { return nil }, // TestStart serves by it
		"python": func(*testing.T, string) error { return nil }, // TestStart runs it
	}
	count := map[string]int{}
	for _, page := range pagesOf(t) {
		for _, block := range anyBlock.FindAllStringSubmatch(readText(t, page), -1) {
			indent, language, body := block[1], strings.Fields(block[2]), block[3]
			if indent != "" {
				body = regexp.MustCompile("(?m)^"+indent).ReplaceAllString(body, "")
			}
			if len(language) == 2 && language[1] == "no-run" {
				continue
			}
			if len(language) != 1 || checks[language[0]] == nil {
				t.Errorf("%s: a block of %q, which nothing reads:\n%s", page, block[2], body)
				continue
			}
			count[language[0]]++
			if err := checks[language[0]](t, body); err != nil {
				t.Errorf("%s: %v:\n%s", page, err, body)
			}
		}
	}
	if count["sh"] < 30 || count["yaml"] < 60 || count["go"] < 10 {
		t.Errorf("only %v", count)
	}
}

// pagesOf are the pages of the repository that users read.
func pagesOf(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// goBlock reads a file, declarations, or what stands in a function.
func goBlock(_ *testing.T, text string) error {
	var err error
	for _, whole := range []string{text, "package p\n" + text, "package p\nfunc _() {\n" + text + "\n}", "package p\nvar _ = " + text} {
		if _, err = parser.ParseFile(token.NewFileSet(), "", whole, parser.SkipObjectResolution); err == nil {
			return nil
		}
	}
	return err
}

// console reads the commands of a session, behind its prompts.
func console(t *testing.T, text string) error {
	var commands strings.Builder
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands.WriteString(command)
		}
	}
	return commandsBlock(t, commands.String())
}

var callOfStint = regexp.MustCompile(`(?m)^(?:[A-Z_]+=\S+ )*(?:bin/)?stint ([^\n#|>&;]*?)(?: 2?>| #|[|&;]|$)`)

// commandsBlock has bash read commands, and stint the arguments of its own.
func commandsBlock(t *testing.T, text string) error {
	c := exec.CommandContext(t.Context(), "bash", "-n")
	c.Stdin = strings.NewReader(text)
	if said, err := c.CombinedOutput(); err != nil {
		t.Errorf("bash: %s", said)
		return err
	}
	for _, call := range callOfStint.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		errs := server.NewLogWriter(io.Discard)
		root := newProgram(strings.NewReader(""), io.Discard, errs)
		var args []string
		for _, word := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(call[1], -1) {
			args = append(args, strings.Trim(word, `'"`))
		}
		command, rest, err := root.Find(args)
		if err == nil {
			err = command.ParseFlags(rest)
		}
		if err == nil && command.Args != nil {
			err = command.Args(command, command.Flags().Args())
		}
		errs.Close(0)
		if err != nil {
			t.Errorf("stint %s", call[1])
			return err
		}
	}
	return nil
}
