package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

// shell runs a command, and returns what it prints.
func shell(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "DEBIAN_FRONTEND=noninteractive")
	var complaints strings.Builder
	c.Stderr = &complaints // go tells there of what it downloads
	said, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", c, err, said, complaints.String())
	}
	return string(said)
}

// packager makes packages of a build, as goreleaser does with the same section of its file.
type packager struct {
	nfpm  string
	stage string // a copy of what packages have, but for the program
}

func newPackager(t *testing.T) *packager {
	t.Helper()
	nfpm := shell(t, "../../tools/dist", "go", "tool", "-n", "nfpm")
	p := &packager{nfpm: strings.TrimSpace(nfpm), stage: t.TempDir()}
	if err := os.CopyFS(filepath.Join(p.stage, "packaging"), os.DirFS(packaging)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin/manual/man", "bin/manual/completions"} {
		if err := os.MkdirAll(filepath.Join(p.stage, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(p.stage, "LICENSE"), readText(t, "../../LICENSE"))
	put(t, filepath.Join(p.stage, "bin/manual/man/stint.1"), ".TH STINT 1\n")
	for shell, name := range map[string]string{"bash": "stint.bash", "fish": "stint.fish", "zsh": "_stint"} {
		_, script, _ := call("", "completion", shell)
		put(t, filepath.Join(p.stage, "bin/manual/completions", name), script)
	}
	return p
}

// build makes a package of the program, which goreleaser's section "nfpms" describes.
func (p *packager) build(t *testing.T, program, version, format string) string {
	t.Helper()
	var file struct{ Nfpms []map[string]any }
	if err := yaml.Unmarshal([]byte(readText(t, "../../.goreleaser.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Nfpms) != 1 {
		t.Fatalf("%d sections", len(file.Nfpms))
	}
	made := file.Nfpms[0]
	made["name"], made["arch"], made["version"], made["mtime"] = made["package_name"], "amd64", version, "2026-01-02T03:04:05Z"
	contents, _ := made["contents"].([]any)
	made["contents"] = append(contents, map[string]any{"src": program, "dst": fmt.Sprint(made["bindir"], "/stint")})
	overrides, _ := made["overrides"].(map[string]any)
	for _, of := range overrides {
		of := of.(map[string]any)
		of["depends"] = of["dependencies"]
		delete(of, "dependencies")
	}
	for _, own := range []string{"ids", "package_name", "formats", "bindir", "file_name_template"} { // of goreleaser
		delete(made, own)
	}
	text, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(p.stage, "nfpm.yaml"), string(text))
	to := filepath.Join(t.TempDir(), "stint."+format)
	shell(t, p.stage, p.nfpm, "package", "--packager", format, "--target", to)
	return to
}

// builds are the last commit's program in these versions, as the tags of a clone give them.
func builds(t *testing.T, versions ...string) (all []string) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	if err := exec.Command("git", "clone", "-q", "../..", clone).Run(); err != nil {
		t.Skipf("this is no clone of the repository: %v", err)
	}
	for _, version := range versions {
		shell(t, clone, "git", "-c", "user.name=test", "-c", "user.email=test", "commit", "-q", "--allow-empty", "-m", version)
		shell(t, clone, "git", "tag", "cmd/stint/v"+version)
		to := filepath.Join(t.TempDir(), "stint")
		c := exec.Command("go", "build", "-buildvcs=true", "-ldflags=-s -w", "-o", to, "./cmd/stint")
		c.Dir = clone
		if said, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, said)
		}
		all = append(all, to)
	}
	return all
}

// A machine is what an installation may change: names of files, and the texts that list users.
type machine map[string]string

func lookAround(t *testing.T) machine {
	t.Helper()
	m := machine{}
	for _, root := range []string{"/etc", "/usr", "/var/lib"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil: // it is gone meanwhile
				return nil
			case path == "/var/lib/dpkg" || path == "/usr/local":
				return fs.SkipDir
			}
			m[path] = ""
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"} {
		m[path] = readText(t, path)
	}
	return m
}

// mustInstall skips a test that may not install a package here.
func mustInstall(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the program twice, and installs it")
	}
	if os.Getuid() != 0 {
		t.Skip("only root installs packages")
	}
	for _, name := range []string{"dpkg", "useradd"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s: this is no Debian", name)
		}
	}
	for _, path := range []string{"/usr/bin/stint", "/etc/stint", "/var/lib/stint"} {
		if _, err := os.Lstat(path); err == nil {
			t.Skipf("%s is there: this test would change an installation", path)
		}
	}
	if _, err := user.Lookup("stint"); err == nil {
		t.Skip("there is a user stint: this test would change an installation")
	}
}

// A package is installed, its unit serves as its user and reloads, an upgrade keeps the file that was
// changed, and a purge leaves nothing.
func TestPackageInstalls(t *testing.T) {
	mustInstall(t)
	const old, next = "0.1.0", "0.1.1"
	p, programs := newPackager(t), builds(t, old, next)
	first := p.build(t, programs[0], old, "deb")
	put(t, filepath.Join(p.stage, "packaging/stint.yaml"), readText(t, packaging+"stint.yaml")+"# of another version\n")
	second := p.build(t, programs[1], next, "deb")

	before := lookAround(t)
	t.Cleanup(func() { // of what a failure has left
		_ = exec.Command("userdel", "stint").Run()
		_ = exec.Command("groupdel", "stint").Run()
		_ = exec.Command("dpkg", "--purge", "stint").Run()
		_, _ = os.RemoveAll("/etc/stint"), os.RemoveAll("/var/lib/stint")
	})
	shell(t, "/", "dpkg", "--install", first)
	const file = "/etc/stint/stint.yaml"
	if got := shell(t, "/", "stat", "-c", "%A %U:%G", "/etc/stint", file); got != "drwxr-x--- root:stint\n-rw-r----- root:stint\n" {
		t.Errorf("the file and its folder are\n%s", got)
	}
	if found, _ := filepath.Glob("/etc/systemd/system/*.wants/stint.*"); len(found) > 0 {
		t.Errorf("it is enabled: %s", found)
	}
	if got := shell(t, "/", "/usr/bin/stint", "version"); !strings.HasPrefix(got, "stint v"+old+",") {
		t.Errorf("it says %s", got)
	}

	u := &installed{T: t, unit: unit(t, "/usr/lib/systemd/system/stint.service")}
	u.refusesForeignState()
	u.configure(file, 1)
	s := u.start()
	u.limits(s, 1)
	u.configure(file, 3)
	u.reload(s)
	u.limits(s, 2) // one is counted
	kept := readText(t, file)

	shell(t, "/", "dpkg", "--install", "--force-confdef", "--force-confold", second)
	if readText(t, file) != kept {
		t.Error("an upgrade has changed the file")
	}
	if got := shell(t, "/", "/usr/bin/stint", "version"); !strings.HasPrefix(got, "stint v"+next+",") {
		t.Errorf("after the upgrade it says %s", got)
	}
	u.stop(s)
	s = u.start()
	u.limits(s, 3)
	u.stop(s)

	shell(t, "/", "dpkg", "--remove", "stint")
	if _, err := os.Stat("/usr/bin/stint"); err == nil || readText(t, file) != kept {
		t.Errorf("after the removal: the program is there, or the file is not: %v", err)
	}
	shell(t, "/", "dpkg", "--purge", "stint")
	after := lookAround(t)
	for path := range maps.Keys(after) {
		if was, ok := before[path]; (!ok || was != after[path]) && !strings.HasSuffix(path, "-") { // passwd- is the one of before
			t.Errorf("after the purge, %s is another, or new", path)
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			t.Errorf("after the purge, %s is gone", path)
		}
	}
}

// installed runs the unit that a package has installed, as systemd does but for the sandbox.
type installed struct {
	*testing.T
	unit   map[string][]string
	starts int
}

// set is the only value of a setting.
func (u *installed) set(name string) string {
	u.Helper()
	if len(u.unit[name]) != 1 {
		u.Fatalf("the unit has %s=%q", name, u.unit[name])
	}
	return u.unit[name][0]
}

// command is one of the unit, as its user.
func (u *installed) command(line string) *exec.Cmd {
	u.Helper()
	as, err := user.Lookup(u.set("User"))
	if err != nil {
		u.Fatal(err)
	}
	group, err := user.LookupGroup(u.set("Group"))
	if err != nil {
		u.Fatal(err)
	}
	uid, _ := strconv.Atoi(as.Uid)
	gid, _ := strconv.Atoi(group.Gid)
	words := strings.Fields(line)
	c := exec.Command(words[0], words[1:]...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	c.Env = []string{"PATH=/usr/bin:/bin", "NOTIFY_SOCKET=" + os.Getenv("NOTIFY_SOCKET")}
	for _, set := range u.unit["Environment"] {
		c.Env = append(c.Env, strings.ReplaceAll(set, "%S", "/var/lib"))
	}
	return c
}

// A folder of another owner ends the start, and the last line says which.
func (u *installed) refusesForeignState() {
	u.Helper()
	dir := "/var/lib/" + u.set("StateDirectory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		u.Fatal(err)
	}
	said, err := u.command(u.set("ExecStart")).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if last := lines[len(lines)-1]; err == nil || !strings.Contains(last, dir) {
		u.Errorf("in a folder of root's: %v, and the last line is %s", err, last)
	}
	shell(u.T, "/", "chown", u.set("User")+":"+u.set("Group"), dir) // as systemd has it
}

// configure changes the file in its place: to ports of its own, and so many requests.
func (u *installed) configure(file string, requests int) {
	u.Helper()
	text := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:0", "127.0.0.1:8082", "127.0.0.1:0", "127.0.0.1:8090", "127.0.0.1:0").Replace(readText(u.T, packaging+"stint.yaml"))
	text, _, ok := strings.Cut(text, "    limits:")
	if !ok {
		u.Fatal("the packages' file has no limits")
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s    limits: [%d per 1h sliding_log]\n", text, requests), 0); err != nil {
		u.Fatal(err)
	}
}

type runningUnit struct {
	*served
	c       *child
	systemd *notified
}

func (u *installed) start() *runningUnit {
	u.Helper()
	systemd := listenAsSystemd(u.T, "@stint-package-"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(u.starts))
	c, s := started(u.T, u.command(u.set("ExecStart")))
	u.starts++ // another address next time
	if got := systemd.next(u.T); got != toldServing {
		u.Fatalf("systemd was told %q\n%s", got, s.log)
	}
	return &runningUnit{s, c, systemd}
}

func (u *installed) reload(s *runningUnit) {
	u.Helper()
	line := strings.ReplaceAll(u.set("ExecReload"), "$MAINPID", strconv.Itoa(s.c.pid()))
	if said, err := u.command(line).CombinedOutput(); err != nil {
		u.Fatalf("%s: %v\n%s", line, err, said)
	}
	if got := s.systemd.reload(u.T); got != toldServing {
		u.Errorf("after the reload: %q\n%s", got, s.log)
	}
}

// limits asks until a request is refused, which must be after so many.
func (u *installed) limits(s *runningUnit, requests int) {
	u.Helper()
	for i := range requests + 1 {
		want := 200
		if i == requests {
			want = 429
		}
		if got := checked(u.T, s.served, `{"client":"192.0.2.1"}`); got != want {
			u.Errorf("request %d: %d, want %d\n%s", i+1, got, want, s.log)
		}
	}
}

func (u *installed) stop(s *runningUnit) {
	u.Helper()
	s.c.signal(u.T, syscall.SIGTERM)
	s.c.endsWell(u.T)
}

// The packages of both kinds have the same files, with the same owners and permissions, but for the
// place of zsh's completion.
func TestPackagesAreEqual(t *testing.T) {
	if testing.Short() {
		t.Skip("builds nfpm")
	}
	for _, name := range []string{"dpkg-deb", "rpm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s: apt-get install dpkg rpm", name)
		}
	}
	p := newPackager(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var deb, rpm []string
	for line := range strings.Lines(shell(t, "/", "dpkg-deb", "--contents", p.build(t, self, "0.1.0", "deb"))) {
		f := strings.Fields(line)
		if path := strings.TrimPrefix(f[5], "."); f[0][0] != 'd' || path == "/etc/stint/" {
			deb = append(deb, strings.Join([]string{f[0], f[1], strings.TrimSuffix(path, "/")}, " "))
		}
	}
	asked := shell(t, "/", "rpm", "-qp", "--nosignature", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} %{FILEFLAGS}\n]", p.build(t, self, "0.1.0", "rpm"))
	const config, noReplace = 1 << 0, 1 << 4
	for line := range strings.Lines(asked) {
		f := strings.Fields(line)
		if f[2] == "/etc/stint/stint.yaml" && f[3] != strconv.Itoa(config|noReplace) {
			t.Errorf("rpm may replace the file: its flags are %s", f[3])
		}
		rpm = append(rpm, strings.Replace(strings.Join(f[:3], " "), "/usr/share/zsh/site-functions/", "/usr/share/zsh/vendor-completions/", 1))
	}
	slices.Sort(deb)
	slices.Sort(rpm)
	if !slices.Equal(deb, rpm) || len(deb) < 10 {
		t.Errorf(".deb has\n%s\n.rpm has\n%s", strings.Join(deb, "\n"), strings.Join(rpm, "\n"))
	}
}
