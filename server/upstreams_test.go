package server_test

import (
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

// modelled are the paths and the users that servers that are not run here, and chains of them, read in a target.
func modelled(raw string) (paths, users []string) {
	full, query, _ := strings.Cut(raw, "?")
	decode := func(p string) string {
		if d, err := url.PathUnescape(p); err == nil {
			return d
		}
		return p
	}
	clean := func(p string) string { return withSlash(path.Clean("/"+p), p) }
	add := func(p string) {
		if p != "" {
			paths = append(paths, p)
		}
	}
	add(full) // undecoded
	var plain []string
	for segment := range strings.SplitSeq(full, "/") {
		name, _, _ := strings.Cut(segment, ";")
		plain = append(plain, name)
	}
	add(clean(decode(strings.Join(plain, "/")))) // Tomcat
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
	add(clean(late))                                                                                  // Java, when it has been decoded
	add(clean(strings.ReplaceAll(decode(full), `\`, "/")))                                            // IIS
	add(clean(strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".", `\`, "/").Replace(decode(full)))) // IIS, case and overlong
	cut, _, _ := strings.Cut(decode(full), "\x00")
	add(cut)                         // C
	add(clean(cut))                  // C, clean
	add(clean(decode(decode(full)))) // decoded twice
	fragment, _, _ := strings.Cut(full, "#")
	add(decode(fragment))                                                         // without fragment
	add(decode(clean(strings.NewReplacer("%2e", ".", "%2E", ".").Replace(full)))) // RFC 3986
	if rest, ok := strings.CutPrefix(full, "//"); ok {
		_, after, _ := strings.Cut(rest, "/")
		add(decode("/" + after)) // after a host
	}
	return paths, modelledUsers(query)
}

// modelledUsers are the users in a query to servers that are not run here: in Rack 2 also ; separates, in PHP and
// Rack user[] is one, in ASP.NET USER, and in C a text ends at a NUL.
func modelledUsers(query string) (users []string) {
	for part := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		if user, ok := strings.CutPrefix(part, "user="); ok {
			if user, err := url.QueryUnescape(user); err == nil {
				users = append(users, user)
			}
			break
		}
	}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			continue
		}
		name, _, _ = strings.Cut(strings.TrimLeft(name, " "), "\x00")
		if before, _, ok := strings.Cut(name, "["); ok && before != "" {
			name = before
		}
		if strings.EqualFold(name, "user") && http.CanonicalHeaderKey(name) == "User" {
			before, _, _ := strings.Cut(value, "\x00")
			users = append(users, value, before)
		}
	}
	return users
}
