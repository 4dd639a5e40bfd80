package stint_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/release refuses what is no release and changes nothing then. What it makes of this tree, and the
// commands that it prints have pushed, others can use: each public package, and the program. They get it from
// a proxy in the file system, which is the module cache of one who downloaded the tags. The short form
// compiles nothing, and gets none of the modules of others, which are 350 MB.
func TestReleased(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	const version = "v1.999.0" // never released: CHANGELOG.md has no section of it
	public, dir := publicPackages(t), t.TempDir()
	proxies := "file://" + path.Join(strings.TrimSpace(output(t, "go", "env", "GOMODCACHE")), "cache/download") + "," + strings.TrimSpace(output(t, "go", "env", "GOPROXY"))
	for key, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "3",
		"GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "a",
		"GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "a@m.test",
		"GIT_CONFIG_KEY_2": "url.file://" + dir + "/origin.insteadOf", "GIT_CONFIG_VALUE_2": "https://" + ours,
	} {
		t.Setenv(key, value)
	}
	if out, code := run(t, ".", `set -e
		git init -q --bare -b main "`+dir+`/origin"
		commit() { git --git-dir "`+dir+`/origin" --work-tree . "$@"; }
		commit add -A
		commit commit -qm "a tree"
		git clone -q "file://`+dir+`/origin" "`+dir+`/clone"
		cd "`+dir+`/clone"
		printf '\n## [`+version[1:]+`]\n' >>CHANGELOG.md
		git commit -qam "the changelog"`); code != 0 {
		t.Fatal(out)
	}
	refusesReleases(t, filepath.Join(dir, "clone"), version)

	out, code := run(t, filepath.Join(dir, "clone"), `set -e
		push=$(scripts/release `+version+`)
		[[ $push == "git push --atomic origin main "*"
git push origin `+version+`" ]]
		bash -e <<<"$push"
		go list work >/dev/null`)
	if code != 0 {
		t.Fatal(out)
	}
	modules := strings.Fields(output(t, "bash", filepath.Join(dir, "clone/scripts/modules")))
	tags := output(t, "git", "-C", filepath.Join(dir, "origin"), "for-each-ref", "refs/tags", "--format=%(refname:short) %(objecttype) %(*subject)")
	if n := strings.Count(tags, "\n"); n != len(modules) {
		t.Errorf("%d tags, want %d:\n%s", n, len(modules), tags)
	}
	var downloaded []string
	for _, module := range modules {
		tag := path.Join(module, version)
		if want := tag + " tag release: " + version + "\n"; !strings.Contains("\n"+tags, "\n"+want) {
			t.Errorf("the tags have no %s%s", want, tags)
		}
		downloaded = append(downloaded, path.Join(ours, module)+"@"+version)
	}

	for key, value := range map[string]string{
		"GOWORK": "off", "GOSUMDB": "off", "GONOPROXY": "none", "GOBIN": dir,
		"GOFLAGS": "-modcacherw -trimpath", // whose results do not depend on GOMODCACHE, and come from the cache
		"GOPROXY": "direct", "GOMODCACHE": filepath.Join(dir, "tags"),
	} {
		t.Setenv(key, value)
	}
	output(t, "go", append([]string{"-C", dir, "mod", "download"}, downloaded...)...)
	for _, module := range downloaded {
		if _, err := os.Stat(filepath.Join(dir, "tags", module, "LICENSE")); err != nil {
			t.Errorf("pkg.go.dev would not show %s: %v", module, err)
		}
	}
	t.Setenv("GOPROXY", "file://"+path.Join(dir, "tags/cache/download")+","+proxies)
	t.Setenv("GOMODCACHE", filepath.Join(dir, "modules"))
	usesRelease(t, filepath.Join(dir, "user"), version, public, downloaded)
	if testing.Short() {
		return
	}
	output(t, "go", "-C", dir, "install", ours+"/cmd/stint@"+version)
	if said := output(t, filepath.Join(dir, "stint"), "version"); !strings.HasPrefix(said, "stint "+version+",") {
		t.Errorf("stint version says %s", said)
	}
}

// refusesReleases runs scripts/release in a clone where the version may be released, after one change
// each that forbids it.
func refusesReleases(t *testing.T, clone, version string) {
	for _, c := range []struct{ name, change, args, said string }{
		{"no version", "", "", "want a semantic version"},
		{"two versions", "", version + " v1.999.1", "want a semantic version"},
		{"no v", "", version[1:], "want a semantic version"},
		{"no patch", "", "v1.999", "want a semantic version"},
		{"a leading zero", "", "v1.999.00", "want a semantic version"},
		{"another path", "", "v2.0.0", "/v2"},
		{"changed", "echo >>README.md", version, "not clean"},
		{"a new file", "touch new", version, "not clean"},
		{"another branch", "git checkout -q -b other", version, "branch main"},
		{"no branch", "git checkout -q --detach", version, "branch main"},
		{"the branch of another", "git checkout -q -b release-1.99", version, "nor release-1.999"},
		{"no section", "", "v1.998.0", "CHANGELOG.md has no section ## [1.998.0]"},
		{"released", "git tag server/" + version, version, "a tag server/" + version},
		{"no tidying", `printf '#!/bin/sh\necho >>go.mod\nexit 1\n' >scripts/tidy && git commit -qam tidy`, version, "scripts/tidy " + version + " fails"},
		{"no tidying on its branch", `git checkout -q -b release-1.999 && printf '#!/bin/sh\nexit 1\n' >scripts/tidy && git commit -qam tidy`, version, "scripts/tidy " + version + " fails"},
	} {
		out, code := run(t, clone, `set -e
			at=$(git rev-parse HEAD)
			state() { git log -1 --format=%H%d; git tag; git status --porcelain; }
			`+c.change+`
			before=$(state)
			result=0
			scripts/release `+c.args+` || result=$?
			[ "$(state)" = "$before" ] || { state; exit 9; }
			git tag | xargs -r git tag -d >/dev/null
			git checkout -qf -B main "$at"
			git clean -qfd
			exit $result`)
		if code != 2 || !strings.Contains(out, "NOTHING WAS RELEASED") || !strings.Contains(out, c.said) {
			t.Errorf("%s: exit %d, want 2 and %q:\n%s", c.name, code, c.said, out)
		}
	}
}

// usesRelease makes a new module in a folder that requires our modules, and a program in it that imports
// each public package and is compiled, but for the short form.
func usesRelease(t *testing.T, dir, version string, public, modules []string) {
	program, require := "package user\n\nimport (\n", []string{"-C", dir, "mod", "edit"}
	get := []string{"-C", dir, "get", path.Join(ours, "cmd/stint") + "@" + version}
	for _, folder := range public {
		program += fmt.Sprintf("\t_ %q\n", path.Join(ours, folder))
		get = append(get, path.Join(ours, folder)+"@"+version)
	}
	for _, module := range modules {
		require = append(require, "-require="+module)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	output(t, "go", "-C", dir, "mod", "init", "user")
	output(t, "go", require...)
	all := "\n" + output(t, "go", "-C", dir, "list", "-mod=mod", "-m", "-f", "{{.Path}}@{{.Version}}", "all")
	for _, module := range modules {
		if !strings.Contains(all, "\n"+module+"\n") {
			t.Errorf("who requires all modules has no %s:%s", module, all)
		}
	}
	if testing.Short() {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "user.go"), []byte(program+")\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "go", get...)
	output(t, "go", "-C", dir, "build", "./...")
}
