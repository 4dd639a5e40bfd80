package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// roundTrip sends a request of which each header is a name: value line, and Host is one of
// them, and returns the answer and its body.
func roundTrip(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if r.Header.Add(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp, bodyOf(t, resp)
}

const (
	aboutVictim = `{"client":"203.0.113.7"}`
	isJSON      = "Content-Type: application/json"
	victimRules = `
trusted_proxies: [127.0.0.1/32]
rules: [{name: client, key: client.ip, limits: [5 per 1h]}]
`
)

// asProxy are the headers that ask /v1/authorize about the victim.
var asProxy = []string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: /", "X-Forwarded-For: 203.0.113.7"}

// Nobody spends the quota of another through the check API: not a page in a browser on
// this machine, by any request that a browser lets it send, and not another machine
// that has no token.
func TestAttackCheckAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, token := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "token")
	put(t, token, "0123456789abcdef-shop\n")
	const bearer, byProxy = "Authorization: Bearer 0123456789abcdef-shop", "Stint-Token: 0123456789abcdef-shop"
	everywhere := []string{"--config", file, "--check-listen", ":0", "--admin-listen", "127.0.0.1:0"}
	type attack struct {
		name, method, path, body string
		headers                  []string
		want                     int
	}
	// try tells that all attacks come to nothing, and that the victim has lost nothing.
	try := func(t *testing.T, url string, honest []string, attacks []attack) {
		t.Helper()
		for _, a := range attacks {
			if resp, body := roundTrip(t, a.method, url+a.path, a.body, a.headers...); resp.StatusCode != a.want {
				t.Errorf("%s: %s %.200s, want %d", a.name, resp.Status, body, a.want)
			}
		}
		resp, body := roundTrip(t, "POST", url+"/v1/check", aboutVictim, honest...)
		if left := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != 200 || left != "4" {
			t.Errorf("after the attacks: %s %s, and the victim has %s left, want 4", resp.Status, body, left)
		}
	}

	t.Run("a page, on loopback", func(t *testing.T) {
		put(t, file, victimRules)
		_, s := process(t, "--config", file)
		port := s.check[strings.LastIndex(s.check, ":"):]
		evil, rebound := "Origin: https://evil.example", "Host: evil.example"+port
		try(t, s.check, []string{isJSON}, []attack{
			{"a form", "POST", "/v1/check", aboutVictim, []string{"Content-Type: text/plain", evil}, 403},
			{"a form of no page", "POST", "/v1/check", aboutVictim, []string{"Content-Type: text/plain"}, 415},
			{"a body of no type", "POST", "/v1/check", aboutVictim, nil, 415},
			{"two types", "POST", "/v1/check", aboutVictim, []string{isJSON, "Content-Type: text/plain"}, 415},
			{"a sandboxed frame", "POST", "/v1/check", aboutVictim, []string{isJSON, "Origin: null"}, 403},
			{"a page of another server on this machine", "POST", "/v1/check", aboutVictim, []string{isJSON, "Origin: http://localhost:3000"}, 403},
			{"what asks before it sends JSON", "OPTIONS", "/v1/check", "", []string{evil, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"}, 405},
			{"a page of a rebound name", "POST", "/v1/check", aboutVictim, []string{isJSON, rebound, "Origin: http://evil.example" + port}, 403},
			{"a rebound name, without Origin", "POST", "/v1/check", aboutVictim, []string{isJSON, rebound}, 403},
			{"a list", "POST", "/v1/check", "[" + aboutVictim + "," + aboutVictim + "]", []string{"Content-Type: text/plain"}, 415},
			{"as a proxy, by a rebound name", "GET", "/v1/authorize", "", append([]string{rebound}, asProxy...), 403},
			{"as a proxy, by what needs no asking", "GET", "/v1/authorize", "", []string{evil}, 400},
			{"what asks before it is a proxy", "OPTIONS", "/v1/authorize", "", []string{evil, "Access-Control-Request-Headers: x-forwarded-uri"}, 400},
			{"the names of rules", "GET", "/metrics", "", []string{rebound}, 403},
			{"whether it runs", "GET", "/healthz", "", nil, 200},
		})
	})

	t.Run("refused where nothing tells who asks", func(t *testing.T) {
		put(t, file, victimRules)
		c := launch(t, program(t, append([]string{"serve"}, everywhere...)...))
		state, said := c.wait(t), c.log.String()
		if state.Success() || !strings.Contains(said, "other machines may reach it") || !strings.Contains(said, "open: true") {
			t.Errorf("%s:\n%s", state, said)
		}
	})

	t.Run("tokens", func(t *testing.T) {
		put(t, file, "server: {probe_listen: \":0\", check: {tokens: [{name: shop, file: "+token+"}]}}\n"+victimRules)
		_, s := process(t, everywhere...)
		_, port, _ := strings.Cut(s.check, "]:")
		url := "http://127.0.0.1:" + port
		try(t, url, []string{isJSON, bearer, "Host: any.example"}, []attack{
			{"no token", "POST", "/v1/check", aboutVictim, []string{isJSON}, 401},
			{"a wrong one", "POST", "/v1/check", aboutVictim, []string{isJSON, bearer + "x"}, 401},
			{"a proxy's way", "POST", "/v1/check", aboutVictim, []string{isJSON, byProxy}, 401},
			{"a form", "POST", "/v1/check", aboutVictim, []string{bearer, "Content-Type: text/plain"}, 415},
			{"a proxy without", "GET", "/v1/authorize", "", asProxy, 403},
			{"a proxy whose client has one", "GET", "/v1/authorize", "", append([]string{bearer}, asProxy...), 403},
			{"a proxy with two", "GET", "/v1/authorize", "", append([]string{byProxy, byProxy}, asProxy...), 403},
			{"a proxy of nginx's", "GET", "/v1/authorize?deny_status=403", "", asProxy, 403},
			{"metrics", "GET", "/metrics", "", nil, 401},
			{"metrics by token", "GET", "/metrics", "", []string{bearer}, 200},
			{"a probe", "GET", "/readyz", "", nil, 200},
		})
		if resp, body := roundTrip(t, "GET", url+"/v1/authorize", "", append([]string{byProxy, "Authorization: Bearer the-client's", "Origin: https://shop.example"}, asProxy...)...); resp.StatusCode != 200 || resp.Header.Get("X-RateLimit-Remaining") != "3" {
			t.Errorf("a proxy: %s %s", resp.Status, body)
		}
		_, port, _ = strings.Cut(s.probes, "]:")
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/v1/check": 404, "/v1/authorize": 404} {
			if resp, body := roundTrip(t, "GET", "http://127.0.0.1:"+port+path, "", "Host: pod.example"); resp.StatusCode != want {
				t.Errorf("probe of %s: %s %s, want %d", path, resp.Status, body, want)
			}
		}
	})

	t.Run("open, and told", func(t *testing.T) {
		put(t, file, "server: {check_listen: \":8082\", check: {open: true}}\n"+victimRules)
		_, s := process(t, everywhere...)
		_, port, _ := strings.Cut(s.check, "]:")
		try(t, "http://127.0.0.1:"+port, []string{isJSON, "Host: any.example"}, []attack{
			{"a page", "POST", "/v1/check", aboutVictim, []string{isJSON, "Origin: https://evil.example"}, 403},
			{"a form", "POST", "/v1/check", aboutVictim, []string{"Content-Type: text/plain"}, 415},
		})
		if said := s.log.String(); !strings.Contains(said, "ST015") {
			t.Errorf("the log does not tell: %s", said)
		}
		if _, body := roundTrip(t, "GET", s.admin+"/v1/status", ""); !strings.Contains(body, "ST015") {
			t.Errorf("the status does not tell: %s", body)
		}
		out, err := program(t, "rules", "check", file).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), file+": warning ST015: ") {
			t.Errorf("rules check does not tell: %v\n%s", err, out)
		}
	})
}
