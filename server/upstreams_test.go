package server_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server/config"
)

// reading is what a server, or a library on it, makes of a target: the path, and the
// parameter user of the query.
type reading struct{ by, path, user string }

// echoing is a real server that tells what it received, and how it reads it.
type echoing struct {
	name  string
	start func(t *testing.T) *url.URL
	// parse reads the body of its answer.
	parse func(body string) (raw string, all []reading, err error)
}

var echoings = []echoing{
	{"go", startGo, readLines},
	{"node", startScript("node", "echo.js"), readLines},
	{"python", startScript("python3", "echo.py"), readLines},
	{"nginx", startNginx, readNginx},
}

func readLines(body string) (raw string, all []reading, err error) {
	for line := range strings.Lines(body) {
		fields := strings.Fields(line)
		for i := range fields[1:] {
			text, err := hex.DecodeString(strings.TrimPrefix(fields[i+1], "-"))
			if err != nil {
				return "", nil, err
			}
			fields[i+1] = string(text)
		}
		switch len(fields) {
		case 2:
			raw = fields[1]
		case 3:
			all = append(all, reading{fields[0], fields[1], fields[2]})
		default:
			return "", nil, fmt.Errorf("it says %q", line)
		}
	}
	return raw, all, nil
}

func readNginx(body string) (raw string, all []reading, err error) {
	lines := strings.SplitN(body, "\n", 3)
	if len(lines) != 3 {
		return "", nil, fmt.Errorf("it says %q", body)
	}
	return lines[0], []reading{{"nginx", lines[2], lines[1]}}, nil
}

func startGo(t *testing.T) *url.URL {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "raw %x\n", r.RequestURI)
		reads := func(by, path, user string) {
			or := func(text string) string {
				if text == "" {
					return "-"
				}
				return hex.EncodeToString([]byte(text))
			}
			fmt.Fprintln(w, by, or(path), or(user))
		}
		user := r.URL.Query().Get("user")
		reads("go", r.URL.Path, user)
		reads("go-clean", withSlash(path.Clean(r.URL.Path), r.URL.Path), user)
		reads("go-escaped", r.URL.EscapedPath(), user)
		if u, err := url.Parse(r.RequestURI); err == nil {
			reads("go-url.Parse", u.Path, u.Query().Get("user"))
		}
	})
}

func startScript(binary, file string) func(*testing.T) *url.URL {
	return func(t *testing.T) *url.URL {
		return startProgram(t, binary, func(_, port string) []string {
			return []string{filepath.Join("testdata", "upstreams", file), port}
		})
	}
}

func startNginx(t *testing.T) *url.URL {
	return startProgram(t, "nginx", func(dir, port string) []string {
		return nginxArgs(t, "nginx.conf", dir, "PORT", port)
	})
}

// nginxArgs are the arguments of an nginx by a file of testdata, in which texts are
// replaced.
func nginxArgs(t *testing.T, file, dir string, replace ...string) []string {
	text, err := os.ReadFile(filepath.Join("testdata", "upstreams", file))
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(strings.NewReplacer(append(replace, "DIR", dir)...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-p", dir, "-c", conf, "-e", "stderr", "-g", "daemon off; master_process off; pid " + filepath.Join(dir, "pid") + ";"}
}

// startProgram starts a program that listens on a port of its own, until the test
// ends. Where it is not installed the test is skipped, or fails if requireProxies is
// set.
func startProgram(t *testing.T, name string, args func(dir, port string) []string) *url.URL {
	t.Helper()
	binary, err := exec.LookPath(name)
	if err != nil && runtime.GOOS == "linux" { // Debian has some where only root looks
		binary, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		if os.Getenv(requireProxies) != "" {
			t.Fatalf("%s is set, but there is no %s", requireProxies, name)
		}
		redistest.Skip(t, name, "scripts/get "+name)
	}
	dir := t.TempDir()
	port := strconv.Itoa(redistest.FreePort(t))
	addr := net.JoinHostPort("127.0.0.1", port)
	var said strings.Builder
	process := exec.Command(binary, args(dir, port)...)
	process.Stdout, process.Stderr = &said, &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, said.String())
		}
	})
	if !await.So(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("%s does not listen", name)
	}
	u, err := config.ParseUpstream("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// withSlash is clean with a slash at its end where p has one, as servers keep it.
func withSlash(clean, p string) string {
	if strings.HasSuffix(p, "/") && clean != "/" {
		return clean + "/"
	}
	return clean
}

// modelled are the readings of servers that are not run here, and of chains of them.
func modelled(raw string) (all []reading) {
	full, query, _ := strings.Cut(raw, "?")
	decode := func(p string) string {
		if d, err := url.PathUnescape(p); err == nil {
			return d
		}
		return p
	}
	clean := func(p string) string { return withSlash(path.Clean("/"+p), p) }
	add := func(by, p string) { all = append(all, reading{by: by, path: p}) }
	var plain []string
	for segment := range strings.SplitSeq(full, "/") {
		name, _, _ := strings.Cut(segment, ";")
		plain = append(plain, name)
	}
	add("Tomcat", clean(decode(strings.Join(plain, "/"))))
	late := decode(full)
	for {
		before, after, ok := strings.Cut(late, ";")
		if !ok {
			break
		}
		_, rest, more := strings.Cut(after, "/")
		if late = before; more {
			late += "/" + rest
		}
	}
	add("Java, when it has been decoded", clean(late))
	add("IIS", clean(strings.ReplaceAll(decode(full), `\`, "/")))
	add("IIS, case and overlong", clean(strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".", `\`, "/").Replace(decode(full))))
	cut, _, _ := strings.Cut(decode(full), "\x00")
	add("C", cut)
	add("C, clean", clean(cut))
	add("decoded twice", clean(decode(decode(full))))
	fragment, _, _ := strings.Cut(full, "#")
	add("without fragment", decode(fragment))
	add("RFC 3986", decode(clean(strings.NewReplacer("%2e", ".", "%2E", ".").Replace(full))))
	if rest, ok := strings.CutPrefix(full, "//"); ok {
		_, after, _ := strings.Cut(rest, "/")
		add("after a host", decode("/"+after))
	}
	for part := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		if user, ok := strings.CutPrefix(part, "user="); ok {
			return append(all, reading{by: "Rack 2", user: user})
		}
	}
	return all
}
