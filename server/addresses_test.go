package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// ofOneClient are the ways to write the client 203.0.113.1.
var ofOneClient = []string{
	"203.0.113.1", "::ffff:203.0.113.1", "64:ff9b::cb00:7101", "2002:cb00:7101::1",
	"2001:0:4136:e378:8000:63bf:34ff:8efe", "2001:db8:64::cb00:7101", "2001:db8:4800:cb00:71:100::",
}

// Through every door, an IPv4 client has one count, is in one network and is shown as one, however it is
// written, and its neighbour behind the same NAT64 is another.
func TestOneClientThroughEveryDoor(t *testing.T) {
	send := func(h http.Handler, method, target, body, remote string, headers ...string) int {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.RemoteAddr = remote
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	allowed := func(s *server.Server, body string) int {
		if answer := check(s, body); strings.Contains(answer.Body.String(), `"allowed":true`) {
			return 200
		}
		return 429
	}
	const proxy = "[64:ff9b::c000:201]:1234" // a trusted proxy, through NAT64, too
	for name, door := range map[string]struct {
		header string
		ask    func(t *testing.T, s *server.Server, client string) int
	}{
		"connection": {"", func(t *testing.T, s *server.Server, client string) int {
			return send(s.Gateway(), "GET", "/", "", "["+client+"]:80")
		}},
		"X-Forwarded-For": {"", func(t *testing.T, s *server.Server, client string) int {
			return send(s.Gateway(), "GET", "/", "", proxy, "X-Forwarded-For", "198.51.100.1, "+client+", ::ffff:192.0.2.7")
		}},
		"X-Real-Ip": {"X-Real-Ip", func(t *testing.T, s *server.Server, client string) int {
			return send(s.Gateway(), "GET", "/", "", proxy, "X-Real-Ip", client)
		}},
		"Forwarded": {"Forwarded", func(t *testing.T, s *server.Server, client string) int {
			return send(s.Gateway(), "GET", "/", "", proxy, "Forwarded", `for=198.51.100.1, for="[`+client+`]:4711"`)
		}},
		"check": {"", func(t *testing.T, s *server.Server, client string) int {
			return allowed(s, `{"client": "`+client+`"}`)
		}},
		"check, descriptors": {"", func(t *testing.T, s *server.Server, client string) int {
			return allowed(s, `{"domain": "d", "descriptors": [{"entries": [{"key": "remote_address", "value": "`+client+`"}]}]}`)
		}},
		"authorize": {"", func(t *testing.T, s *server.Server, client string) int {
			return send(checkAPI(s), "GET", "/v1/authorize", "", proxy, "X-Forwarded-For", client, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "shop.example")
		}},
		"Decide": {"", func(t *testing.T, s *server.Server, client string) int {
			v, err := s.Decide(t.Context(), &rules.Input{Client: netip.MustParseAddr(client), Cost: 1}, time.Time{})
			if err != nil || v.Allowed {
				return 200
			}
			return 429
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			const all = "nat64_prefixes: [2001:db8:64::/96, 2001:db8:4800::/48]\ntrusted_proxies: [192.0.2.0/24]\n"
			const counts, blocks = "rules: [{name: client, key: client.ip, limits: [1 per 1h]}]", "blocklist: ['client.ip in cidr(\"203.0.113.1\")']\nrules: []"
			change := []func(*server.Config){everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) {})), func(c *server.Config) { c.Settings.ClientHeader = door.header }, logJSON(&log)}
			s, blocking := newServer(t, all+counts, change...), newServer(t, all+blocks, change...)
			for i, client := range ofOneClient {
				written := client
				if i == 0 && (name == "connection" || name == "Forwarded") {
					written = "::ffff:" + client // for it stands in brackets
				}
				want := 429
				if i == 0 {
					want = 200
				}
				if got := door.ask(t, s, written); got != want {
					t.Errorf("request %d, of %s: %d, want %d", i, written, got, want)
				}
				if got := door.ask(t, blocking, written); got == 200 {
					t.Errorf("%s is not blocked", written)
				}
			}
			for _, other := range []string{"64:ff9b::cb00:7102", "2001:db8:64::cb00:7103"} {
				for i, s := range []*server.Server{s, blocking} {
					if got := door.ask(t, s, other); got != 200 {
						t.Errorf("the neighbour %s: %d from %d", other, got, i)
					}
				}
			}
			// The log has some of the refusals.
			if text := log.taken(); !strings.Contains(text, `"client":"203.0.113.1"`) || strings.Count(text, `"client":"`) != strings.Count(text, `"client":"203.0.113.1"`) {
				t.Errorf("the log shows another client:\n%s", text)
			}
		})
	}
}

// Networks are accepted as a person writes them and kept in their only form, or the error shows that.
func TestSpellingsOfNetworks(t *testing.T) {
	o := operator{t, newServer(t, "nat64_prefixes: [2001:db8:64::/96]\n"+generous).Admin()}
	for _, path := range []string{"/v1/bans", "/v1/lists/blocklist", "/v1/lists/safelist"} {
		for network, want := range map[string]string{
			"203.0.113.9/24": "203.0.113.0/24", " 203.0.113.0/24 ": "203.0.113.0/24", "[2001:0DB8::1]/32": "2001:db8::/32", "[2001:DB8::1]": "2001:db8::1",
			"64:ff9b::cb00:7100/120": "203.0.113.0/24", "2002:cb00:7101::/48": "203.0.113.1", "2001:db8:64::cb00:7101": "203.0.113.1",
		} {
			o.want(201, "POST", path, `{"network":"`+network+`"}`, `"network":"`+want+`"`)
		}
		for network, want := range map[string]string{
			"010.0.0.1": "write 10.0.0.1", "10.0.0.0/08": "write 10.0.0.0/8", "10.0.0.0/255.0.0.0": "write 10.0.0.0/8", "10.0.0.1:80": "write 10.0.0.1",
			"2002::/16": "write the network of IPv4", "64:ff9b::/96": "write the network of IPv4", "2001:db8:64::/96": "write the network of IPv4",
		} {
			o.want(422, "POST", path, `{"network":"`+network+`"}`, want)
		}
	}
}
