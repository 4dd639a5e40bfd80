package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// overHTTP2To is the fields of a request for path at a host, with more.
func overHTTP2To(host, path string, more ...string) []hpack.HeaderField {
	fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: host}, {Name: ":path", Value: path}}
	for i := 0; i < len(more); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	return fields
}

// HTTP/2 leaves spaces in a path and around a value, which go lost on the way to the
// upstream: a client must not get a count of its own by them.
func TestAttackHTTP2Spaces(t *testing.T) {
	const file = `
rules:
  - {name: login, match: request.path == "/login", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: key, match: request.path == "/", key: 'request.headers["x-api-key"]', limits: [1 per 24h fixed_window]}`
	var served atomic.Int64
	to := lenient(t, func(target string) {
		if target == "/" || target == "/login" {
			served.Add(1)
		}
	})
	g := start(t, newServer(t, file, everythingTo(to)))
	for _, path := range []string{"/login", "/login ", "/login  ", "/login HTTP/1.1", "/login x", "/login\t"} {
		overHTTP2(t, g.gateway, overHTTP2To("example.com", path))
	}
	if n := served.Swap(0); n != 1 {
		t.Errorf("%d were served under a limit of 1, by spaces in paths", n)
	}
	for _, key := range []string{"k", " k", "k ", "  k", "\tk", "k\t ", " \t k"} {
		overHTTP2(t, g.gateway, overHTTP2To("example.com", "/", "x-api-key", key))
	}
	if n := served.Load(); n != 1 {
		t.Errorf("%d were served under a limit of 1, by spaces around a key", n)
	}
}

// lenient is an upstream that splits request lines at spaces, as nginx, Node and Python
// do, and shows the targets.
func lenient(t *testing.T, show func(target string)) *url.URL {
	l := listen(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if fields := strings.Fields(headOf(bufio.NewReader(c))); len(fields) > 1 {
					show(fields[1])
				}
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}
}

// headOf reads the head of a request, and returns its first line.
func headOf(in *bufio.Reader) (first string) {
	for {
		line, err := in.ReadString('\n')
		if first == "" {
			first = line
		}
		if err != nil || line == "\r\n" {
			return first
		}
	}
}

// An upstream is told another host than the client says where that is none by ASCII, or
// has a zone, or is empty. Rules must not be passed by so.
func TestAttackHostsThatChange(t *testing.T) {
	const file = `
rules:
  - {name: books, match: request.host == "xn--bcher-kva.example", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: example, match: request.host == "example.com", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: six, match: 'request.host == "::1"', key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: own, match: request.host == "127.0.0.1", key: '"all"', limits: [1 per 24h fixed_window]}`
	var hosts atomic.Value
	var served atomic.Int64
	g := start(t, newServer(t, file, everythingTo(upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		served.Add(1)
		hosts.Store(r.Host)
	}))))
	for own, others := range map[string][]string{
		"xn--bcher-kva.example": {"bücher.example", "BÜCHER.example", "bu\u0308cher.example"},
		"example.com":           {"ｅｘａｍｐｌｅ.com", "example。com", "exam\u00adple.com", "example.com/x", "example.com x", "example.com "},
		"[::1]":                 {"[::1%a]", "[::1%25b]", "[::1%c]:80", "[::1]:80", "[::1]."},
	} {
		overHTTP2(t, g.gateway, overHTTP2To(own, "/"))
		for _, host := range others {
			overHTTP2(t, g.gateway, overHTTP2To(host, "/"))
			send(t, g.gateway, "GET", "http://"+host+"/", "Host: x")
			send(t, g.gateway, "GET", "/", "Host: "+host)
		}
		if n := served.Swap(0); n != 1 {
			t.Errorf("%s: %d were served under a limit of 1, the last as %s", own, n, hosts.Load())
		}
	}
	for range 3 {
		send(t, g.gateway, "GET", "/", "Host:")
	}
	if n := served.Load(); n != 1 || hosts.Load() != "127.0.0.1" && !strings.HasPrefix(hosts.Load().(string), "127.0.0.1:") {
		t.Errorf("without a host: %d were served as %s under a limit of 1", n, hosts.Load())
	}
}
