package server_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server"
)

// mistakable are hosts that some server takes for admin.example, or net/http makes it of on
// the way: nginx reads up to the first colon, what parses URLs behind an @ and decodes.
var mistakable = strings.Fields(`admin.example:80:80 admin.example:80:x admin.example::80 admin.example:x admin.example:80@x admin.example:-1 :80:admin.example
	x@admin.example x:y@admin.example admin%2eexample admin.example%00 admin.example%2f admin.example,x x,admin.example admin.example;x [::1 [::1]x [::1]:x [admin.example] [::1%25x] ::1 :80`)

// mistakableH2 are more, which net/http refuses in HTTP/1 by itself.
var mistakableH2 = []string{"ａdmin.example", "admin。example", "admin.example/", "x/admin.example", "admin.example x", "admin.example#", "admin.example?", "admin.example\\x", "\"admin.example\""}

// Nobody gets round a rule or a route for a host by another spelling of it: in every API,
// what is no name or address, with or without a port, is refused.
func TestAttackHosts(t *testing.T) {
	const file = `
trusted_proxies: [127.0.0.1]
rules:
  - {name: admin, match: request.host == "admin.example", key: '"all"', limits: [1 per 24h]}
  - {name: rest, key: '"all"', limits: [1000000 per 1h]}
`
	var seen atomic.Pointer[string]
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { seen.Store(&r.Host) })
	g := start(t, newServer(t, file, everythingTo(up), func(c *server.Config) { c.Settings.Dialect = httplimit.Draft11 }))
	overH2 := func(host string) string {
		return overHTTP2(t, g.gateway, []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: host}})
	}
	for _, host := range append(mistakable, mistakableH2...) {
		seen.Store(nil)
		if status := overH2(host); status != "400" && status != "PROTOCOL_ERROR" || seen.Load() != nil {
			t.Errorf("HTTP/2 %q: %s", host, status)
			if at := seen.Load(); at != nil {
				t.Errorf("%q reached the upstream as %q", host, *at)
			}
		}
		question := map[string]any{"client": "127.0.0.1", "request": map[string]any{"host": host, "path": "/"}}
		if status := checkStatus(t, g.check, question); status != 400 {
			t.Errorf("check %q: %d", host, status)
		}
		if status := checkStatus(t, g.check, []any{question}); status != 400 {
			t.Errorf("list of checks %q: %d", host, status)
		}
	}
	for _, host := range mistakable {
		if got := send(t, g.gateway, "GET", "/", "Host: "+host); got.StatusCode != 400 {
			t.Errorf("gateway %q: %d", host, got.StatusCode)
		}
		for _, name := range []string{"Original", "Forwarded"} {
			got := send(t, g.check, "GET", "/v1/authorize", "X-"+name+"-Method: GET", "X-"+name+"-Uri: /", "X-"+name+"-Host: "+host, "X-Forwarded-For: 127.0.0.1")
			if got.StatusCode != 400 {
				t.Errorf("X-%s-Host %q: %d", name, host, got.StatusCode)
			}
		}
	}
	for _, host := range []string{"example.com", "a_b.example:8080", "xn--mnchen-3ya.example", "192.0.2.1:1", "[2001:db8::1]", "[2001:db8::1]:443", "example.com."} {
		if got := send(t, g.gateway, "GET", "/", "Host: "+host); got.StatusCode != 200 || *seen.Load() != host {
			t.Errorf("%q: %d, and reached the upstream as %q", host, got.StatusCode, *seen.Load())
		}
	}
	for i, host := range []string{"Admin.EXAMPLE", "admin.example:80", "admin.example.", "admin.example.:80", "admin.example:"} {
		want := 429
		if i == 0 {
			want = 200
		}
		if got := send(t, g.gateway, "GET", "/", "Host: "+host); got.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, got.StatusCode, want)
		}
	}
}
