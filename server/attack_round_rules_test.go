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

// A spelled request is sent to a gateway, in HTTP/1.1 or HTTP/2.
type spelled func(t *testing.T, addr string)

func h1(target string, headers ...string) spelled {
	return func(t *testing.T, addr string) { send(t, addr, "GET", target, headers...) }
}

func h2(host, path string, more ...string) spelled {
	return func(t *testing.T, addr string) { overHTTP2(t, addr, overHTTP2To(host, path, more...)) }
}

// spellings are what spell makes of each of the texts.
func spellings(spell func(text string) []spelled, texts ...string) (all []spelled) {
	for _, text := range texts {
		all = append(all, spell(text)...)
	}
	return all
}

// attackRow has requests that an upstream takes for the same. It may serve so many of them.
type attackRow struct {
	about    string
	requests []spelled
	served   int64
	host     string // which the upstream was told; empty: not looked at
}

// roundRules sends the requests of each row to a gateway with these rules, before an upstream that
// calls serve, with the host that it was told, where it takes a request for one of a rule's.
func roundRules(t *testing.T, file string, up func(t *testing.T, serve func(host string)) *url.URL, rows []attackRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.about, func(t *testing.T) {
			var served atomic.Int64
			var host atomic.Value
			g := start(t, newServer(t, file, everythingTo(up(t, func(at string) {
				served.Add(1)
				host.Store(at)
			}))))
			for _, send := range row.requests {
				send(t, g.gateway)
			}
			if n := served.Load(); n != row.served {
				t.Errorf("%d were served, want %d; the last as %q", n, row.served, host.Load())
			}
			if at, _ := host.Load().(string); row.host != "" && at != row.host && !strings.HasPrefix(at, row.host+":") {
				t.Errorf("the upstream was told the host %q, want %q", at, row.host)
			}
		})
	}
}

// everyRequest is an upstream in Go that serves all.
func everyRequest(t *testing.T, serve func(host string)) *url.URL {
	return upstream(t, func(_ http.ResponseWriter, r *http.Request) { serve(r.Host) })
}

// HTTP/2 leaves spaces in a path and around a value, which go lost on the way to the upstream: a
// client must not get a count of its own by them.
func TestAttackHTTP2Spaces(t *testing.T) {
	const file = `
rules:
  - {name: login, match: request.path == "/login", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: key, match: request.path == "/", key: 'request.headers["x-api-key"]', limits: [1 per 24h fixed_window]}`
	path := func(path string) []spelled { return []spelled{h2("example.com", path)} }
	key := func(key string) []spelled { return []spelled{h2("example.com", "/", "x-api-key", key)} }
	readsLines := func(t *testing.T, serve func(string)) *url.URL {
		return lenient(t, func(target string) {
			if target == "/" || target == "/login" {
				serve("")
			}
		})
	}
	roundRules(t, file, readsLines, []attackRow{
		{"in paths", spellings(path, "/login", "/login ", "/login  ", "/login HTTP/1.1", "/login x", "/login\t"), 1, ""},
		{"around a key", spellings(key, "k", " k", "k ", "  k", "\tk", "k\t ", " \t k"), 1, ""},
	})
}

// An upstream is told another host than the client says where that is none by ASCII, or has a zone,
// or is empty. Rules must not be passed by so.
func TestAttackHostsThatChange(t *testing.T) {
	const file = `
rules:
  - {name: books, match: request.host == "xn--bcher-kva.example", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: example, match: request.host == "example.com", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: six, match: 'request.host == "::1"', key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: own, match: request.host == "127.0.0.1", key: '"all"', limits: [1 per 24h fixed_window]}`
	host := func(host string) []spelled {
		return []spelled{h2(host, "/"), h1("http://"+host+"/", "Host: x"), h1("/", "Host: "+host)}
	}
	none := h1("/", "Host:")
	roundRules(t, file, everyRequest, []attackRow{
		{"letters", spellings(host, "xn--bcher-kva.example", "bücher.example", "BÜCHER.example", "bu\u0308cher.example"), 1, "xn--bcher-kva.example"},
		{"forms", spellings(host, "example.com", "ｅｘａｍｐｌｅ.com", "example。com", "exam\u00adple.com", "example.com/x", "example.com x", "example.com "), 1, "example.com"},
		{"zones", spellings(host, "[::1]", "[::1%a]", "[::1%25b]", "[::1%c]:80", "[::1]:80", "[::1]."), 1, "[::1]"},
		{"no host", []spelled{none, none, none}, 1, "127.0.0.1"},
	})
}

// A header that Connection names goes no further than the gateway, so rules do not see it, either: it
// must not make another client of one whom the upstream takes for nobody.
func TestAttackConnectionNames(t *testing.T) {
	const file = `
rules:
  - {name: key, key: 'request.headers["x-api-key"]', limits: [100 per 1h]}
  - {name: nobody, match: '!("x-api-key" in request.headers)', key: client.ip, limits: [2 per 1h]}`
	nobody := func(t *testing.T, serve func(string)) *url.URL {
		return upstream(t, func(_ http.ResponseWriter, r *http.Request) {
			if len(r.Header["X-Api-Key"]) == 0 { // it knows no such key
				serve("")
			}
		})
	}
	named := func(by ...string) (all []spelled) {
		for i := range 20 {
			all = append(all, h1("/", append(by[:len(by):len(by)], fmt.Sprint("X-Api-Key: ", i))...))
		}
		return all
	}
	roundRules(t, file, nobody, []attackRow{
		{"one line", named("Connection: keep-alive, X-Api-Key"), 2, ""},
		{"two lines", named("Connection: close", "Connection: x-api-KEY"), 2, ""},
		{"odd", named("Connection: ,\tX-API-Key ,,"), 2, ""},
	})
}

// overHTTP2To is the fields of a request for path at a host, with more.
func overHTTP2To(host, path string, more ...string) []hpack.HeaderField {
	fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: host}, {Name: ":path", Value: path}}
	for i := 0; i < len(more); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	return fields
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
