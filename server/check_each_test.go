package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// checkEach asks about several at once.
func checkEach(t *testing.T, s *server.Server, bodies ...string) []json.RawMessage {
	t.Helper()
	w := check(s, "["+strings.Join(bodies, ",")+"]")
	var each []json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &each); err != nil || w.Code != http.StatusOK || len(each) != len(bodies) {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" || h.Get("X-RateLimit-Limit") != "" {
		t.Errorf("%v", h)
	}
	return each
}

// single is the answer to a single check as it would stand in a list.
func single(t *testing.T, s *server.Server, body string) string {
	t.Helper()
	w := check(s, body)
	var said struct {
		Status     int
		RetryAfter int `json:"retry_after"`
	}
	text := strings.TrimSpace(w.Body.String())
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Fatal(err)
	}
	more := ""
	if said.Status == 0 {
		more = fmt.Sprintf(`"status":%d,`, w.Code)
	}
	if after := w.Header().Get("Retry-After"); after != "" && said.RetryAfter == 0 {
		more += `"retry_after":` + after + ","
	}
	return "{" + more + text[1:]
}

const eachRules = `
safelist: [operation == "ping"]
blocklist: ['operation == "bad"']
rules:
  - {name: all, match: 'operation != "free"', key: '"all"', limits: [40 per 1m fixed_window], message: "so <many> \"calls\""}
  - {name: client, match: 'operation != "free"', key: client.ip, limits: [6 per 1m fixed_window, 5 per 1h sliding_log], penalty: {warn_after: 2, ban_after: 4, ban_for: 30m}}
  - {name: watch, match: 'operation == "login"', key: client.ip, limits: [2 per 1h], mode: shadow}
  - {name: seen, match: 'operation == "login"', key: '"all"', limits: [10 per 1h, 12 per 24h], mode: shadow}
  - {name: size, match: 'has(attrs.size)', key: string(attrs.size), cost: int(attrs.size), limits: [7 per 1m leaky_bucket]}
  - {name: header, match: 'request.path == "/"', key: 'request.headers["x-a"]', limits: [9 per 1m fixed_window]}
`

// someChecks are checks of all sorts, malformed ones among them.
func someChecks(random *rand.Rand, n int) []string {
	var all []string
	for range n {
		client := fmt.Sprintf("192.0.2.%d", random.IntN(3))
		all = append(all, []string{
			fmt.Sprintf(`{"operation":"login","client":%q}`, client),
			fmt.Sprintf(`{"operation":"login","client":%q,"cost":%d}`, client, random.IntN(8)),
			fmt.Sprintf(` { "client" : %q , "attrs":{"size":%d}}`, client, random.IntN(9)-1),
			`{"operation":"ping"}`, `{"operation":"bad"}`, `{"operation":"free"}`, `{}`, `{"cost":-1}`,
			`{"client":"x","attrs":{"a\"]}":["\\\"",{"b":[null,true,-1.5e3]}]}}`, `{"t_us":1}`, `{"cost":1,"cost":2}`, `{"operation":"\ud800","attrs":{}}`,
			`null`, `false`, `7`, `"]"`, `true`, `{"request":{"path":"/%zz","headers":{"a":"]"}}}`,
			`{"request":{"path":"/","headers":{"x-a":"b"}}}`, `{"request":{"path":"/","headers":{"x-a":["b","c"],"x-b":null}}}`, `{"request":{"path":"/"}}`,
		}[random.IntN(21)])
	}
	return all
}

// A list is answered as the same checks one after another are.
func TestCheckEachIsCheck(t *testing.T) {
	for round := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			store := func() stint.Store { return new(stint.Memory) }
			if round%5 == 4 {
				store = func() stint.Store { return failing() }
			}
			random := rand.New(rand.NewPCG(round, 1))
			together, apart := newServer(t, eachRules, over(store())), newServer(t, eachRules, over(store()))
			for range 6 {
				bodies := someChecks(random, random.IntN(30))
				for i, got := range checkEach(t, together, bodies...) {
					if want := single(t, apart, bodies[i]); withoutID(string(got)) != want {
						t.Fatalf("round %d, %s:\n got %s\nwant %s", round, bodies[i], got, want)
					}
				}
				time.Sleep(time.Duration(random.IntN(90)) * time.Second)
			}
		})
	}
}

// The same through Redis, over sockets: status, rule and what remains. Refusals are
// not remembered here, for those tell what remained when they were first made.
func TestCheckEachThroughRedis(t *testing.T) {
	redis := redistest.Start(t)
	var addrs [2]string
	for i := range addrs {
		store := openRedis(t, redis.URL(), fmt.Sprint("each", i))
		addrs[i] = start(t, newServer(t, eachRules, over(store), func(c *server.Config) { c.Settings.DecisionTimeout, c.Settings.RememberedDenials = 10*time.Second, 0 })).check
	}
	type said struct {
		Status    int
		Outcome   string
		Rule      string
		Remaining int64
		Decisions []struct {
			Rule      string
			Allowed   bool
			Remaining int64
		}
	}
	post := func(addr, body string) answer {
		return send(t, addr, "POST", "/v1/check", "Host: x", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		bodies := someChecks(random, 40)
		var together []said
		if got := post(addrs[0], "["+strings.Join(bodies, ",")+"]"); got.StatusCode != 200 || json.Unmarshal([]byte(got.body), &together) != nil || len(together) != len(bodies) {
			t.Fatalf("%s %s", got.Status, got.body)
		}
		for i := range bodies {
			got := post(addrs[1], bodies[i])
			want := said{Status: got.StatusCode}
			if err := json.Unmarshal([]byte(got.body), &want); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(bodies[i], "size") {
				continue // that bucket drains meanwhile
			}
			if fmt.Sprint(together[i]) != fmt.Sprint(want) {
				t.Errorf("%s:\n got %v\nwant %v", bodies[i], together[i], want)
			}
		}
	}
}

// A list goes to the store in calls of 64 asks, and so do those about a rule in shadow mode, for which
// nobody waits.
func TestCheckEachGoesInParts(t *testing.T) {
	calls := &limittest.Faulty{Store: new(stint.Memory)}
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h]}, {name: shadow, key: client.ip, limits: [1 per 1h], mode: shadow}]`, over(calls), unhurried)
	want := 0
	for _, n := range []int{64, 65, 960, 961, 1000} {
		checkEach(t, s, strings.Split(strings.Repeat(`{"client":"192.0.2.1"};`, n-1)+`{"client":"192.0.2.2"}`, ";")...)
		want += 2 * ((n + 63) / 64)
		if !await.So(func() bool { return s.Holds()["shadows"] == 0 }) || calls.Calls() != want {
			t.Errorf("%d calls after a list of %d, want %d", calls.Calls(), n, want)
		}
	}
	checkEach(t, s, `{}`, `[]`)
	checkEach(t, s)
	if n := calls.Calls(); n != want {
		t.Errorf("nothing to ask, and %d calls", n-want)
	}
}

// The shortest wait that a list names is a second, as in the header of a single answer.
func TestCheckEachRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: quick, match: operation == "quick", key: '"x"', limits: [1 per 1s fixed_window]}, {name: slow, match: operation == "slow", key: '"x"', limits: [1 per 3s fixed_window]}]`)
		for _, c := range []struct {
			after time.Duration
			want  string
		}{{0, "[0 0 1 3]"}, {900 * time.Millisecond, "[1 3 1 3]"}, {100 * time.Millisecond, "[0 2 1 2]"}, {time.Second, "[0 1 1 1]"}} {
			time.Sleep(c.after)
			all := readAnswer[[]struct {
				RetryAfter int64 `json:"retry_after"`
			}](t, callCheck(s, "/v1/check", `[{"operation":"quick"},{"operation":"slow"},{"operation":"quick"},{"operation":"slow"}]`))
			var got []int64
			for _, a := range all {
				got = append(got, a.RetryAfter)
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%s later: %v, want %s", c.after, got, c.want)
			}
		}
	})
}

// What is wrong with a list as a whole is told as for a single check, and nothing is
// decided.
func TestCheckEachRefuses(t *testing.T) {
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h]}]`)
	one := `{"client":"192.0.2.1"},`
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{"[" + one + "]", 400, "bad request: the JSON cannot be read: invalid character ']' looking for beginning of value"},
		{"[" + one + `{"cost":}]`, 400, "bad request: the JSON cannot be read"},
		{"[" + one + "{}", 400, "bad request: the JSON cannot be read: unexpected end of JSON input"},
		{"[" + one + "{}] []", 400, "bad request: the JSON cannot be read"},
		{"[" + one + "{}]\xff", 400, "bad request: the JSON is not UTF-8"},
		{"[" + strings.Repeat(one, 1000) + "{}]", 413, "More than 1,000 checks in one request."},
		{"[" + one + `"` + strings.Repeat("x", 2<<20) + `"]`, 413, "The body is larger than 2 MiB."},
	} {
		w := check(s, c.body)
		var p struct{ Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || !strings.HasPrefix(p.Detail, c.want) {
			t.Errorf("%.60s: %d %s", c.body, w.Code, w.Body)
		}
	}
	if got := checkEach(t, s, `{"client":"192.0.2.1"}`)[0]; !strings.HasPrefix(string(got), `{"status":200,`) {
		t.Errorf("something was charged: %s", got)
	}
	if w := check(s, " [ ] "); w.Code != 200 || w.Body.String() != "[]\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Each of a list counts as one for the limit of the instance, and what it refuses is
// not charged.
func TestCheckEachAtTheInstancesLimit(t *testing.T) {
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [5 per 24h fixed_window]}]`,
		bounded(config.Instance{Limit: stint.MustLimit("2 per 24h fixed_window"), InFlight: 1}))
	each := checkEach(t, s, `{"client":"192.0.2.1"}`, `{"client":"192.0.2.1","cost":6}`, `{"client":"192.0.2.1"}`, `{"client":"192.0.2.1"}`)
	for i, want := range []string{`{"status":200,`, `{"status":429,"outcome":"limited"`, `{"status":200,`, `"status":503,"detail":"The server is overloaded and accepts no more requests right now.","outcome":"overloaded","retry_after":`} {
		if !strings.Contains(withoutID(string(each[i])), want) {
			t.Errorf("%d: %s", i, each[i])
		}
	}
	if got := checkEach(t, s, `{"client":"192.0.2.1","cost":4}`)[0]; !strings.Contains(string(got), `"limit":5,"remaining":3`) {
		t.Errorf("it stays charged: %s", got)
	}
}

// Where the store does not decide, each tells who did, and the header that anyone
// did.
func TestCheckEachWithoutStore(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: local, match: 'operation == "local"', key: '"x"', limits: [1 per 24h]}
  - {name: deny, match: 'operation == "deny"', key: '"x"', limits: [1 per 24h], on_store_error: deny}
`, over(failing()), func(c *server.Config) { c.Settings.DegradedHeader = true })
	w := check(s, `[{"operation":"local"},{"operation":"local"},{"operation":"deny"},{"operation":"other"}]`)
	var each []struct {
		Status, RetryAfter int
		By                 string
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(w.Body.String(), "retry_after", "retryafter")), &each); err != nil {
		t.Fatal(err, w.Body)
	}
	if got := fmt.Sprint(each); w.Header().Get("Stint-Degraded") != "local" || got != "[{200 0 local} {429 86400 local} {503 1 } {200 0 }]" {
		t.Errorf("%v %s", w.Header(), got)
	}
}
