package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// countingBy is a Store that keeps which rules counted a request, and by which keys.
type countingBy struct {
	stint.Store
	mu  sync.Mutex
	all []counted
}

// counted is a request that was counted: its keys by the names of rules.
type counted map[string]string

// Take implements stint.Store.
func (c *countingBy) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	one := counted{}
	for i := range r.Asks {
		one[r.Asks[i].Limit.Spec().Name] = strings.Clone(r.Asks[i].Key)
	}
	c.mu.Lock()
	c.all = append(c.all, one)
	c.mu.Unlock()
	return c.Store.Take(ctx, r, out)
}

// take returns what was counted since it was called before.
func (c *countingBy) take() []counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// understood is a request as an upstream understands it: texts by name, of some several,
// one for each of the ways in which programs there read it.
type understood map[string][]string

func (u understood) one(name string) string { return strings.Join(u[name], "\n") }

func (u understood) String() string {
	var b strings.Builder
	for _, name := range []string{"by", "method", "raw", "path", "where", "user", "host", "key", "client", "id"} {
		if texts := slices.Compact(slices.Sorted(slices.Values(u[name]))); len(texts) > 0 {
			fmt.Fprintf(&b, " %s %q", name, texts)
		}
	}
	return b.String()
}

// understanding is a real upstream that tells what it understands.
type understanding struct {
	name, addr string
	url        *url.URL
	told       net.PacketConn
	fences     int
	fence      net.Conn
}

// understandings start upstreams that tell a port by a datagram, for each request, what they understand of it. A line
// is a name and a text.
var understandings = []struct {
	name  string
	start func(t *testing.T, told string) *url.URL
}{
	{"nginx", func(t *testing.T, told string) *url.URL {
		return startProgram(t, "nginx", func(dir, port string) []string {
			return nginxArgs(t, "understood.conf", dir, "PORT", port, "LOG", told)
		})
	}},
	{"node", func(t *testing.T, told string) *url.URL { return startScript(t, "node", "understood.js", told) }},
	{"python", func(t *testing.T, told string) *url.URL { return startScript(t, "python3", "understood.py", told) }},
	{"go", startGo},
}

func startScript(t *testing.T, binary, file, told string) *url.URL {
	return startProgram(t, binary, func(_, port string) []string {
		return []string{filepath.Join("testdata", "upstreams", file), port, told}
	})
}

func startGo(t *testing.T, told string) *url.URL {
	to, err := net.Dial("udp4", "127.0.0.1:"+told)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	return upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		lines := []string{`by "go"`}
		tell := func(name string, texts ...string) {
			for _, text := range texts {
				lines = append(lines, fmt.Sprintf("%s \"%s\"", name, escaped(text)))
			}
		}
		tell("id", r.Header["X-Id"]...)
		tell("method", r.Method)
		tell("raw", r.RequestURI)
		tell("host", r.Host)
		tell("key", r.Header["X-Api-Key"]...)
		tell("client", r.Header["X-Client"]...)
		for name, values := range r.Header {
			for _, value := range values {
				tell("header", name+": "+value)
			}
		}
		tell("path", r.URL.Path, withSlash(path.Clean(r.URL.Path), r.URL.Path), r.URL.EscapedPath())
		tell("user", r.URL.Query()["user"]...)
		if u, err := url.Parse(r.RequestURI); err == nil {
			tell("path", u.Path)
			tell("user", u.Query()["user"]...)
		}
		_, _ = io.WriteString(to, strings.Join(lines, "\n"))
	})
}

// escaped is text as readUnderstood reads it.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func startUnderstanding(t *testing.T, i int) *understanding {
	told, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { told.Close() })
	_ = told.(*net.UDPConn).SetReadBuffer(4 << 20)
	_, port, _ := net.SplitHostPort(told.LocalAddr().String())
	u := understandings[i].start(t, port)
	up := &understanding{name: understandings[i].name, addr: u.Host, url: u, told: told}
	t.Cleanup(func() {
		if up.fence != nil {
			up.fence.Close()
		}
	})
	up.take(t)
	return up
}

// take returns what was understood since it was called before. It asks the upstream
// something itself, which tells when all is told.
func (up *understanding) take(t *testing.T) (all []understood) {
	buf := make([]byte, 1<<16)
	for range 20 {
		up.fences++
		id := fmt.Sprint("fence-", up.fences)
		if up.fence == nil {
			c, err := net.Dial("tcp", up.addr)
			if err != nil {
				t.Fatal(err)
			}
			up.fence = c
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
		if _, err := fmt.Fprintf(up.fence, "GET / HTTP/1.1\r\nHost: example.com\r\nX-Id: %s\r\n\r\n", id); err != nil {
			up.fence.Close()
			up.fence = nil
			continue
		}
		_ = up.told.SetReadDeadline(time.Now().Add(5 * time.Second))
		for {
			n, _, err := up.told.ReadFrom(buf)
			if err != nil {
				up.fence.Close()
				up.fence = nil
				break
			}
			one := readUnderstood(t, string(buf[:n]))
			switch said := one.one("id"); {
			case said == id:
				return all
			case strings.HasPrefix(said, "fence-"):
			case one["status"] != nil && one.one("status") != "200": // nginx refused it
			default:
				all = append(all, one)
			}
		}
	}
	t.Fatalf("%s does not tell what it understands", up.name)
	return nil
}

var escapedByte = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// readUnderstood reads lines of a name and a text.
func readUnderstood(t *testing.T, datagram string) understood {
	u := understood{}
	if _, of, ok := strings.Cut(datagram, "understood: "); ok && strings.HasPrefix(datagram, "<") { // syslog
		datagram = of
	}
	for line := range strings.SplitSeq(datagram, "\n") {
		name, text, _ := strings.Cut(line, " ")
		if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
			t.Fatalf("%q tells %q", datagram, line)
		}
		text = escapedByte.ReplaceAllStringFunc(text[1:len(text)-1], func(e string) string {
			b, _ := strconv.ParseUint(e[2:], 16, 8)
			return string([]byte{byte(b)})
		})
		if text != "-" { // so nginx writes what is not there
			u[name] = append(u[name], text)
		}
	}
	if by := u.one("by"); by == "nginx" {
		for _, user := range u["undecoded-user"] {
			if decoded, err := url.QueryUnescape(user); err == nil {
				u["user"] = append(u["user"], decoded)
			}
		}
	}
	return u
}

// attackRules are rules about all that an upstream understands. All limits are endless,
// so that nothing but what is malformed or on the blocklist is refused. A key cannot hold
// a NUL.
const attackRules = `
blocklist: ['request.path.is("/blocked")', 'request.headers["x-client"] == "bad"']
rules:
  - {name: all, key: client.ip, limits: [1000000000 per 1h]}
  - {name: id, match: '"x-id" in request.headers', key: 'request.headers["x-id"]', limits: [1000000000 per 1h]}
  - {name: login, match: request.path == "/login", key: '"all"', limits: [1000000000 per 1h]}
  - {name: admin, match: request.path.startsWith("/admin/"), key: '"all"', limits: [1000000000 per 1h]}
  - {name: item, match: 'request.path.matches("^/item/[^/]+$")', key: '"all"', limits: [1000000000 per 1h]}
  - {name: area, match: request.path.under("/area"), key: '"all"', limits: [1000000000 per 1h]}
  - {name: files, match: request.route == "files", key: '"all"', limits: [1000000000 per 1h]}
  - {name: post, match: request.method == "POST", key: '"all"', limits: [1000000000 per 1h]}
  - {name: user, match: '"user" in request.query && request.query.user != "" && !request.query.user.contains("\x00")', key: request.query.user, limits: [1000000000 per 1h]}
  - {name: me, match: '"user" in request.query && request.query.user == "me"', key: '"all"', limits: [1000000000 per 1h]}
  - {name: key, match: '"x-api-key" in request.headers && request.headers["x-api-key"] != ""', key: 'request.headers["x-api-key"]', limits: [1000000000 per 1h]}
  - {name: host, match: request.host != "", key: request.host, limits: [1000000000 per 1h]}
`

// faces says which rule a request as it is understood falls under that is not in c, or
// in c by another key; "": none does.
func (u understood) faces(c counted) string {
	paths, users := modelled(u.one("raw"))
	paths, users, keys := append(paths, u["path"]...), append(users, u["user"]...), u["key"]
	for _, line := range u["header"] {
		name, value, _ := strings.Cut(line, ": ")
		if strings.Map(inCGI, name) == "X_API_KEY" {
			keys = append(keys, value)
		}
	}
	applies := func(rule string) bool { _, ok := c[rule]; return ok }
	for _, p := range paths {
		if p == "/blocked" {
			return fmt.Sprintf("the path %q is on the blocklist", p)
		}
		for _, name := range facing(p) {
			if !applies(name) {
				return fmt.Sprintf("the path %q falls under the rule %s, which did not apply", p, name)
			}
		}
	}
	switch where := u.one("where"); {
	case where == "blocked":
		return "its location is on the blocklist"
	case where != "" && !applies(where):
		return fmt.Sprintf("its location falls under the rule %s, which did not apply", where)
	case slices.Contains(users, "me") && !applies("me"):
		return "it has the user me, and the rule for that did not apply"
	case slices.Contains(u["method"], "POST") && !applies("post"):
		return "it is a POST, and the rule for it did not apply"
	case slices.Contains(u["client"], "bad"):
		return "its client is on the blocklist"
	}
	for _, of := range []struct {
		rule  string
		texts []string
		as    func(string) string
	}{{"user", users, valid}, {"key", keys, valid}, {"host", u["host"], justHost}} {
		for _, text := range of.texts {
			if text = of.as(text); text != "" && text != valid(c[of.rule]) {
				return fmt.Sprintf("its %s is %q, and it was counted by %q", of.rule, text, c[of.rule])
			}
		}
	}
	return ""
}

// facing are the rules that a path falls under.
func facing(p string) (names []string) {
	if p == "/login" {
		names = append(names, "login")
	}
	if strings.HasPrefix(p, "/admin/") {
		names = append(names, "admin")
	}
	if isItem(p) {
		names = append(names, "item")
	}
	// Of a server that has no regard to case, slashes at the end and parameters.
	if lower := strings.ToLower(p); lower == "/area" || strings.HasPrefix(lower, "/area/") || strings.HasPrefix(lower, "/area;") {
		names = append(names, "area")
	}
	if p == "/files" || strings.HasPrefix(p, "/files/") {
		names = append(names, "files")
	}
	return names
}

var isItem = regexp.MustCompile("^/item/[^/]+$").MatchString

// valid is text with what is no UTF-8 in it as one replacement, as libraries differ about
// how many there are.
func valid(text string) string {
	return replacements.ReplaceAllString(strings.ToValidUTF8(text, "\ufffd"), "\ufffd")
}

var replacements = regexp.MustCompile("\ufffd+")

// justHost is the name in a Host header.
func justHost(text string) string {
	text = strings.TrimSuffix(strings.ToLower(text), ".")
	if six, ok := strings.CutPrefix(text, "["); ok {
		if in, rest, ok := strings.Cut(six, "]"); ok && (rest == "" || rest[0] == ':') {
			text = in
		}
	} else if strings.Count(text, ":") == 1 {
		text, _, _ = strings.Cut(text, ":")
		text = strings.TrimSuffix(text, ".")
	}
	return text
}

// inCGI is a letter of a header's name as CGI has it.
func inCGI(c rune) rune {
	switch {
	case 'a' <= c && c <= 'z':
		return c - 'a' + 'A'
	case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return c
	}
	return '_'
}
