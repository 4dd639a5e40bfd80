package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// repeatedRules count by a header and by a parameter.
const repeatedRules = `
trusted_proxies: [127.0.0.1/32]
rules:
  - {name: key, match: 'request.path == "/"', key: 'request.headers["x-api-key"]', limits: [2 per 24h fixed_window]}
  - {name: user, match: 'request.path == "/u"', key: request.query.user, limits: [2 per 24h fixed_window]}
`

// repeated are requests by which a client would be counted as another than the
// application takes it for.
var repeated = []struct {
	what, target string
	headers      []string
}{
	{"two lines", "/", []string{"X-Api-Key: k", "X-Api-Key: other1"}},
	{"the other way round", "/", []string{"X-Api-Key: other2", "X-Api-Key: k"}},
	{"in other letters", "/", []string{"X-Api-Key: k", "x-API-key: other3"}},
	{"an underscore", "/", []string{"X-Api-Key: other4", "X_Api_Key: k"}},
	{"an underscore alone", "/", []string{"X_Api_Key: k"}},
	{"two parameters", "/u?user=k&user=other1", nil},
	{"an escaped one", "/u?user=other2&%75ser=k", nil},
	{"a list", "/u?user=other3&user[]=k", nil},
	{"a list alone", "/u?user%5B%5D=k", nil},
	{"capitals", "/u?USER=k", nil},
	{"two tokens", "/", []string{"X-Api-Key: k", "Authorization: Bearer a", "Authorization: Bearer b"}},
}

// knows is an application that takes the first or the last of everything, and counts for
// whom it worked.
type knows struct {
	mu     sync.Mutex
	served map[string]int
}

func (k *knows) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, lines := range r.Header {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "X-Api-Key") {
			k.served[lines[0]]++
			k.served[lines[len(lines)-1]]++
		}
	}
	for name, values := range r.URL.Query() {
		if strings.EqualFold(strings.TrimSuffix(name, "[]"), "user") {
			k.served[values[0]]++
			k.served[values[len(values)-1]]++
		}
	}
}

// times is for how many requests it worked for client k, and forgets them.
func (k *knows) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.served["k"]
	k.served = map[string]int{}
	return n / 2
}

// Nobody is served more often than the limit says by sending a header or a parameter
// twice, or under a name that the application takes for it: through the gateway by
// HTTP/1.1 and HTTP/2, behind nginx, Caddy and HAProxy, and in a check.
func TestAttackRepeated(t *testing.T) {
	app := &knows{served: map[string]int{}}
	up := upstream(t, app.ServeHTTP)
	g := start(t, newServer(t, repeatedRules, everythingTo(up)))
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	byH2 := func(target string, headers []string) int {
		r, err := http.NewRequest("GET", "http://"+g.gateway+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range headers {
			name, value, _ := strings.Cut(line, ": ")
			r.Header[http.CanonicalHeaderKey(name)] = append(r.Header[http.CanonicalHeaderKey(name)], value)
		}
		resp, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for i, c := range repeated {
		got := send(t, g.gateway, "GET", c.target, c.headers...)
		if p := got.problem(t); got.StatusCode != 400 || !strings.Contains(p, "which servers read in different ways") {
			t.Errorf("gateway, %s: %s %s", c.what, got.Status, got.body)
		}
		if status := byH2(c.target, c.headers); status != 400 {
			t.Errorf("gateway by HTTP/2, %s: %d", c.what, status)
		}
		if n := app.times(); n > 0 {
			t.Errorf("gateway, %s: served %d times", c.what, n)
		}
		body := fmt.Sprintf(`{"request":{"path":%q,"headers":{%s}}}`, c.target, asJSON(c.headers))
		w := check(newServer(t, repeatedRules), body)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "the request has a ") {
			t.Errorf("check %d, %s: %d %s", i, body, w.Code, w.Body)
		}
	}
	for _, c := range []struct {
		target  string
		headers []string
	}{{"/", []string{"X-Api-Key: k"}}, {"/u?user=k", nil}} {
		for i := range 3 {
			if got := send(t, g.gateway, "GET", c.target, c.headers...); (got.StatusCode == 200) != (i < 2) {
				t.Errorf("request %d of good faith: %s", i, got.Status)
			}
		}
	}
	app.times()
	for _, p := range realProxies {
		t.Run(p.binary, func(t *testing.T) {
			addr := p.start(t, start(t, newServer(t, repeatedRules)).check, up.Host)
			for _, c := range repeated {
				got := sendFrom(t, "127.0.0.2", addr, "GET", c.target, "", c.headers...)
				// nginx drops headers with underscores, before it asks and before it passes on.
				if n := app.times(); n > 0 || got.StatusCode != 400 && !(p.binary == "nginx" && strings.HasPrefix(c.what, "an underscore")) {
					t.Errorf("%s: %s, served %d times", c.what, got.Status, n)
				}
			}
		})
	}
}

// asJSON are headers as in a check.
func asJSON(headers []string) string {
	lines := map[string][]string{}
	var names []string
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name = http.CanonicalHeaderKey(name); lines[name] == nil {
			names = append(names, name)
		}
		lines[name] = append(lines[name], fmt.Sprintf("%q", value))
	}
	var members []string
	for _, name := range names {
		members = append(members, fmt.Sprintf("%q:[%s]", name, strings.Join(lines[name], ",")))
	}
	return strings.Join(members, ",")
}

// What is repeatable, and what is allowed, passes; a rule sees all of a list.
func TestRepeatedAllowed(t *testing.T) {
	const lists = `
repeatable: {headers: [X-Roles], parameters: [tag]}
rules:
  - {name: roles, key: '[request.headers["x-roles"], request.query.tag]', limits: [9 per 1h]}
`
	const two = `{"request":{"path":"/?tag=a&tag=b","headers":{"x-roles":["c","d"]}}}`
	s := newServer(t, lists)
	if w := check(s, two); w.Code != 200 || !strings.Contains(w.Body.String(), `"remaining":8`) {
		t.Errorf("repeatable: %d %s", w.Code, w.Body)
	}
	if w := check(s, `{"request":{"path":"/?tag=a,+b","headers":{"x-roles":"c, d"}}}`); !strings.Contains(w.Body.String(), `"remaining":7`) {
		t.Errorf("in one line: %d %s", w.Code, w.Body)
	}
	file := strings.Replace(lists, "repeatable: {headers: [X-Roles], parameters: [tag]}", "", 1)
	if w := check(newServer(t, file), two); w.Code != 400 {
		t.Errorf("not repeatable: %d %s", w.Code, w.Body)
	}
	for allowed, status := range map[rules.Ambiguity]int{
		rules.AnyAmbiguity: 200, rules.RepeatedHeader | rules.RepeatedParameter: 200, rules.RepeatedHeader: 400, rules.TwinHeader | rules.RepeatedParameter: 400,
	} {
		s := newServer(t, file, func(c *server.Config) { c.Settings.AllowAmbiguous = allowed })
		if w := check(s, two); w.Code != status {
			t.Errorf("%s allowed: %d %s", allowed, w.Code, w.Body)
		}
	}
}

// What stands in front is told to the upstream under one name only: what a client says of
// itself under a name that the upstream takes for it ends here.
func TestForwardedTwins(t *testing.T) {
	var seen http.Header
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })
	for _, trusted := range []string{"", "trusted_proxies: [127.0.0.1/32]\n"} {
		g := start(t, newServer(t, trusted+many, everythingTo(up), func(c *server.Config) { c.Settings.ClientHeader = "X-My-Ip" }))
		got := send(t, g.gateway, "GET", "/", "X_Forwarded_For: 1.1.1.1", "X_FORWARDED_PROTO: https", "X.Real.Ip: 1.1.1.1", "x_my_ip: 1.1.1.1", "X_Other: kept", "X-My-Ip: 192.0.2.1")
		if got.StatusCode != 200 || seen.Get("X_other") != "kept" {
			t.Fatalf("%s %v", got.Status, seen)
		}
		for name := range seen {
			if name != "X_other" && strings.ContainsAny(name, "_.") {
				t.Errorf("%q: the upstream got %s", trusted, name)
			}
		}
	}
}

// A handler of a program is protected as an upstream is.
func TestRepeatedWrapped(t *testing.T) {
	h := newServer(t, repeatedRules).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it passed") }))
	for _, c := range repeated {
		r := httptest.NewRequest("GET", c.target, nil)
		for _, line := range c.headers {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 400 {
			t.Errorf("%s: %d", c.what, w.Code)
		}
	}
}
