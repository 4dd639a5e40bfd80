package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const byRoute = `
trusted_proxies: [192.0.2.0/24]
rules:
  - {name: orders, match: request.route == "orders", key: '"all"', limits: [1 per 1h]}
  - {name: shop, match: request.route == "shop.root", key: '"all"', limits: [1 per 1h]}
`

// The route that a request takes is the one whose name the rules see: through the gateway,
// where it goes, and where another proxy asks, where it would go. It is one route in all
// spellings of a path.
func TestRouteNames(t *testing.T) {
	const orders, shop, other = "orders 204", "shop 204", "other 204"
	up := func(name string) func(w http.ResponseWriter, _ *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Upstream", name); w.WriteHeader(204) }
	}
	all := routes(
		config.Route{Name: "shop.root", Host: "shop.example", Path: "/", Upstream: upstream(t, up("shop"))},
		config.Route{Name: "orders", Path: "/orders", Upstream: upstream(t, up("orders"))},
		config.Route{Path: "/", Upstream: upstream(t, up("other"))},
	)
	cases := []struct {
		target, host string
		gateway      string
		asked        int
	}{
		{"/orders", "a.example", orders, 200},
		{"/orders/5?x=1", "a.example", "429", 429},
		{"/%6frders", "a.example", "429", 429},
		{"/x/../orders", "a.example", "400", 400},
		{"/ordersx", "a.example", other, 200},
		{"/other", "a.example", other, 200},
		{"/orders", "shop.example", shop, 200},
		{"/", "SHOP.example:80", "429", 429},
	}
	gateway := start(t, newServer(t, byRoute, all)).gateway
	asked := checkAPI(newServer(t, byRoute, all))
	for _, c := range cases {
		a := send(t, gateway, "GET", c.target, "Host: "+c.host)
		got := fmt.Sprint(a.StatusCode)
		if name := a.Header.Get("Upstream"); name != "" {
			got = name + " " + got
		}
		if got != c.gateway {
			t.Errorf("gateway: %s%s: %s, want %s", c.host, c.target, got, c.gateway)
		}
		if got := authorize(asked, "GET", "/v1/authorize", "X-Original-Method: GET", "X-Original-URI: "+c.target, "X-Original-Host: "+c.host, "X-Forwarded-For: 203.0.113.1"); got.StatusCode != c.asked {
			t.Errorf("authorize: %s%s: %d, want %d", c.host, c.target, got.StatusCode, c.asked)
		}
	}
	// In a check it is what the caller says, and nothing else.
	check := newServer(t, byRoute, all)
	for body, want := range map[string]string{
		`{"request":{"path":"/orders"}}`:                 "allowed ",
		`{"request":{"path":"/x","route":"orders"}}`:     "allowed orders",
		`{"request":{"path":"/orders","route":"other"}}`: "allowed ",
	} {
		if got := outcomeAndRule(t, check, body); got != want {
			t.Errorf("check %s: %s, want %s", body, got, want)
		}
	}
}

// outcomeAndRule is what a check comes to.
func outcomeAndRule(t *testing.T, s *server.Server, body string) string {
	t.Helper()
	in, err := server.ReadInput([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Decide(t.Context(), in, noon)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	if x.Rule != nil {
		name = x.Rule.Name
	}
	return x.Outcome.String() + " " + name
}

// A rule without a key counts by the route, where there is no operation.
func TestRouteInDefaultKey(t *testing.T) {
	s := newServer(t, "rules: [{name: all, limits: [1 per 1h]}]", routes(
		config.Route{Name: "a", Path: "/a", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) {})},
		config.Route{Name: "b", Path: "/b", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) {})},
	))
	gateway := start(t, s).gateway
	var got []int
	for _, target := range []string{"/a/1", "/a/2", "/b/1", "/b/2"} {
		got = append(got, send(t, gateway, "GET", target).StatusCode)
	}
	if fmt.Sprint(got) != "[200 429 200 429]" {
		t.Error(got)
	}
}

// An explanation takes a request that tells no route for one that comes through the
// gateway.
func TestExplainRoute(t *testing.T) {
	s := newServer(t, byRoute, routes(config.Route{Name: "orders", Path: "/orders", Upstream: upstream(t, empty)}))
	for body, want := range map[string]bool{
		`{"request":{"path":"/orders/5"}}`:                true,
		`{"request":{"path":"/other"}}`:                   false,
		`{"request":{"path":"/other","route":"orders"}}`:  true,
		`{"request":{"path":"/orders/5","route":"shop"}}`: false,
		`{"client":"192.0.2.1"}`:                          false,
	} {
		in, err := server.ReadInput([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Explain(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.HasPrefix(x.Words[0], "Rule orders applies"); got != want {
			t.Errorf("%s: %q", body, x.Words)
		}
	}
}
