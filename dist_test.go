package stint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// scripts/manual writes a page for each command, which others refer to, and a script for each shell.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	output(t, "bash", "scripts/manual", dir)
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, "man", name+".1"))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	seen := 0
	var follow func(name string)
	follow = func(name string) {
		seen++
		_, more, _ := strings.Cut(page(name), ".SH SEE ALSO")
		for _, other := range strings.FieldsFunc(more, func(c rune) bool { return strings.ContainsRune(", \n", c) }) {
			if other = strings.TrimSuffix(strings.ReplaceAll(other, `\fB`, ""), `(1)\fP`); strings.HasPrefix(other, name+"-") {
				follow(other)
			}
		}
	}
	follow("stint")
	if pages, _ := filepath.Glob(filepath.Join(dir, "man", "*.1")); seen != len(pages) || seen < 40 {
		t.Errorf("%d pages, of which %d are found from the first", len(pages), seen)
	}
	if text := page("stint-serve"); !strings.Contains(text, `\fB--admin-listen\fP`) {
		t.Errorf("the page of serve:\n%s", text)
	}
	for name, words := range map[string]string{"stint.bash": "__start_stint", "_stint": "#compdef stint", "stint.fish": "complete -c stint"} {
		if text, err := os.ReadFile(filepath.Join(dir, "completions", name)); err != nil || !strings.Contains(string(text), words) {
			t.Errorf("%s lacks %q: %v", name, words, err)
		}
	}
}

// make dist makes the same of a commit in whatever folder: an archive with all that a user needs, whose
// program knows its commit, and checksums that are true.
func TestDist(t *testing.T) {
	if testing.Short() {
		t.Skip("goreleaser takes minutes to compile")
	}
	system := runtime.GOOS + "_" + runtime.GOARCH
	commit := strings.TrimSpace(output(t, "git", "rev-parse", "HEAD"))
	var dirs []string
	for _, folder := range []string{"a", "another folder"} {
		dir := filepath.Join(t.TempDir(), folder)
		output(t, "git", "clone", "-q", ".", dir)
		if out, code := run(t, dir, "scripts/dist "+system); code != 0 || !strings.Contains(out, "no tag v… is on this commit") {
			t.Fatalf("exit %d:\n%s", code, out)
		}
		dirs = append(dirs, filepath.Join(dir, "dist"))
	}
	sums, err := os.ReadFile(filepath.Join(dirs[0], "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, name)
		for _, dir := range dirs {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if got := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil || got != sum {
				t.Errorf("%s: %s, want %s: %v", filepath.Join(dir, name), got, sum, err)
			}
		}
	}
	stem := "stint_0.0.0-" + commit[:12] + "_" + system
	for _, want := range []string{stem + ".tar.gz", stem + ".cdx.json", stem + ".deb", stem + ".rpm"} {
		if !slices.Contains(names, want) {
			t.Errorf("checksums.txt has %q, want %s", names, want)
		}
	}
	inArchive(t, filepath.Join(dirs[0], stem+".tar.gz"), commit)
}

func inArchive(t *testing.T, archive, commit string) {
	t.Helper()
	dir := t.TempDir()
	output(t, "tar", "xzf", archive, "-C", dir)
	for _, name := range []string{"LICENSE", "README.md", "man/stint-serve.1", "completions/stint.bash", "completions/_stint", "completions/stint.fish"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "stint"), "version", "--json").Output()
	var version struct {
		Version, Commit string
		Modified        bool
	}
	if err := errors.Join(err, json.Unmarshal(out, &version)); err != nil || version.Commit != commit || version.Modified || !strings.HasPrefix(version.Version, "v0.") {
		t.Errorf("%v: %s, want commit %s", err, out, commit)
	}
	text, err := os.ReadFile(filepath.Join(dir, "stint"))
	const most = 36e6
	if len(text) > most {
		t.Errorf("the program has %d bytes, want at most %.0f", len(text), most)
	}
	if err != nil || bytes.Contains(text, []byte(dir)) || bytes.Contains(text, []byte(os.Getenv("HOME")+"/go/pkg")) {
		t.Errorf("the program names folders of this machine: %v", err)
	}
}
