package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/container"
)

const (
	repository = "https://github.com/stintdev/stint"
	downloads  = repository + "/releases/latest/download"
	released   = "v0.1.0"
)

// The lines with which the README says how to have Stint do so, with a release of the last commit in
// place of the one at GitHub, and the image unpacked in place of Docker.
func TestReadmeInstalls(t *testing.T) {
	mustContain(t)
	for _, name := range []string{"curl", "tar", "ip", "apt"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("there is no " + name)
		}
	}
	clone := releaseHere(t)
	files := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(clone, "dist"))))
	defer files.Close()

	readme, err := os.ReadFile(filepath.Join(clone, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh[^\n]*\n([^`]*" + downloads + ".*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README does not say how to have Stint")
	}
	var library, archive, deb, image int
	for line := range strings.Lines(string(block[1])) {
		line = strings.NewReplacer(downloads, files.URL, "sudo ", "").Replace(strings.TrimSpace(line))
		switch {
		case strings.HasPrefix(line, "go get "):
			library++
			hasLibrary(t, clone, line)
		case strings.Contains(line, ".tar.gz"):
			archive++
			dir := t.TempDir()
			in(t, dir, line)
			saysVersion(t, filepath.Join(dir, "stint"))
		case strings.Contains(line, ".deb"):
			deb++
			hasPackage(t, line)
		case strings.HasPrefix(line, "docker run "):
			image++
			hasImage(t, filepath.Join(clone, "dist", "image"), line)
		default:
			t.Errorf("nothing tries %s", line)
		}
	}
	if library != 1 || archive != 1 || deb != 1 || image != 1 {
		t.Errorf("%d lines for the library, %d for the program, %d for the package, %d for the image", library, archive, deb, image)
	}
}

// in runs a line of a shell in a folder, and returns what it prints.
func in(t *testing.T, dir, line string, env ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", line)
	c.Dir, c.Env = dir, append(os.Environ(), append(env, "DEBIAN_FRONTEND=noninteractive")...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func saysVersion(t *testing.T, program string) {
	t.Helper()
	if said := in(t, "/", program+" version"); !strings.HasPrefix(said, "stint "+released+",") {
		t.Errorf("%s: %s", program, said)
	}
}

// releaseHere makes a release of the last commit in a clone, as scripts/release and the workflow do.
func releaseHere(t *testing.T) (clone string) {
	t.Helper()
	clone = filepath.Join(t.TempDir(), "clone")
	in(t, ".", "git clone -q --no-tags ../../.. "+clone)
	in(t, clone, `
		git checkout -q -B main
		git config user.name a && git config user.email a@m.test
		grep -q '^## \[`+released[1:]+`\]' CHANGELOG.md || { printf '\n## [`+released[1:]+`]\n' >>CHANGELOG.md && git commit -qam "the changelog"; }
		scripts/release `+released+`
		scripts/dist linux_amd64`)
	return clone
}

// hasLibrary gets the library in an empty module, from the tags of the clone, and compiles a program.
func hasLibrary(t *testing.T, clone, line string) {
	dir := t.TempDir()
	program := "package main\n\nimport \"github.com/stintdev/stint\"\n\nfunc main() { stint.MustLimit(\"api: 100 per 1m\") }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	said := in(t, dir, `go mod init user && `+line+` && go run . && go list -m github.com/stintdev/stint`,
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOPRIVATE=github.com/stintdev/*", "GOMODCACHE="+t.TempDir(),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+clone+".insteadOf", "GIT_CONFIG_VALUE_0="+repository)
	if !strings.HasSuffix(said, " "+released+"\n") {
		t.Errorf("%s: %s", line, said)
	}
}

// hasPackage installs the package, and purges it again.
func hasPackage(t *testing.T, line string) {
	for _, path := range []string{"/usr/bin/stint", "/etc/stint", "/var/lib/stint"} {
		if _, err := os.Lstat(path); err == nil {
			t.Skipf("%s is there: this test would change an installation", path)
		}
	}
	t.Cleanup(func() { _ = exec.Command("dpkg", "--purge", "stint").Run() })
	in(t, t.TempDir(), line)
	saysVersion(t, "/usr/bin/stint")
	if said := in(t, "/", "stint rules check --strict /etc/stint/stint.yaml"); !strings.Contains(said, "1 rule") {
		t.Error(said)
	}
}

// hasImage runs the image in a network of its own, with what stands behind its name as arguments, and asks at
// the address that Docker would send to: not loopback.
func hasImage(t *testing.T, folder, line string) {
	const name, published = "ghcr.io/stintdev/stint", "-p 8080:8080"
	before, args, ok := strings.Cut(line, name)
	if !ok || strings.TrimSpace(strings.TrimPrefix(before, "docker run")) != published {
		t.Fatalf("%s: want docker run %s %s, and arguments", line, published, name)
	}
	image := images(t, folder)["linux/amd64"]
	if image == nil {
		t.Fatal("no image for linux/amd64")
	}
	c, config := contained(t, image, true)
	words := config.Cmd
	if more := strings.Fields(args); len(more) > 0 {
		words = more
	}
	p := c.Start(t, nil, slices.Concat(config.Entrypoint, words)...)
	client := &http.Client{Transport: &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}}
	if !await.So(func() bool {
		resp, err := client.Get("http://" + container.Address + ":8080/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	}) {
		t.Errorf("%s: %s", line, p.Log())
	}
}
