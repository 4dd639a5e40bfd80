package main

import (
	"encoding/json"
	"fmt"
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

// codeBlock is a block of code in a page.
type codeBlock struct {
	line  int      // of the page, from 1
	above string   // the text after the block before
	info  []string // what its first line says: the language first
	body  string   // without the indentation of the block
}

// is tells whether a block is of a language, and its first line says no more.
func (b *codeBlock) is(language string) bool { return len(b.info) == 1 && b.info[0] == language }

var fenced = regexp.MustCompile("(?ms)^( *)```([^\n]*)\n(.*?)^ *```$")

func codeBlocks(page string) (all []codeBlock) {
	end := 0
	for _, at := range fenced.FindAllStringSubmatchIndex(page, -1) {
		indent, body := page[at[2]:at[3]], page[at[6]:at[7]]
		if indent != "" {
			body = strings.ReplaceAll("\n"+body, "\n"+indent, "\n")[1:]
		}
		all = append(all, codeBlock{1 + strings.Count(page[:at[0]], "\n"), page[end:at[0]], strings.Fields(page[at[4]:at[5]]), body})
		end = at[1]
	}
	return all
}

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
		for _, b := range codeBlocks(readText(t, page)) {
			if len(b.info) == 2 && b.info[1] == noRun {
				continue
			}
			if len(b.info) != 1 || checks[b.info[0]] == nil {
				t.Errorf("%s:%d: a block of %q, which nothing reads", page, b.line, b.info)
				continue
			}
			count[b.info[0]]++
			if err := checks[b.info[0]](t, b.body); err != nil {
				t.Errorf("%s:%d: %v", page, b.line, err)
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
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md", "examples/*.md", "examples/*/*.md"} {
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
		return fmt.Errorf("bash: %w: %s", err, said)
	}
	for _, call := range callOfStint.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		errs := server.NewLogWriter(io.Discard)
		command, rest, err := newProgram(strings.NewReader(""), io.Discard, errs).Find(plainWords(call[1]))
		if err == nil {
			err = command.ParseFlags(rest)
		}
		if err == nil && command.Args != nil {
			err = command.Args(command, command.Flags().Args())
		}
		errs.Close(0)
		if err != nil {
			return fmt.Errorf("stint %s: %w", call[1], err)
		}
	}
	return nil
}
