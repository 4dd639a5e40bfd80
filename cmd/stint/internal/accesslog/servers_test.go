package accesslog

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// realServer is a server that writes an access log.
type realServer struct {
	binary string
	conf   string // DIR and PORT are replaced
	args   func(conf, dir string) []string
	env    []string
	logs   map[string]Options // by the name of a file in DIR; "output" is what the server prints
	fields []string           // of the Entry, that all logs have
	utf8   bool               // it logs all as UTF-8
}

var realServers = []realServer{
	{
		binary: "nginx",
		conf: `events {}
http {
	client_body_temp_path DIR/a; proxy_temp_path DIR/b; fastcgi_temp_path DIR/c; uwsgi_temp_path DIR/d; scgi_temp_path DIR/e;
	log_format json escape=json '{"at":$msec,"took":$request_time,"ip":"$remote_addr","user":"$remote_user","request":"$request","host":"$http_host",'
		'"status":$status,"agent":"$http_user_agent"}';
	log_format parts '$remote_addr [$time_iso8601] "$request_method $http_host$request_uri $server_protocol" $status "$http_user_agent" $remote_user';
	access_log DIR/combined;
	access_log DIR/json json;
	access_log DIR/parts parts;
	server { listen 127.0.0.1:PORT; location / { return 204; } }
}`,
		args: func(conf, dir string) []string {
			return []string{"-p", dir, "-c", conf, "-e", "stderr", "-g", "daemon off; master_process off; pid " + filepath.Join(dir, "pid") + ";"}
		},
		logs: map[string]Options{
			"combined": {},
			"json": {Format: `log_format json escape=json '{"at":$msec,"took":$request_time,"ip":"$remote_addr","user":"$remote_user","request":"$request","host":"$http_host",'
		'"status":$status,"agent":"$http_user_agent"}';`},
			"parts": {Format: `$remote_addr [$time_iso8601] "$request_method $http_host$request_uri $server_protocol" $status "$http_user_agent" $remote_user`},
		},
		fields: []string{"User", "User-Agent"},
	},
	{
		binary: "caddy",
		conf:   "{\n\tadmin off\n}\n:PORT {\n\tbind 127.0.0.1\n\tlog {\n\t\toutput file DIR/access\n\t}\n\trespond 204\n}\n",
		args:   func(conf, _ string) []string { return []string{"run", "--adapter", "caddyfile", "--config", conf} },
		logs:   map[string]Options{"access": {}},
		fields: []string{"User-Agent"}, utf8: true,
	},
	{
		binary: "haproxy",
		conf: `global
	nbthread 1
	log stdout format raw local0
defaults
	mode http
	timeout client 5s
	timeout connect 5s
	timeout server 5s
frontend f
	bind 127.0.0.1:PORT
	log global
	option httplog
	http-request return status 204
`,
		args: func(conf, _ string) []string { return []string{"-db", "-f", conf} },
		env:  []string{"TZ=EAT-3"},
		logs: map[string]Options{"output": {Zone: time.FixedZone("EAT", 3*3600)}},
	},
}

// start starts the server and returns its address and the folder of its logs. Where it is not installed the
// test is skipped, or fails if STINT_REQUIRE_PROXIES is set.
func (s realServer) start(t *testing.T) (address, dir string) {
	t.Helper()
	binary, err := exec.LookPath(s.binary)
	if err != nil { // Debian has some where only root looks
		binary, err = exec.LookPath("/usr/sbin/" + s.binary)
	}
	if err != nil {
		if os.Getenv("STINT_REQUIRE_PROXIES") != "" {
			t.Fatalf("STINT_REQUIRE_PROXIES is set, but there is no %s: install it (scripts/get nginx haproxy caddy)", s.binary)
		}
		redistest.Skip(t, s.binary, "scripts/get nginx haproxy caddy")
	}
	dir = t.TempDir()
	port := strconv.Itoa(redistest.FreePort(t))
	address = net.JoinHostPort("127.0.0.1", port)
	conf := filepath.Join(dir, "conf")
	if err := os.WriteFile(conf, []byte(strings.NewReplacer("DIR", dir, "PORT", port).Replace(s.conf)), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	process := exec.Command(binary, s.args(conf, dir)...)
	process.Stdout, process.Stderr = output, output
	process.Env = append(os.Environ(), append(s.env, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)...)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(output.Name())
			t.Logf("%s said:\n%s", s.binary, said)
		}
	})
	if !await.So(func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("%s does not listen", s.binary)
	}
	return address, dir
}

// Requests of real clients and of attackers are in the logs of real servers as they were sent.
func TestRealServers(t *testing.T) {
	if runtime.GOOS != "linux" && os.Getenv("STINT_REQUIRE_PROXIES") == "" {
		t.Skip("the servers are configured for Linux")
	}
	for _, s := range realServers {
		t.Run(s.binary, func(t *testing.T) {
			address, dir := s.start(t)
			before := time.Now()
			requests := []Entry{
				{Method: "GET", Target: "/"},
				{Method: "POST", Target: "/a/b?c=d&e=%20%22", User: "alice"},
				{Method: "DELETE", Target: `/q"uote"?x="`, User: `al "ice [10/Oct/2000] "`},
				{Method: "GET", Target: `/back\slash\x22\"?\`, User: `b\ob`},
				{Method: "GET", Target: "/a%0a#[]{}|^`"},
			}
			agents := []string{"curl/8.5.0", `say "hi"`, `C:\x22\" - [`, "tab\there", "caf\u00e9"}
			if !s.utf8 {
				agents[4] += "\xff"
			}
			var sent []Entry
			for i, e := range requests {
				e.Header = headers("User-Agent", agents[i])
				if s.binary == "haproxy" && i == 4 {
					e.Target = "/a%0a[]{}|^`" // it refuses a #
				}
				if e.Status = ask(t, address, e); e.Status != 204 {
					t.Errorf("%s answers %d to %q", s.binary, e.Status, e.Target)
				}
				sent = append(sent, e)
				for name := range s.logs { // a server with several threads logs the next one sooner
					awaitLines(t, filepath.Join(dir, name), len(sent))
				}
			}
			for name, o := range s.logs {
				s.check(t, filepath.Join(dir, name), o, sent, before)
			}
		})
	}
}

// awaitLines waits until n requests are logged.
func awaitLines(t *testing.T, path string, n int) {
	t.Helper()
	if !await.So(func() bool {
		text, _ := os.ReadFile(path)
		return strings.Count(string(text), " HTTP/1.1")+strings.Count(string(text), `"HTTP/1.1"`) >= n
	}) {
		t.Fatalf("the log %s has not all of %d requests", path, n)
	}
}

// ask sends a request and returns the status.
func ask(t *testing.T, address string, e Entry) (status int) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	authorization := ""
	if e.User != "" {
		authorization = "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(e.User+":secret")) + "\r\n"
	}
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: shop.example:8080\r\nUser-Agent: %s\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", e.Method, e.Target, e.header("User-Agent"), authorization)
	answer, err := io.ReadAll(c)
	if err != nil && len(answer) == 0 {
		t.Fatal(err)
	}
	fmt.Sscanf(string(answer), "HTTP/1.1 %d", &status)
	return status
}

func (s realServer) check(t *testing.T, path string, o Options, sent []Entry, before time.Time) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, o, path)
	var got []Entry
	for _, e := range readAll(t, l) {
		if e.Target != "" { // not the dial that awaited it
			got = append(got, e)
		}
	}
	if n, first := l.Unread(); n > 0 && s.logs["output"].Zone == nil { // which has more than requests
		t.Errorf("%d lines are unread: %+v, of\n%s", n, first, text)
	}
	if len(got) != len(sent) {
		t.Fatalf("%d entries, want %d, of\n%s", len(got), len(sent), text)
	}
	for i, want := range sent {
		g := got[i]
		if when := time.UnixMicro(g.At); when.Before(before.Add(-2*time.Second)) || when.After(time.Now().Add(time.Second)) {
			t.Errorf("%s: %v, and it was %v", filepath.Base(path), when, before)
		}
		if g.Method != want.Method || g.Target != want.Target || g.Status != want.Status || g.Client != addr("127.0.0.1") || l.Has().Host && g.Host != "shop.example:8080" {
			t.Errorf("%s:\n got %+v\nwant %+v, of\n%s", filepath.Base(path), g, want, text)
		}
		for _, field := range s.fields {
			if gotText, wantText := g.header(field), want.header(field); field == "User" && g.User != want.User || gotText != wantText {
				t.Errorf("%s: %s is %q of %q: want %q of %q", filepath.Base(path), field, gotText, g.User, wantText, want.User)
			}
		}
	}
}
