package stint_test

import (
	"encoding/json"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const ours = "github.com/stintdev/stint"

// A moduleFile is what go mod edit and go work edit say of a go.mod and of go.work.
type moduleFile struct {
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old struct{ Path, Version string }
		New struct{ Path string }
	}
	Use []struct{ DiskPath string }
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said.String())
	}
	return string(out)
}

func readModule(t *testing.T, edit, file string) (m moduleFile) {
	t.Helper()
	if err := json.Unmarshal([]byte(output(t, "go", edit, "edit", "-json", file)), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// folders are the folders of this repository for which is is true, "." among them.
func folders(t *testing.T, is func(folder string, entries []fs.DirEntry) bool) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if slices.Contains([]string{".git", "node_modules", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		entries, err := os.ReadDir(name)
		if err == nil && is(name, entries) {
			all = append(all, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func holds(name string) func(string, []fs.DirEntry) bool {
	return func(_ string, entries []fs.DirEntry) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
}

// docs/decisions/0023-modules.md: our modules require each other at one version, which go.work replaces by the
// folders; what is released has no replace of its own; and every module lies in the workspace or is a
// workspace by itself, but for that of a peer, which is built as it was released: in a workspace, two of
// its modules have one package.
func TestModules(t *testing.T) {
	work := readModule(t, "work", "go.work")
	var inWorkspace []string
	for _, use := range work.Use {
		inWorkspace = append(inWorkspace, path.Clean(use.DiskPath))
	}
	released := strings.Fields(output(t, "bash", "scripts/modules"))
	required := ""
	for _, folder := range folders(t, holds("go.mod")) {
		m := readModule(t, "mod", path.Join(folder, "go.mod"))
		isReleased := slices.Contains(released, folder)
		// A tool may want a later patch.
		if m.Go != work.Go && (isReleased || version.Lang("go"+m.Go) != version.Lang("go"+work.Go)) {
			t.Errorf("%s is of Go %s, go.work of %s", folder, m.Go, work.Go)
		}
		if first, _, _ := strings.Cut(folder, "/"); isReleased == slices.Contains([]string{"bench", "examples", "internal", "tools"}, first) {
			t.Errorf("%s: scripts/modules says released %t", folder, isReleased)
		}
		if shared := slices.Contains(inWorkspace, folder); shared && len(m.Replace) > 0 || isReleased && !shared {
			t.Errorf("%s lies in go.work: %t, released: %t, with %d replaces", folder, shared, isReleased, len(m.Replace))
		} else if _, err := os.Stat(path.Join(folder, "go.work")); !shared && (err != nil) != (folder == "bench/ratelimit") {
			t.Errorf("%s lies in no workspace, or is one and must not be: %v", folder, err)
		}
		for _, r := range m.Require {
			if r.Path != ours && !strings.HasPrefix(r.Path, ours+"/") {
				continue
			}
			if required == "" {
				required = r.Version
			}
			if r.Version != required {
				t.Errorf("%s requires %s at %s, others at %s: scripts/tidy %[4]s", folder, r.Path, r.Version, required)
			}
		}
	}
	replaced := map[string]string{}
	for _, r := range work.Replace {
		replaced[r.Old.Path+"@"+r.Old.Version] = path.Clean(r.New.Path)
	}
	if len(released) < 8 || len(replaced) != len(released) {
		t.Errorf("%d modules are released, go.work replaces %d", len(released), len(replaced))
	}
	for _, folder := range released {
		if at := path.Join(ours, folder) + "@" + required; replaced[at] != folder {
			t.Errorf("go.work replaces %s by %q: want %s", at, replaced[at], folder)
		}
	}
}

// make lint, make vuln and make test reach every package: they walk the workspace, and each module alone.
func TestNoPackageIsLeftOut(t *testing.T) {
	want := folders(t, func(_ string, entries []fs.DirEntry) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".go") })
	})
	listed := output(t, "go", "list", "-f", "{{.Dir}}", "work")
	for _, module := range strings.Fields(output(t, "bash", "scripts/modules", "alone")) {
		listed += output(t, "go", "-C", module, "list", "-f", "{{.Dir}}", "./...")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, dir := range strings.Split(strings.TrimSpace(listed), "\n") {
		folder, err := filepath.Rel(here, dir)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.ToSlash(folder))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("walked are %v\nwith files of Go are %v", got, want)
	}
	for file, walks := range map[string][]string{
		"Makefile":     {"go vet work", "$$staticcheck work", "scripts/modules alone"},
		"scripts/test": {"$(list work)", "scripts/modules alone"},
		"scripts/vuln": {"look . work", "scripts/modules alone"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, walk := range walks {
			if !strings.Contains(string(text), walk) {
				t.Errorf("%s has no %q", file, walk)
			}
		}
	}
}
