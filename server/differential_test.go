package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// misleading are rules that a target may get round.
const misleading = `
trusted_proxies: [127.0.0.1]
rules:
  - {name: login, match: request.path == "/login", key: '"all"', limits: [1000000000 per 1h]}
  - {name: admin, match: request.path.startsWith("/admin/"), key: '"all"', limits: [1000000000 per 1h]}
  - {name: item, match: 'request.path.matches("^/item/[^/]+$")', key: '"all"', limits: [1000000000 per 1h]}
  - {name: area, match: request.path.under("/area"), key: '"all"', limits: [1000000000 per 1h]}
  - {name: me, match: request.query.user == "me", key: '"all"', limits: [1000000000 per 1h]}
`

var isItem = regexp.MustCompile("^/item/[^/]+$").MatchString

// facing are the rules of misleading that a request faces if it is read so.
func (r *reading) facing() (names []string) {
	if r.path == "/login" {
		names = append(names, "login")
	}
	if strings.HasPrefix(r.path, "/admin/") {
		names = append(names, "admin")
	}
	if isItem(r.path) {
		names = append(names, "item")
	}
	// Of a server that has no regard to case, slashes at the end and parameters.
	if lower := strings.ToLower(r.path); lower == "/area" || strings.HasPrefix(lower, "/area/") || strings.HasPrefix(lower, "/area;") {
		names = append(names, "area")
	}
	if r.user == "me" {
		names = append(names, "me")
	}
	return names
}

// differential compares what the gateway's rules see with what an upstream behind it
// received and reads.
type differential struct {
	echoing
	*running
	refused, passed int
}

func newDifferential(t *testing.T, e echoing, changes ...func(*server.Config)) *differential {
	to := e.start(t)
	changes = append(changes, everythingTo(to), func(c *server.Config) { c.Settings.Dialect = httplimit.Draft11 })
	return &differential{echoing: e, running: start(t, newServer(t, misleading, changes...))}
}

// run sends targets over one connection, or several where it is closed, and returns
// what each of them gets round.
func (d *differential) run(t *testing.T, targets []string) (round []error) {
	var c net.Conn
	var in *bufio.Reader
	for _, target := range targets {
		if c == nil {
			var err error
			if c, err = net.Dial("tcp", d.gateway); err != nil {
				t.Fatal(err)
			}
			in = bufio.NewReader(c)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", target)
		got := conn{c, in}.answer(t, "GET")
		if got.Close {
			c.Close()
			c = nil
		}
		if err := d.judge(target, got); err != nil {
			round = append(round, err)
		}
	}
	if c != nil {
		c.Close()
	}
	return round
}

// judge says what is wrong with an answer to a target; nil: nothing is.
func (d *differential) judge(target string, got answer) error {
	policy := got.Header.Get("RateLimit-Policy")
	applied := func(rule string) bool { return strings.Contains(policy, fmt.Sprintf("%q", rule)) }
	switch {
	case got.StatusCode == 400:
		d.refused++ // by the gateway or by the upstream
		return nil
	case got.StatusCode != 200:
		return fmt.Errorf("%q: %s: %s", target, got.Status, got.body)
	}
	d.passed++
	raw, all, err := d.parse(got.body)
	if err != nil {
		return fmt.Errorf("%q: %w", target, err)
	}
	if raw != target {
		return fmt.Errorf("%q reached %s as %q", target, d.name, raw)
	}
	for _, r := range append(all, modelled(raw)...) {
		for _, rule := range r.facing() {
			if !applied(rule) {
				return fmt.Errorf("%q: %s reads the path %q and the user %q, and rule %s was not applied (applied: %s)", target, r.by, r.path, r.user, rule, policy)
			}
		}
	}
	return nil
}

// slippery are targets that are known to be read in different ways.
var slippery = strings.Fields(`
	/./login /x/../login /x/./../login /x/%2e%2e/login /x/.%2E/login /x//../login /../login /login/. /login/x/..
	/%2Flogin /%2flogin /x%2F..%2flogin /x/..%2Flogin /x%2f../login /admin%2Fx /admin/..%2flogin
	/admin/../x /admin/%2e%2e/x /item/a%2Fb /item/a%2F /item/..%2Fx /item/x/.. /item/x/../..
	\login /\login /%5clogin /x\..\login /x%5C..%5Clogin /x/..\login /admin\x
	/login;a=b /login;a=b;c /login; /x/..;/login /x/..;a/login /;a/login /login%3Ba=b /x;/../login /x;y/..;z/login /admin;x/y
	/login%00 /login%00.html /login%0a /login%7f /admin/%00
	/%256Cogin /%252Flogin /x/%252e%252e/login /%25%36%43ogin /x%255c..%255clogin
	//login //x/login ///login ///x/login //admin/x //x/admin/y //user@x:80/login
	/login#x /login#?user=you /x?a#&user=me /x#?user=me
	/%c0%aflogin /x/%c0%ae%c0%ae/login /%e0%80%aflogin
	/AREA;a /area;/x /x/..;/Area /x/%2e%2e/aREA/ /Area%00
	/x?a=1;user=me /x?user=me;a=1 /x?;user=me /x?a;user=me&b
`)

// ordinary are targets that no server misreads: they pass whatever the rules say.
var ordinary = strings.Fields(`
	/ /login /login/ /%6Cogin /%6c%6F%67%69%6e /x/login /a//b /a//login /a/b//
	/item/a /item//a /item/a%20b /admin/ /admin//x /%61dmin/x /login? /x?user=me /x?user=%6de /x?us%65r=me /x?a=%zz&user=me /x?a=%&b=%4&user=me
	/x?user=a+b%20c /x?a=b?c=/../d /x?redirect=http%3A%2F%2Fh%2Flogin /x?a%3Bb /x?&&user=me&=
	/.well-known/x /...  /x/..y/.z /x.y~z-_ /a%20b /100%25 /50%25%20off /caf%C3%A9 /a%3Fb%23c /a|b{c}^d"e<f>
	/x:y@z!$&'()*+,=[] /%E2%82%AC /x?a[]=1&a[b]=2 /x?a|b{c}"d<e> /login%20 /Login /LOGIN
	/area /AREA /Area/ /%41rea/x /x/area /aREA//x /areas
`)

// What is passed on is what was sent, and wherever an upstream finds a path or a
// parameter that a rule is about, that rule was applied; or the request was refused.
func TestDifferential(t *testing.T) {
	t.Parallel()
	for _, e := range echoings {
		t.Run(e.name, func(t *testing.T) {
			d := newDifferential(t, e)
			for _, err := range d.run(t, slippery) {
				t.Error(err)
			}
			if d.passed > 0 {
				t.Errorf("%d of those that are ambiguous passed", d.passed)
			}
			for _, err := range d.run(t, ordinary) {
				t.Error(err)
			}
			if d.refused > len(slippery) {
				t.Errorf("%d of those that are not ambiguous were refused", d.refused-len(slippery))
			}
		})
	}
}

// The same of targets made at random. A failure names the seed.
func TestDifferentialAtRandom(t *testing.T) {
	t.Parallel()
	n := 3000
	if testing.Short() {
		n = 500
	}
	for _, e := range echoings {
		t.Run(e.name, func(t *testing.T) {
			seed := attack.Seed(t)
			random := rand.New(rand.NewPCG(seed, 0))
			targets := make([]string, n)
			for i := range targets {
				targets[i] = randomTarget(random)
			}
			d := newDifferential(t, e)
			round := d.run(t, targets)
			for _, err := range round[:min(len(round), 10)] {
				t.Error(err)
			}
			if len(round) > 0 || d.passed < n/10 || d.refused < n/10 {
				t.Errorf("seed %d: %d got round a rule, of %d that passed; %d were refused", seed, len(round), d.passed, d.refused)
			}
		})
	}
}

var targetParts = strings.Fields(`
	login login login area AREA/ Area; admin/ admin item/ x y / / / // . .. ... %2e %2E%2e %2f %2F \ %5c ; %3b ;a=b ..;/ %00 %0a %25 %252f %252e
	# %23 %3f %6c %6C%6F %61 %e2%82%ac %c0%af é | " { } ~ : @ = + ! %20 %zz % %7f %80 LOGIN
`)

var queryParts = strings.Fields(`user =me =you & & ; a=1 b user=me %zz % # ? / .. + %20 %6de us%65r é | %00 [] %26`)

// randomTarget is a target of the parts above, with user at most once in its query:
// which of several counts is another question.
func randomTarget(random *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('/')
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	for range random.IntN(6) {
		b.WriteString(pick(targetParts))
	}
	if random.IntN(2) == 0 {
		return b.String()
	}
	b.WriteByte('?')
	query := ""
	for range random.IntN(6) {
		query += pick(queryParts)
	}
	if u, _ := url.QueryUnescape(query); strings.Count(query, "us")+strings.Count(u, "user") > 2 {
		query = "user=me"
	}
	return b.String() + query
}

// The test can fail: where everything ambiguous is let through, it finds what gets
// round a rule at each of these servers.
func TestDifferentialFinds(t *testing.T) {
	t.Parallel()
	for _, e := range echoings {
		t.Run(e.name, func(t *testing.T) {
			d := newDifferential(t, e, allowAmbiguous)
			round := d.run(t, slippery)
			if len(round) < 10 {
				t.Errorf("it found %d only: %v", len(round), round)
			}
			for _, err := range round {
				if strings.Contains(err.Error(), " reached ") { // what is let through is passed on as it came
					t.Error(err)
				}
			}
		})
	}
}

// Every API reads a target in the same way.
func TestAPIsReadTargetsAlike(t *testing.T) {
	d := newDifferential(t, echoings[0])
	told := func(a answer) string {
		if a.StatusCode == 400 {
			return "400 " + a.problem(t)
		}
		return fmt.Sprint(a.StatusCode, " ", a.Header.Get("RateLimit-Policy"))
	}
	random := rand.New(rand.NewPCG(1, 2))
	targets := append(append([]string{}, slippery...), ordinary...)
	for range 300 {
		targets = append(targets, randomTarget(random))
	}
	for _, target := range targets {
		if !strings.HasPrefix(target, "/") {
			continue // which the check API takes for a path nevertheless
		}
		if _, err := rules.ReadTarget(target); err != nil {
			continue // net/http refuses it at the gateway, and has no words of ours
		}
		want := told(send(t, d.gateway, "GET", target))
		if got := told(send(t, d.check, "GET", "/v1/authorize", "X-Original-Method: GET", "X-Original-Uri: "+target, "X-Forwarded-For: 192.0.2.1")); got != want {
			t.Errorf("%q: /v1/authorize says %s\nthe gateway %s", target, got, want)
		}
		body, err := json.Marshal(map[string]any{"request": map[string]string{"method": "GET", "path": target}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post("http://"+d.check+"/v1/check", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := told(answer{resp, string(text)}); got != want {
			t.Errorf("%q: /v1/check says %s\nthe gateway %s", target, got, want)
		}
	}
}
