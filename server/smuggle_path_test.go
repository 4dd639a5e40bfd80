package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint/server"
)

// protectedAPIs send a request to each API that decides requests.
var protectedAPIs = []struct {
	name string
	ask  func(t *testing.T, g *running, method, target string) (status int)
}{
	{"gateway", func(t *testing.T, g *running, method, target string) int {
		return send(t, g.gateway, method, target).StatusCode
	}},
	{"gateway, HTTP/2", func(t *testing.T, g *running, method, target string) int {
		if target == "#" || !strings.HasPrefix(target, "/") {
			return 400 // net/http has no such request
		}
		said := overHTTP2(t, g.gateway, []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: target}, {Name: ":authority", Value: "example.com"}})
		status, err := strconv.Atoi(said)
		if err != nil {
			t.Errorf("%s %s: %s", method, target, said)
		}
		return status
	}},
	{"authorize as nginx", func(t *testing.T, g *running, method, target string) int {
		return send(t, g.check, "GET", "/v1/authorize", "X-Original-Method: "+method, "X-Original-URI: "+target, "X-Forwarded-For: 127.0.0.1").StatusCode
	}},
	{"authorize as Caddy", func(t *testing.T, g *running, method, target string) int {
		return send(t, g.check, "GET", "/v1/authorize", "X-Forwarded-Method: "+method, "X-Forwarded-Uri: "+target, "X-Forwarded-For: 127.0.0.1").StatusCode
	}},
	{"check", func(t *testing.T, g *running, method, target string) int {
		return checkStatus(t, g.check, map[string]any{"client": "127.0.0.1", "request": map[string]any{"method": method, "path": target}})
	}},
	{"a list of checks", func(t *testing.T, g *running, method, target string) int {
		return checkStatus(t, g.check, []any{map[string]any{"client": "127.0.0.1", "request": map[string]any{"method": method, "path": target}}})
	}},
}

// checkStatus is the status of a check request, or that of the only check of a list.
func checkStatus(t *testing.T, addr string, question any) int {
	t.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, isList := question.([]any); !isList {
		return resp.StatusCode
	}
	var list []struct{ Status int }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", resp.Status, list, err)
	}
	return list[0].Status
}

// loginRule is the README's.
const loginRule = `
trusted_proxies: [127.0.0.1/32]
rules: [{name: login, match: request.method == "POST" && request.path.is("/login"), key: client.ip, limits: [2 per 1h]}]`

// A method in another case is no way round a rule, whatever the upstream makes of it.
func TestAttackMethodCase(t *testing.T) {
	to := startScript("python3", "wsgi.py")(t)
	methods := []string{"post", "Post", "pOST", "POSt", "poSt"}
	if got := send(t, to.Host, "pOsT", "/login"); got.body != "POST /login" {
		t.Fatalf("the upstream reads %q", got.body)
	}
	for _, api := range protectedAPIs {
		t.Run(api.name, func(t *testing.T) {
			g := start(t, newServer(t, loginRule, everythingTo(to)))
			passed := 0
			for range 4 {
				for _, method := range methods {
					switch status := api.ask(t, g, method, "/login"); {
					case status == 200:
						passed++
					case status != 400:
						t.Errorf("%s: %d", method, status)
					}
				}
			}
			if passed > 0 {
				t.Errorf("%d passed", passed)
			}
			for i, want := range []int{200, 200, 429} { // those were not counted
				if status := api.ask(t, g, "POST", "/login"); status != want {
					t.Errorf("POST %d: %d, want %d", i, status, want)
				}
			}
		})
	}
}

// Where no rule looks at the method it passes as it is, and where the settings let it.
func TestMethodCasePasses(t *testing.T) {
	const byPath = `rules: [{name: login, match: request.path.is("/login"), key: client.ip, limits: [9 per 1h]}]`
	for _, c := range []struct {
		rules  string
		change func(*server.Config)
		want   string
	}{
		{byPath, func(*server.Config) {}, "200 post"},
		{loginRule, allowAmbiguous, "200 post"},
		{loginRule, func(*server.Config) {}, "400 "},
	} {
		to := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) })
		g := start(t, newServer(t, c.rules, everythingTo(to), c.change))
		got := send(t, g.gateway, "post", "/login")
		if said := fmt.Sprint(got.StatusCode, " ", strings.TrimSuffix(got.body, got.problemText())); said != c.want {
			t.Errorf("got %s, want %s", said, c.want)
		}
	}
}

func (a answer) problemText() string {
	if a.Header.Get("Content-Type") == "application/problem+json" {
		return a.body
	}
	return ""
}

// A program whose handlers take post for POST is protected as the gateway's upstreams.
func TestMethodCaseInProgram(t *testing.T) {
	s := newServer(t, loginRule)
	passed := 0
	h := s.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Method, "POST") {
			passed++
		}
	}))
	for range 10 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/login", nil)
		r.Method = "post"
		if h.ServeHTTP(w, r); w.Code != 400 {
			t.Error(w.Code)
		}
	}
	if passed > 0 {
		t.Errorf("%d passed", passed)
	}
}

// What no proper client sends in a target is refused by every API, whatever the rules
// look at and the settings let through.
func TestAttackTargets(t *testing.T) {
	targets := []string{"/login#x", "/login#?a", "/x?a#b", "#", "/login%00", "/login%00.html", "/login%0a", "/%0D%0Ax", "/log%09in", "/login%7f", "/x/%1F", "/%00"}
	for _, rules := range []string{loginRule, "trusted_proxies: [127.0.0.1/32]\n" + generous} {
		g := start(t, newServer(t, rules, everythingTo(upstream(t, who("up"))), allowAmbiguous))
		for _, api := range protectedAPIs {
			for _, target := range targets {
				for _, method := range []string{"POST", "GET"} {
					if status := api.ask(t, g, method, target); status != 400 {
						t.Errorf("%s: %s %s: %d", api.name, method, target, status)
					}
				}
			}
		}
	}
}

// Other spellings of a path, which some server takes for the same, are counted by a
// rule for the path, or refused.
func TestAttackPathForms(t *testing.T) {
	forms := []string{"/login", "/login/", "/LOGIN", "/Login/", "/login;a=b", "/login;", "/login%3Bjsessionid=1", "/login%2f", "//login", "/./login", "/x/../login",
		"/x/..;/login", `/login\`, `\login`, "/%6Cogin", "/%4cogin", "/%256Cogin", "/login//", "/login.", "/login%20", "/%C5%BFlogin/../login", "/%2e/login", "/login/."}
	for name, allowed := range map[string]func(*server.Config){"by default": func(*server.Config) {}, "ambiguous: allow": allowAmbiguous} {
		for _, api := range protectedAPIs {
			t.Run(name+", "+api.name, func(t *testing.T) {
				g := start(t, newServer(t, loginRule, everythingTo(upstream(t, who("up"))), allowed))
				passed := 0
				for range 3 {
					for _, form := range forms {
						if !strings.HasPrefix(form, "/") && api.name == "gateway" {
							continue // net/http has no such request
						}
						switch status := api.ask(t, g, "POST", form); {
						case status == 200:
							passed++
						case status != 400 && status != 429:
							t.Errorf("%s: %d", form, status)
						}
					}
				}
				if passed != 2 {
					t.Errorf("%d passed, and 2 are allowed", passed)
				}
			})
		}
	}
}

// Control characters in what rules read of a check request are refused as they are in
// HTTP.
func TestCheckRefusesControls(t *testing.T) {
	g := start(t, newServer(t, `rules: [{name: r, match: request.query.user == "me", key: '[request.headers["x-key"], request.host]', limits: [9 per 1h]}]`))
	for _, request := range []map[string]any{
		{"method": "GET\x00"}, {"method": "GE T"}, {"method": "GET\n"},
		{"host": "a\x00b"}, {"host": "a\tb"}, {"host": "a\nb"}, {"host": "a\x7f"},
		{"headers": map[string]any{"x-key": "a\x00"}}, {"headers": map[string]any{"x-key": []string{"a", "b\nc"}}}, {"headers": map[string]any{"x-key": "\x7f"}},
		{"headers": map[string]any{"x\x00key": "a"}},
		{"path": "/a\x00"}, {"path": "/?user=me\x00"}, {"path": "/?user=me%00"}, {"query": map[string]any{"user": "me\x00"}},
	} {
		if status := checkStatus(t, g.check, map[string]any{"request": request}); status != 400 {
			t.Errorf("%q: %d", request, status)
		}
	}
	fine := map[string]any{"method": "GET", "host": "h:80", "path": "/a?b=%0a", "headers": map[string]any{"x-key": "a\tb"}}
	if status := checkStatus(t, g.check, map[string]any{"request": fine}); status != 200 {
		t.Errorf("what is fine: %d", status)
	}
}
