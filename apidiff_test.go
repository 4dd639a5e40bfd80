package stint_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/apidiff names what was taken from the API, fails for it from v1.0.0 on, and never takes a
// comparison that it could not make for success.
func TestAPIDiffTells(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	if out, err := toolOf(t, "apidiff"); err != nil {
		t.Skipf("apidiff cannot be built here: %s", out)
	}
	for name, c := range map[string]struct {
		tag    string // of the first commit
		change string // of the second, in shell
		args   []string
		code   int
		said   []string
	}{
		"no tag":              {"", "", nil, 0, []string{"no tag"}},
		"no such tag":         {"", "", []string{"v0.9.0"}, 2, []string{"NOTHING WAS COMPARED"}},
		"another tag":         {"server/v1.0.0", "", nil, 0, []string{"no tag"}},
		"nothing":             {"v1.0.0", "", nil, 0, []string{"== ., since v1.0.0", "== sub, since v1.0.0"}},
		"added":               {"v1.0.0", "echo 'func C() {}' >>a.go", nil, 0, []string{"- C: added"}},
		"removed":             {"v1.2.3", "echo 'package a' >a.go", nil, 1, []string{"- A: removed"}},
		"removed by name":     {"v1.2.3", "echo 'package a' >a.go", []string{"v1.2.3"}, 1, []string{"- A: removed"}},
		"removed before v1":   {"v0.3.0", "echo 'package a' >a.go", nil, 0, []string{"- A: removed", "CHANGELOG.md"}},
		"removed before v1rc": {"v1.0.0-rc.1", "echo 'package a' >a.go", nil, 0, []string{"- A: removed", "CHANGELOG.md"}},
		"removed below":       {"v1.0.0", "echo 'package sub' >sub/b.go", nil, 1, []string{"- B: removed"}},
		"removed internally":  {"v1.0.0", "echo 'package i' >internal/i/i.go", nil, 0, nil},
		"does not compile":    {"v1.0.0", "echo 'func D() { nothing() }' >>a.go", nil, 2, []string{"NOTHING WAS COMPARED", "nothing"}},
		"a new module":        {"v1.0.0", "mkdir new && echo 'package n' >new/n.go && go -C new mod init m.test/a/new", nil, 0, []string{"the module is new"}},
		"a module gone":       {"v1.0.0", "git rm -rq sub && go work edit -dropuse ./sub", nil, 1, []string{"the module is gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, c.tag, c.change)
			out, code := run(t, dir, "scripts/apidiff "+strings.Join(c.args, " "))
			for _, said := range c.said {
				if !strings.Contains(out, said) {
					t.Errorf("it does not say %q", said)
				}
			}
			if code != c.code || c.code == 0 && len(c.said) == 0 && strings.Contains(out, "changes:") {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			if t.Failed() {
				t.Log(out)
			}
			if trees, _ := run(t, dir, "git worktree list"); strings.Count(trees, "\n") != 1 {
				t.Errorf("it leaves a tree: %s", trees)
			}
		})
	}
	t.Run("shallow", func(t *testing.T) {
		dir := repository(t, "v1.0.0", "echo 'package a' >a.go")
		out, code := run(t, dir, `git clone -q --depth 1 --no-tags "file://$PWD" clone && clone/scripts/apidiff`)
		if code != 2 || !strings.Contains(out, "shallow") {
			t.Errorf("exit %d, want 2:\n%s", code, out)
		}
	})
}

// toolOf is the path of a tool of tools/go.mod.
func toolOf(t *testing.T, name string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "go", "-C", "tools", "tool", "-n", name)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// repository returns the folder of one with the modules m.test/a and m.test/a/sub, and scripts/apidiff.
// Its first commit has the tag, and the second the change.
func repository(t *testing.T, tag, change string) string {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "tools"), os.DirFS("tools")); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("scripts/apidiff")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.work":         "go 1.26.0\nuse (\n\t.\n\t./sub\n)\n",
		"go.mod":          "module m.test/a\n\ngo 1.26.0\n",
		"a.go":            "package a\n\nfunc A() {}\n",
		"internal/i/i.go": "package i\n\nfunc I() {}\n",
		"sub/go.mod":      "module m.test/a/sub\n\ngo 1.26.0\n",
		"sub/b.go":        "package sub\n\nfunc B() {}\n",
		"scripts/apidiff": string(script),
		"scripts/modules": "#!/bin/sh\ncd \"$(dirname \"$0\")/..\"\nfor m in . new sub; do [ ! -e $m/go.mod ] || echo $m; done\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := run(t, dir, `set -e
		commit() { git add -A; git -c user.name=a -c user.email=a@m.test commit -q --allow-empty -m c; }
		git init -q .
		commit
		[ -z "`+tag+`" ] || git tag "`+tag+`"
		`+change+`
		commit`); code != 0 {
		t.Fatal(out)
	}
	return dir
}

// run runs a script of bash in a folder.
func run(t *testing.T, dir, script string) (out string, code int) {
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	all, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(all), cmd.ProcessState.ExitCode()
}
