package stint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// scripts/dist says which version it makes of a tree, and why.
func TestDistVersion(t *testing.T) {
	outer := t.TempDir()
	git := "git -c user.name=a -c user.email=a@b.example -c commit.gpgsign=false -c tag.gpgsign=false "
	dir := filepath.Join(outer, "inner")
	script, err := os.ReadFile("scripts/dist")
	err = errors.Join(err, os.MkdirAll(filepath.Join(dir, "scripts"), 0o777), os.WriteFile(filepath.Join(dir, "scripts", "dist"), script, 0o777))
	if err != nil {
		t.Fatal(err)
	}
	const snapshot = "0.0.0-COMMIT"
	for _, step := range []struct{ what, do, version, says string }{ // without a version: the status is 2
		{"files alone", "true", "0.0.0-unknown", "no git history"},
		{"files below another repository", "(cd .. && git init -q && " + git + "commit -qm 0 --allow-empty)", "0.0.0-unknown", "no git history"},
		{"a repository without a commit", "git init -q", "", "which commit"},
		{"a commit", "git add . && " + git + "commit -qm 1", snapshot, "no tag v"},
		{"other tags", git + "tag server/v0.1.0 && " + git + "tag vnext", snapshot, "no tag v"},
		{"a tag of the root alone", git + "tag v0.1.0-rc.1", snapshot, "without cmd/stint/v0.1.0-rc.1"},
		{"a tag", git + "tag cmd/stint/v0.1.0-rc.1", "0.1.0-rc.1", "v0.1.0-rc.1"},
		{"a tag that goes before it", git + "tag v0.1.0 && " + git + "tag cmd/stint/v0.1.0", "0.1.0", "v0.1.0"},
		{"a new file", "touch new", snapshot + "+dirty", "not committed"},
		{"a worktree", "rm new && git worktree add -q ../worktree && cd ../worktree", snapshot, "does not know its version"},
	} {
		out, code := run(t, dir, step.do+" && scripts/dist version")
		commit, _ := run(t, dir, "git rev-parse --short=12 HEAD")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		want := strings.Replace(step.version, "COMMIT", strings.TrimSpace(commit), 1)
		refused := want == "" && code == 2 && strings.Contains(out, step.says)
		if !refused && (code != 0 || len(lines) != 2 || !strings.Contains(lines[0], step.says) || lines[1] != want) {
			t.Errorf("%s: exit %d, want a line with %q, and %q:\n%s", step.what, code, step.says, want, out)
		}
	}
	for _, words := range []string{"nonsense", "--help", "linux_amd64 linux_arm64"} {
		if out, code := run(t, dir, "scripts/dist "+words); code != 2 || !strings.Contains(out, "usage: scripts/dist") {
			t.Errorf("scripts/dist %s: exit %d:\n%s", words, code, out)
		}
	}
}

// make dist makes the same of a commit in whatever folder, whoever may read its files there: an archive with
// all that a user needs, whose program knows its version, and checksums that are true.
func TestDist(t *testing.T) {
	if testing.Short() {
		t.Skip("goreleaser takes minutes to compile")
	}
	system := runtime.GOOS + "_" + runtime.GOARCH
	var sums []map[string]string
	var dir string
	for folder, mask := range map[string]string{"a": "umask 022", "another folder": "umask 077"} {
		dir = filepath.Join(t.TempDir(), folder)
		output(t, "bash", "-c", mask+`; git clone -q --no-tags . "$0"`, dir)
		out, code := run(t, dir, mask+"; git remote remove origin; git tag v0.1.0; git tag cmd/stint/v0.1.0; scripts/dist "+system)
		if code != 0 || !strings.Contains(out, "dist: v0.1.0\n") {
			t.Fatalf("exit %d:\n%s", code, out)
		}
		dir = filepath.Join(dir, "dist")
		sums = append(sums, sumsOf(t, dir))
	}
	if !maps.Equal(sums[0], sums[1]) {
		t.Errorf("one folder has\n%v, the other\n%v", sums[0], sums[1])
	}
	stem := "stint_" + system
	said, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(said)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, name)
		if sum != sums[1][name] {
			t.Errorf("%s has sum %s, checksums.txt says %s", name, sums[1][name], sum)
		}
	}
	wants := []string{".tar.gz", ".cdx.json"}
	if runtime.GOOS == "linux" {
		wants = append(wants, ".deb", ".rpm")
	}
	for _, want := range wants {
		if !slices.Contains(names, stem+want) {
			t.Errorf("checksums.txt has %q, want %s", names, stem+want)
		}
	}
	if !slices.Contains(names, "stint_chart.tgz") {
		t.Errorf("checksums.txt has %q, want the chart", names)
	}
	inArchive(t, filepath.Join(dir, stem+".tar.gz"), strings.TrimSpace(output(t, "git", "rev-parse", "HEAD")))
}

// sumsOf are the sums of all files below dir but those in which goreleaser tells of itself.
func sumsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains([]string{"artifacts.json", "config.yaml", "metadata.json"}, name) {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		sums[name] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	})
	if err != nil || len(sums) < 5 {
		t.Fatalf("%v: %v", err, sums)
	}
	return sums
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
	if err := errors.Join(err, json.Unmarshal(out, &version)); err != nil || version.Commit != commit || version.Modified || version.Version != "v0.1.0" {
		t.Errorf("%v: %s, want v0.1.0 and commit %s", err, out, commit)
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
