package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// Rules in shadow mode change no answer: a server with random rules answers random
// requests, at the gateway, in front of a handler, for /v1/check and for /v1/authorize,
// byte by byte and at the same instants as one with more rules in shadow mode among
// them, also while the store fails or hangs.
func TestAttackShadow(t *testing.T) {
	until, files := time.Now().Add(attack.Time(t, 0)), uint64(150)
	if testing.Short() {
		files = 40
	}
	for seed := uint64(1); seed <= files || time.Now().Before(until); seed++ {
		random := rand.New(rand.NewPCG(seed, 5))
		plain, shadowed := randomRules(random)
		over := random.IntN(3)
		without, with := answers(t, plain, over, seed), answers(t, shadowed, over, seed)
		for i := range without {
			if withoutID(with[i]) != withoutID(without[i]) {
				t.Fatalf("seed %d, request %d:\nwithout %s\nwith    %s\nof\n%s", seed, i, without[i], with[i], shadowed)
			}
		}
	}
}

// What rules in shadow mode are made of, many of which no request, or not each, suits.
var (
	someMatches = []string{"", "", `request.path == "/login"`, `request.path.startsWith("/")`, `request.headers["x-user"] != "b"`,
		`int(request.query.n) > 3`, `request.method == "POST"`, `client.ip != "192.0.2.9"`, `operation == "op"`, `request.query.user == "a"`}
	someKeys = []string{"", "client.ip", `'"all"'`, `request.headers["x-user"]`, "request.query.user", "int(request.query.n)",
		`'[request.path, client.ip]'`, "attrs.user", `request.headers["x-empty"]`}
	someCosts  = []string{"", "", "2", `int(request.headers["x-cost"])`, "int(attrs.gone)", "int(request.query.n) - 2", "4503599627370495"}
	someLimits = []string{"3 per 1m fixed_window", "2 per 10s", "4 per 1m sliding_log", "5 per 1m sliding_window", "9 per 1h",
		"2 per 1s leaky_bucket burst 3", "3 per 1m lease 20%", "1 per 24h fixed_window"}
	someExtras = []string{"on_store_error: deny", "on_store_error: allow", "decision_timeout: 3ms", "decision_timeout: 80ms", "default: true",
		"message: no more", `messages: {limited: "wait {retry_after}"}`, "penalty: {warn_after: 1, ban_after: 2, ban_for: 30s}",
		"penalty: {on_status: [404], ban_after: 1, ban_for: 30s}", "tiers: {odd: {times: 3}}", "tiers: {gold: {times: 20}}"}
)

// randomRules is a file, and the same with rules in shadow mode among its own.
func randomRules(random *rand.Rand) (plain, shadowed string) {
	one := func(of []string) string { return of[random.IntN(len(of))] }
	rule := func(name, mode string) string {
		text := "\n  - name: " + name + "\n    mode: " + mode
		for _, f := range [...]struct{ name, value string }{{"match", one(someMatches)}, {"key", one(someKeys)}, {"cost", one(someCosts)}} {
			if f.value != "" {
				text += "\n    " + f.name + ": " + f.value
			}
		}
		first := one(someLimits)
		limits := []string{first}
		if more := one(someLimits); random.IntN(3) == 0 && more != first && !strings.Contains(first+more, "lease") {
			limits = append(limits, more)
		}
		if random.IntN(4) == 0 && strings.Contains(strings.Join(limits, " "), "leaky_bucket") {
			text += "\n    shape: true"
		}
		text += "\n    limits: ['" + strings.Join(limits, "', '") + "']"
		if extra := one(someExtras); random.IntN(2) == 0 {
			text += "\n    " + extra
		}
		return text
	}
	const head = `
trusted_proxies: [192.0.2.1/32]
safelist: ['client.ip == "192.0.2.7"']
tiers:
  odd: 'int(request.query.n) % 2 == 1'
  gold: 'request.path == "/gold"'
rules:`
	plain, shadowed = head, head
	enforced := random.IntN(4)
	if enforced == 0 {
		plain += " []"
	}
	for i := range enforced {
		for j := range random.IntN(3) {
			shadowed += rule(fmt.Sprintf("shadow%d-%d", i, j), "shadow")
		}
		enforced := rule(fmt.Sprint("rule", i), "enforce")
		plain, shadowed = plain+enforced, shadowed+enforced
	}
	return plain, shadowed + rule("last", "shadow")
}

// answers are those of a server with these rules to the requests of a seed, each with
// what its clients see, and when.
func answers(t *testing.T, file string, storage int, seed uint64) (all []string) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 6))
		faults := [...]limittest.Fault{{}, {}, {Err: limittest.ErrFault}, {Hang: true}}
		var fault atomic.Int32
		changes := []func(*server.Config){func(c *server.Config) {
			c.Settings.Dialect = httplimit.XRateLimit | httplimit.Draft11
			c.Settings.DegradedHeader, c.Settings.ViolationsHeader = true, true
			c.Settings.MaxKeys = 40
			c.Settings.Breaker.Failures = -1 // once it is open, it probes at random instants
		}}
		if storage > 0 { // else in memory
			changes = append(changes, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return faults[fault.Load()] }}))
		}
		s := newServer(t, file, changes...)
		gateway, checks := s.Gateway(), checkAPI(s)
		wrapped := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Cost") == "1" {
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		for range 40 {
			if storage > 1 {
				fault.Store(random.Int32N(4))
			}
			var h http.Handler
			r := randomRequest(random)
			switch random.IntN(5) {
			case 0:
				h = gateway
			case 1:
				h = wrapped
			case 2:
				h, r = checks, authorizing(r)
			case 3:
				h, r = checks, checkRequest(randomCheck(random))
			case 4:
				h, r = checks, checkRequest("["+randomCheck(random)+","+randomCheck(random)+"]")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == http.StatusForbidden { // no rule of these does so
				t.Fatalf("the gate of the check API refuses %s", r.RequestURI)
			}
			all = append(all, fmt.Sprint(time.Since(noon), " ", r.Method, " ", r.RequestURI, " ", r.Header, ": ", w.Code, " ", w.Header(), " ", w.Body))
			time.Sleep(time.Duration(random.IntN(20)) * 100 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Second) // until nobody waits for the store
	})
	return all
}

func randomRequest(random *rand.Rand) *http.Request {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	r := httptest.NewRequest(one("GET", "POST"), one("/", "/login", "/gold", "/x/..;/login", "/a%2Fb", "//login", "/?n=7", "/login?n=4", "/?n=x", "/?user=a&user=b", "/?user=a", "/?user[]=a", "/?a;user=b"), nil)
	r.RemoteAddr = one("192.0.2.1", "192.0.2.7", "192.0.2.8", "192.0.2.9") + ":1000"
	for range random.IntN(3) {
		r.Header.Add("X-User", one("a", "b", "c"))
	}
	if random.IntN(3) > 0 {
		r.Header.Set("X-Cost", one("1", "2", "x", "-1"))
	}
	switch random.IntN(8) {
	case 0:
		r.Header["X_user"] = []string{"a"}
	case 1:
		r.Header["X-Empty"] = []string{""}
	case 2:
		r.Header["User-Agent"] = []string{"a", "b"}
	}
	return r
}

// authorizing is a proxy's question about r.
func authorizing(r *http.Request) *http.Request {
	q := httptest.NewRequest("GET", "/v1/authorize", nil)
	q.RemoteAddr, q.Header = "192.0.2.1:1", r.Header
	q.Header.Set("X-Original-Method", r.Method)
	q.Header.Set("X-Original-Uri", r.RequestURI)
	q.Header.Set("X-Forwarded-For", strings.TrimSuffix(r.RemoteAddr, ":1000"))
	return q
}

func randomCheck(random *rand.Rand) string {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	return fmt.Sprintf(`{"client":"192.0.2.%d","cost":%d,"operation":%q,"attrs":{"user":%s},"request":{"path":%q,"headers":{"x-user":%s}}}`,
		7+random.IntN(3), random.IntN(3), one("op", "other"), one(`"a"`, `"b"`, "7", "null", `""`), one("/login", "/?n=3", "/?n=x", "/?user=a", "/a%2Fb"),
		one(`"a"`, `"b"`, `["a","b"]`, "null"))
}

// The same over Redis, with leases and remembered refusals, and real connections: status,
// what remains, and the rule of each answer.
func TestShadowOverRedis(t *testing.T) {
	const enforced = `
rules:
  - {name: ip, key: client.ip, match: 'operation == "ip"', limits: [5 per 24h fixed_window], penalty: {ban_after: 3, ban_for: 24h}}
  - {name: user, key: attrs.user, match: 'operation == "user"', limits: [12 per 24h fixed_window lease 20%]}
`
	const more = `
  - {name: every, mode: shadow, key: client.ip, limits: [1 per 24h], penalty: {ban_after: 1, ban_for: 24h}, decision_timeout: 1ms, on_store_error: deny}
  - {name: same, mode: shadow, key: attrs.user, limits: [12 per 24h fixed_window lease 20%]}
  - {name: bad, mode: shadow, key: 'int(attrs.user)', limits: [1 per 24h]}
  - {name: broke, mode: shadow, key: client.ip, cost: int(attrs.gone), limits: [1 per 24h]}
`
	redis := redistest.Start(t)
	var said [2][]string
	for i, file := range []string{enforced, enforced + more} {
		store := openRedis(t, redis.URL(), fmt.Sprint("shadow", i))
		s := newServer(t, file, over(store), func(c *server.Config) { c.Settings.DecisionTimeout = 10 * time.Second })
		addr := start(t, s).check
		random := rand.New(rand.NewPCG(3, 4))
		for range 150 {
			body := fmt.Sprintf(`{"operation":%q,"client":"192.0.2.%d","attrs":{"user":"u%d"}}`, []string{"ip", "user"}[random.IntN(2)], random.IntN(3), random.IntN(3))
			got := send(t, addr, "POST", "/v1/check", "Host: localhost", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
			var reply struct {
				Outcome, Rule string
				Remaining     int64
				Decisions     []struct{ Rule string }
			}
			if err := json.Unmarshal([]byte(got.body), &reply); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(body, `"user","client"`) {
				reply.Remaining = 0 // which a lease knows for this instance, as far as it is granted
			}
			said[i] = append(said[i], fmt.Sprint(body, got.StatusCode, reply, got.Header["X-Ratelimit-Limit"]))
		}
		if i == 1 {
			for _, line := range []string{`stint_shadow_skipped_total{rule="broke"} 150`, `stint_shadow_refusals_total{rule="every"} 147`} {
				if !await.So(func() bool { return strings.Contains(metrics(s), line) }) {
					t.Error("not counted: ", line)
				}
			}
		}
	}
	for i := range said[0] {
		if said[0][i] != said[1][i] {
			t.Fatalf("request %d:\nwithout %s\nwith    %s", i, said[0][i], said[1][i])
		}
	}
}

// Rules in shadow mode leave room in memory for those that are enforced, however many
// keys they count.
func TestShadowLeavesRoom(t *testing.T) {
	const file = `
rules:
  - {name: shadow, mode: shadow, key: attrs.user, limits: [1 per 1h]}
  - {name: client, key: client.ip, limits: [100 per 1h]}
`
	s := newServer(t, file, over(&stint.Memory{MaxKeys: 1000}))
	for i := range 5000 {
		if w := check(s, fmt.Sprintf(`{"attrs":{"user":"%d"}}`, i)); w.Code != 200 {
			t.Fatalf("%d: %d %s", i, w.Code, w.Body)
		}
	}
	for i := range 250 {
		if w := check(s, fmt.Sprintf(`{"client":"192.0.2.%d"}`, i)); w.Code != 200 {
			t.Fatalf("client %d: %d %s", i, w.Code, w.Body)
		}
	}
	if text := metrics(s); !strings.Contains(text, `stint_shadow_skipped_total{rule="shadow"} 4500`+"\n") { // half of the memory
		t.Errorf("not 4500 were skipped:\n%s", text)
	}
}

// What rules in shadow mode say is told to who asks for it.
func TestCheckIncludesShadows(t *testing.T) {
	s := newServer(t, `rules: [{name: try, mode: shadow, key: client.ip, limits: [1 per 1h]}]`)
	for _, c := range []struct {
		target string
		status int
		told   bool
	}{
		{"/v1/check", 200, false}, {"/v1/check?shadow=false", 200, false}, {"/v1/check?shadow=true", 200, true}, {"/v1/check?other=1", 200, false},
		{"/v1/check?shadow=", 400, false}, {"/v1/check?shadow=true&shadow=false", 400, false}, {"/v1/check?shadow=%zz", 400, false},
	} {
		for _, body := range []string{`{"client":"192.0.2.1"}`, `[{"client":"192.0.2.1"}]`} {
			if w := checkAt(s, c.target, body); w.Code != c.status || strings.Contains(w.Body.String(), `"mode":"shadow"`) != c.told {
				t.Errorf("%s: %d %s", c.target, w.Code, w.Body)
			}
		}
	}
}

// Over a store that is far away, the answers of rules in shadow mode come to who asks for them, also
// what they charge and hold; and nothing of them stays behind.
func TestShadowsFarAway(t *testing.T) {
	const file = `
rules:
  - {name: real, key: attrs.user, limits: [2 per 1h fixed_window]}
  - {name: try, mode: shadow, key: attrs.user, limits: [1 per 1h fixed_window]}
  - {name: watched, mode: shadow, key: attrs.user, limits: [9 in_flight]}
`
	synctest.Test(t, func(t *testing.T) {
		var fault atomic.Pointer[limittest.Fault]
		store := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
			if p := fault.Load(); p != nil {
				f = *p
			}
			return f
		}}
		s := newServer(t, file, over(store))
		held := func() int64 {
			synctest.Wait()
			all, err := store.Held(t.Context(), "ann", s.Rules().Rules[2].Limits)
			if err != nil {
				t.Fatal(err)
			}
			return int64(len(all))
		}
		ask := func(query, more, want string) (hold string) {
			t.Helper()
			a := readAnswer[answered](t, callCheck(s, "/v1/check"+query, `{"attrs":{"user":"ann"}`+more+`}`))
			expect(t, a.String(), want)
			synctest.Wait()
			if n := s.Holds()["shadows"]; n != 0 {
				t.Errorf("%d calls for shadows are left after %s", n, want)
			}
			return a.Hold
		}
		const hold = `,"hold":"60s"`
		one := ask("", hold, "allowed: real 1 left, 0 held, 1 used")
		two := ask("?shadow=true", hold, "allowed: real 0 left, 0 held, 2 used; try 0 left, 0 held, 1 used; watched 7 left, 2 held")
		if got := held(); got != 2 || one == "" || two == "" {
			t.Errorf("%d held by two requests, with the holds %q and %q", got, one, two)
		}
		ask("?shadow=true", hold, "limited: real 0 left, 0 held, 2 used; try 0 left, 0 held, 1 used; watched 6 left, 3 held")
		if got := held(); got != 2 {
			t.Errorf("%d held: a request that was refused holds something", got)
		}
		for i, hold := range []string{one, two} { // the caller need not know of the shadows
			expect(t, holder{t, s}.settle(hold, 0).String(), "settled: ")
			if got := held(); got != int64(1-i) {
				t.Errorf("%d held after %d settlements", got, i+1)
			}
		}
		// Without the store, they are skipped, whatever it may have begun to answer.
		fault.Store(&limittest.Fault{Lost: true})
		for i := range 20 {
			a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", `{"attrs":{"user":"bob"}}`))
			if strings.Contains(a.String(), "try") || strings.Contains(a.String(), "watched") {
				t.Errorf("request %d without the store: %s", i, a)
			}
			synctest.Wait()
		}
		if n := s.Holds()["shadows"]; n != 0 {
			t.Errorf("%d calls for shadows are left", n)
		}
		for _, rule := range []string{"try", "watched"} {
			if line := `stint_shadow_skipped_total{rule="` + rule + `"} 20` + "\n"; !strings.Contains(metrics(s), line) {
				t.Errorf("no %s", line)
			}
		}
	})
}

func metrics(s *server.Server) string {
	w := httptest.NewRecorder()
	checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
