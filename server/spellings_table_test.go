package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// Nobody gets round a rule by another spelling of a request, at any door. What servers read in different ways is
// refused, and what they read alike counts as one.
func TestAttackSpellings(t *testing.T) {
	for _, c := range append(spellingsTable(), oneCaller) {
		t.Run(c.about, func(t *testing.T) {
			app := startLenient(t)
			for _, d := range spellingDoors {
				if c.at == nil && !d.isProxy() || c.at != nil && c.at(&d) {
					t.Run(d.name, func(t *testing.T) {
						for i, n := range c.run(t, &d, app) {
							if n != c.served {
								t.Errorf("%d were served, want %d, of %q", n, c.served, c.same[i])
							}
						}
					})
				}
			}
		})
	}
}

// spell are requests that by makes of texts.
func spell(by func(text string) spelled, texts ...string) (all []spelled) {
	for _, text := range texts {
		all = append(all, by(text))
	}
	return all
}

func get(target string) spelled    { return spelled{"GET", target, "example.com", nil} }
func post(target string) spelled   { return spelled{"POST", target, "example.com", nil} }
func loggingIn(by string) spelled  { return spelled{by, "/login", "example.com", nil} }
func at(host string) spelled       { return spelled{"GET", "/", host, nil} }
func with(lines ...string) spelled { return spelled{"GET", "/", "example.com", lines} }
func withKey(text string) spelled  { return with("X-Api-Key: " + text) }
func times(n int, r spelled) []spelled {
	return spell(func(string) spelled { return r }, make([]string, n)...)
}

// loginRule is the README's.
const loginRule = `
rules: [{name: login, match: request.method == "POST" && request.path.is("/login"), key: client.ip, limits: [2 per 1h]}]`

// repeatedRules count by a header and by a parameter. A client must not be counted as another than the application
// takes it for.
const repeatedRules = `
rules:
  - {name: key, match: 'request.path == "/"', key: 'request.headers["x-api-key"]', limits: [2 per 24h fixed_window]}
  - {name: user, match: 'request.path == "/u"', key: request.query.user, limits: [2 per 24h fixed_window]}
`

// mistakable are hosts that some server takes for admin.example, or net/http makes it of on
// the way: nginx reads up to the first colon, what parses URLs behind an @ and decodes.
var mistakable = append(strings.Fields(`admin.example:80:80 admin.example:80:x admin.example::80 admin.example:x admin.example:80@x admin.example:-1 :80:admin.example
	x@admin.example x:y@admin.example admin%2eexample admin.example%00 admin.example%2f admin.example,x x,admin.example admin.example;x [::1 [::1]x [::1]:x [admin.example] [::1%25x] ::1 :80
	ａdmin.example admin。example admin.example/ x/admin.example admin.example# admin.example? admin.example\x "admin.example"`), "admin.example x")

// pathForms are taken for /login by some server.
var pathForms = []string{"/login", "/login/", "/LOGIN", "/Login/", "/login;a=b", "/login;", "/login%3Bjsessionid=1", "/login%2f", "//login", "/./login", "/x/../login",
	"/x/..;/login", `/login\`, `\login`, "/%6Cogin", "/%4cogin", "/%256Cogin", "/login//", "/login.", "/login%20", "/%C5%BFlogin/../login", "/%2e/login", "/login/."}

// unsent are targets that no proper client sends.
var unsent = []string{"/login#x", "/login#?a", "/x?a#b", "#", "/login%00", "/login%00.html", "/login%0a", "/%0D%0Ax", "/log%09in", "/login%7f", "/x/%1F", "/%00"}

func spellingsTable() []spellings {
	const (
		byHost = `
rules:
  - {name: admin, match: request.host == "admin.example", key: '"all"', limits: [1 per 24h]}
  - {name: rest, key: '"all"', limits: [1000000 per 1h]}`
		byPath = `rules: [{name: login, match: request.path.is("/login"), key: client.ip, limits: [9 per 1h]}]`
		lists  = `rules: [{name: roles, key: '[request.headers["x-roles"], request.query.tag]', limits: [1 per 24h]}]`
		spaces = `
rules:
  - {name: login, match: request.path == "/login", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: key, match: request.path == "/", key: 'request.headers["x-api-key"]', limits: [1 per 24h fixed_window]}`
		byHosts = `
rules:
  - {name: books, match: request.host == "xn--bcher-kva.example", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: example, match: request.host == "example.com", key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: six, match: 'request.host == "::1"', key: '"all"', limits: [1 per 24h fixed_window]}
  - {name: own, match: request.host == "127.0.0.1", key: '"all"', limits: [1 per 24h fixed_window]}`
		nobody = `
rules:
  - {name: key, key: 'request.headers["x-api-key"]', limits: [100 per 1h]}
  - {name: nobody, match: '!("x-api-key" in request.headers)', key: client.ip, limits: [2 per 1h]}`
		controls = `rules: [{name: r, match: request.query.user == "me", key: '[request.headers["x-key"], request.host]', limits: [9 per 1h]}]`
	)
	// A header that Connection names goes no further than the gateway, so rules do not see it, either: it must not make
	// another client of one whom the upstream takes for nobody.
	named := func(by ...string) (all []spelled) {
		for i := range 20 {
			all = append(all, with(append(by[:len(by):len(by)], fmt.Sprint("X-Api-Key: ", i))...))
		}
		return all
	}
	atDoors := func(names ...string) func(*spellingDoor) bool {
		return func(d *spellingDoor) bool { return slices.Contains(names, d.name) }
	}
	// An application takes the first or the last of several, and takes CGI's names for others.
	repeated := slices.Concat([]spelled{
		with("X-Api-Key: k", "X-Api-Key: other1"), with("X-Api-Key: other2", "X-Api-Key: k"), with("X-Api-Key: k", "x-API-key: other3"),
		with("X-Api-Key: k", "Authorization: Bearer a", "Authorization: Bearer b"),
	}, spell(get, "/u?user=k&user=other1", "/u?user=other2&%75ser=k", "/u?user=other3&user[]=k", "/u?user%5B%5D=k", "/u?USER=k"))
	underscored := []spelled{with("X-Api-Key: other4", "X_Api_Key: k"), with("X_Api_Key: k")}
	unrepeated := [][]spelled{times(3, with("X-Api-Key: k")), times(3, get("/u?user=k"))}
	two := spelled{"GET", "/?tag=a&tag=b", "example.com", []string{"x-roles: c", "x-roles: d"}}
	table := []spellings{
		{about: "hosts", file: byHost, at: everywhere, refused: spell(at, mistakable...),
			fine: spell(at, "example.com", "a_b.example:8080", "azAZ09-~.example", "xn--mnchen-3ya.example", "192.0.2.1:1", "[2001:db8::1]", "[2001:db8::1]:443", "example.com."),
			same: [][]spelled{spell(at, "Admin.EXAMPLE", "admin.example:80", "admin.example.", "admin.example.:80", "admin.example:")}, served: 1},
		{about: "methods", file: loginRule, refused: spell(loggingIn, "post", "Post", "pOST", "POSt", "poSt"), same: [][]spelled{times(3, post("/login"))}, served: 2},
		{about: "methods that no rule looks at", file: byPath, fine: spell(loggingIn, "post")},
		{about: "methods, allowed", file: loginRule, change: allowAmbiguous, fine: spell(loggingIn, "post")},
		{about: "targets", file: loginRule, change: allowAmbiguous, refused: slices.Concat(spell(post, unsent...), spell(get, unsent...))},
		{about: "targets that no rule looks at", file: generous, change: allowAmbiguous, refused: slices.Concat(spell(post, unsent...), spell(get, unsent...))},
		{about: "paths", file: loginRule, at: everywhere, same: [][]spelled{slices.Concat(spell(post, pathForms...), spell(post, pathForms...))}, served: 2, orRefused: true},
		{about: "paths, allowed", file: loginRule, change: allowAmbiguous, same: [][]spelled{slices.Concat(spell(post, pathForms...), spell(post, pathForms...))}, served: 2, orRefused: true},
		{about: "slippery targets", file: attackRules, refused: spell(get, slippery...), fine: spell(get, ordinary...)},
		{about: "repeated", file: repeatedRules, at: func(d *spellingDoor) bool { return d.name != "nginx" }, says: "request has a ",
			refused: slices.Concat(repeated, underscored), same: unrepeated, served: 2},
		{about: "repeated, at nginx, which drops underscores", file: repeatedRules, at: atDoors("nginx"), refused: repeated,
			same: [][]spelled{slices.Concat(underscored, unrepeated[0]), unrepeated[1]}, served: 2,
			takes: func(s served) bool {
				return slices.Contains(s.header["X-Api-Key"], "k") || s.header["X_api_key"] != nil || s.target == "/u?user=k"
			}},
		{about: "lists", file: "repeatable: {headers: [X-Roles], parameters: [tag]}\n" + lists, at: everywhere,
			same: [][]spelled{{two, {"GET", "/?tag=a,+b", "example.com", []string{"x-roles: c, d"}}}}, served: 1},
		{about: "lists that are none", file: lists, refused: []spelled{two}},
		// HTTP/2 leaves spaces in a path and around a value, which go lost on the way to the upstream.
		{about: "spaces", file: spaces, same: [][]spelled{
			spell(get, "/login", "/login ", "/login  ", "/login HTTP/1.1", "/login x", "/login\t"),
			spell(withKey, "k", " k", "k ", "  k", "\tk", "k\t ", " \t k"),
		}, served: 1, orRefused: true},
		// An upstream is told another host than the client says where that is none by ASCII, or has a zone, or is empty.
		{about: "hosts that change", file: byHosts, same: [][]spelled{
			spell(at, "xn--bcher-kva.example", "bücher.example", "BÜCHER.example", "bu\u0308cher.example"),
			spell(at, "example.com", "ｅｘａｍｐｌｅ.com", "example。com", "exam\u00adple.com", "example.com/x", "example.com x", "example.com "),
			spell(at, "[::1]", "[::1%a]", "[::1%25b]", "[::1%c]:80", "[::1]:80", "[::1]."),
		}, served: 1, orRefused: true},
		{about: "no host", file: byHosts, at: atDoors("gateway"), same: [][]spelled{times(3, at(""))}, served: 1,
			takes: func(s served) bool { return strings.HasPrefix(s.host, "127.0.0.1:") }},
		// The other proxies pass on what Connection names.
		{about: "headers that Connection names", file: nobody, at: atDoors("gateway", "gateway by URL", "caddy"), same: [][]spelled{
			slices.Concat(named("Connection: keep-alive, X-Api-Key"), named("Connection: close", "Connection: x-api-KEY"), named("Connection: ,\tX-API-Key ,,")),
		}, served: 2, takes: func(s served) bool { return s.header["X-Api-Key"] == nil }},
		{about: "control characters", file: controls,
			refused: slices.Concat(spell(at, "a\x00b", "a\tb", "a\nb", "a\x7f"), spell(get, "/a\x00", "/?user=me\x00", "/?user=me%00"), spell(loggingIn, "GET\x00", "GE T"),
				[]spelled{with("x-key: a\x00"), with("x-key: a", "x-key: b\nc"), with("x-key: \x7f"), with("x\x00key: a")}),
			fine: []spelled{{"GET", "/a?b=%0a", "h:80", []string{"x-key: a\tb"}}}},
		{about: "the end of a line", file: controls, at: atDoors("check", "list of checks"), refused: spell(loggingIn, "GET\n")}, // HTTP's line would end
	}
	for allowed, passes := range map[rules.Ambiguity]bool{
		rules.AnyAmbiguity: true, rules.RepeatedHeader | rules.RepeatedParameter: true, rules.RepeatedHeader: false, rules.TwinHeader | rules.RepeatedParameter: false,
	} {
		row := spellings{about: fmt.Sprintf("lists, allowed: %.60s", allowed), file: lists, change: func(c *server.Config) { c.Settings.AllowAmbiguous = allowed }}
		if passes {
			row.fine = []spelled{two}
		} else {
			row.refused = []spelled{two}
		}
		table = append(table, row)
	}
	return table
}

// Control characters are refused where no other door has a query by itself, or a header's value that is no list.
func TestCheckRefusesControls(t *testing.T) {
	g := start(t, newServer(t, `rules: [{name: r, match: request.query.user == "me", key: 'request.headers["x-key"]', limits: [9 per 1h]}]`))
	for user, want := range map[string]int{"me": 200, "me\x00": 400} {
		for key, wantToo := range map[string]int{"k": 200, "k\x7f": 400} {
			request := map[string]any{"query": map[string]any{"user": user}, "headers": map[string]any{"x-key": key}}
			if got := askCheck(t, g.check, map[string]any{"request": request}); got.StatusCode != max(want, wantToo) {
				t.Errorf("%q: %s", request, got.Status)
			}
		}
	}
}
