package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	layers "github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// holding has a rate, a budget and a limit in flight, and a copy of the budget in shadow mode.
const holding = `
rules:
  - {name: calls, key: attrs.user, cost: "1", limits: [5 per 1m fixed_window]}
  - {name: tokens, key: attrs.user, limits: [1000 per 1m fixed_window hold debt 500]}
  - {name: slots, key: attrs.user, cost: "1", limits: [2 in_flight retry 3s]}
  - {name: watched, key: attrs.user, limits: [800 per 1m fixed_window hold], mode: shadow}
`

// callCheck calls a path of the check API.
func callCheck(s *server.Server, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	checkAPI(s).ServeHTTP(w, r)
	return w
}

// answered is an answer about a hold. Each element of Decisions is in words.
type answered struct {
	Status    int
	Outcome   string
	Hold      string
	Busy      bool
	Detail    string
	Decisions []struct {
		Rule       string
		Allowed    *bool
		Found      bool
		Used       int64
		Charged    int64
		Remaining  int64
		Held       int64
		RetryAfter int64 `json:"retry_after_us"`
	}
}

// String is a in one line, such as "settled: tokens 812 charged, 188 left, 0 held; ...".
func (a answered) String() string {
	var parts []string
	for _, d := range a.Decisions {
		text := fmt.Sprintf("%s %d left, %d held", d.Rule, d.Remaining, d.Held)
		switch {
		case d.Allowed != nil && d.Used > 0:
			text = fmt.Sprintf("%s, %d used", text, d.Used)
		case d.Charged > 0:
			text = fmt.Sprintf("%s, %d charged", text, d.Charged)
		}
		parts = append(parts, text)
	}
	return a.Outcome + ": " + strings.Join(parts, "; ")
}

func readAnswer[T any](t testing.TB, w *httptest.ResponseRecorder) (a T) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return a
}

// says calls a path and compares the answer in words.
func says(t *testing.T, s *server.Server, path, body string, status int, want string) answered {
	t.Helper()
	w := callCheck(s, path, body)
	a := readAnswer[answered](t, w)
	if w.Code != status || a.String() != want {
		t.Errorf("%s %s:\n got %d %s\nwant %d %s", path, body, w.Code, a, status, want)
	}
	return a
}

// A check holds what it estimates, any instance settles it by what it did cost, and only once.
func TestCheckHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stint.Memory)
		one, other := newServer(t, holding, over(store)), newServer(t, holding, over(store))
		first := says(t, one, "/v1/check", `{"cost":600,"hold":"60s","attrs":{"user":"ann"}}`, 200,
			"allowed: calls 4 left, 0 held, 1 used; tokens 400 left, 600 held; slots 1 left, 1 held")
		second := says(t, one, "/v1/check", `{"cost":300,"hold":"60s","attrs":{"user":"ann"}}`, 200,
			"allowed: calls 3 left, 0 held, 2 used; tokens 100 left, 900 held; slots 0 left, 2 held")
		third := says(t, other, "/v1/check", `{"cost":50,"hold":"60s","attrs":{"user":"ann"}}`, 429,
			"limited: calls 3 left, 0 held, 2 used; tokens 100 left, 900 held; slots 0 left, 2 held")
		if first.Hold == "" || first.Hold == second.Hold || third.Hold != "" {
			t.Errorf("holds %q, %q and %q", first.Hold, second.Hold, third.Hold)
		}
		if !third.Busy || third.Decisions[2].RetryAfter != 3_000_000 {
			t.Errorf("busy %v, retry %d µs", third.Busy, third.Decisions[2].RetryAfter)
		}
		settle := `{"cost":750,"hold":"` + first.Hold + `"}`
		says(t, other, "/v1/settle", settle, 200, "settled: tokens 0 left, 300 held, 750 charged; slots 1 left, 1 held")
		says(t, one, "/v1/settle", settle, 200, "unknown: tokens 0 left, 300 held; slots 1 left, 1 held")
		says(t, one, "/v1/settle", `{"hold":"`+second.Hold+`"}`, 200, "settled: tokens 0 left, 0 held, 300 charged; slots 2 left, 0 held")
		says(t, one, "/v1/check?shadow=true", `{"cost":1,"attrs":{"user":"ann"}}`, 429,
			"limited: calls 3 left, 0 held, 2 used; tokens 0 left, 0 held, 1000 used; slots 2 left, 0 held; watched 49 left, 0 held, 751 used")
	})
}

// A hold lasts as long as it says, and longer if it is renewed.
func TestCheckRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stint.Memory)
		one, other := newServer(t, holding, over(store)), newServer(t, holding, over(store))
		hold := says(t, one, "/v1/check", `{"cost":6,"hold":"10s","attrs":{"user":"ann"}}`, 200,
			"allowed: calls 4 left, 0 held, 1 used; tokens 994 left, 6 held; slots 1 left, 1 held").Hold
		renew := `{"hold":"` + hold + `"}`
		for range 3 {
			time.Sleep(9 * time.Second)
			says(t, other, "/v1/renew", renew, 200, "renewed: tokens 994 left, 6 held; slots 1 left, 1 held")
		}
		time.Sleep(10 * time.Second)
		says(t, other, "/v1/renew", renew, 200, "unknown: tokens 1000 left, 0 held; slots 2 left, 0 held")
		says(t, one, "/v1/renew", `{"again":true,"hold":"`+hold+`"}`, 200, "renewed: tokens 994 left, 6 held; slots 1 left, 1 held")
		says(t, one, "/v1/settle", `{"cost":9,"hold":"`+hold+`"}`, 200, "settled: tokens 991 left, 0 held, 9 charged; slots 2 left, 0 held")
	})
}

// Each rule is settled by its own cost if the caller says so.
func TestSettleCosts(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: tokens, key: '"all"', limits: [1000 per 1d fixed_window hold]}
  - {name: bytes, key: '"all"', cost: "10", limits: [5000 per 1d fixed_window hold, 500 per 1d sliding_log hold]}
`)
	for _, c := range []struct{ cost, want string }{
		{`"cost":1,`, "settled: tokens 999 left, 0 held, 1 charged; bytes 4999 left, 0 held, 1 charged; bytes 499 left, 0 held, 1 charged"},
		{`"cost":1,"costs":{"bytes":100},`, "settled: tokens 998 left, 0 held, 1 charged; bytes 4899 left, 0 held, 100 charged; bytes 399 left, 0 held, 100 charged"},
		{`"costs":{"tokens":0},`, "settled: tokens 998 left, 0 held; bytes 4889 left, 0 held, 10 charged; bytes 389 left, 0 held, 10 charged"},
		{`"cost":0,`, "settled: tokens 998 left, 0 held; bytes 4889 left, 0 held; bytes 389 left, 0 held"},
	} {
		a := readAnswer[answered](t, callCheck(s, "/v1/check", `{"cost":5,"hold":"60s"}`))
		says(t, s, "/v1/settle", "{"+c.cost+`"hold":"`+a.Hold+`"}`, 200, c.want)
	}
}

// What was spent is charged whether it fits or not, and the next check has to wait.
func TestCheckCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, holding)
		const ann = `"attrs":{"user":"ann"}}`
		says(t, s, "/v1/check", `{"charge":true,"cost":900,`+ann, 200, "charged: calls 4 left, 0 held, 1 charged; tokens 100 left, 0 held, 900 charged; slots 2 left, 0 held")
		says(t, s, "/v1/check?shadow=true", `{"charge":true,"cost":900,`+ann, 200,
			"charged: calls 3 left, 0 held, 1 charged; tokens 0 left, 0 held, 600 charged; slots 2 left, 0 held; watched 0 left, 0 held, 900 charged")
		says(t, s, "/v1/check", `{"cost":1,`+ann, 429, "limited: calls 3 left, 0 held, 2 used; tokens 0 left, 0 held, 1000 used; slots 2 left, 0 held")
		says(t, s, "/v1/check", `{"charge":true,"operation":"nothing"}`, 200, "charged: ")
	})
}

// Each charge of a list has its own answer, and rules without limits have no part in any.
func TestCheckChargesList(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: watch, key: attrs.user, penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}
  - {name: tokens, key: attrs.user, limits: [1000 per 24h fixed_window hold, 800 per 24h sliding_log]}
`)
	var got []string
	for _, a := range readAnswer[[]answered](t, callCheck(s, "/v1/check", `[{"charge":true,"cost":100,"attrs":{"user":"ann"}},{"charge":true,"cost":200,"attrs":{"user":"bob"}},{"charge":true,"attrs":{}},{"charge":true,"cost":30,"attrs":{"user":"ann"}}]`)) {
		got = append(got, a.String())
	}
	expect(t, strings.Join(got, "\n"), `charged: tokens 900 left, 0 held, 100 charged; tokens 700 left, 0 held, 100 charged
charged: tokens 800 left, 0 held, 200 charged; tokens 600 left, 0 held, 200 charged
charged: 
charged: tokens 870 left, 0 held, 30 charged; tokens 670 left, 0 held, 30 charged`)
}

// A check that holds nothing has no hold.
func TestCheckHoldsNothing(t *testing.T) {
	s := newServer(t, `
blocklist: ['operation == "bad"']
rules: [{name: calls, match: 'operation == "call"', key: '"all"', limits: [5 per 1m]}, {name: tokens, match: 'operation == "ask"', key: '"all"', limits: [5 per 1m fixed_window hold]}]
`)
	for _, body := range []string{`{"hold":"60s","operation":"call"}`, `{"hold":"60s"}`, `{"hold":"60s","operation":"bad"}`, `{"operation":"ask"}`, `{"hold":"60s","operation":"ask","cost":6}`, `{"hold":null,"operation":"ask"}`} {
		if w := callCheck(s, "/v1/check", body); strings.Contains(w.Body.String(), `"hold"`) {
			t.Errorf("%s: %s", body, w.Body)
		}
	}
}

// Lists answer each element as if it came alone.
func TestHoldLists(t *testing.T) {
	s := newServer(t, holding)
	w := callCheck(s, "/v1/check", `[{"cost":100,"hold":"60s","attrs":{"user":"ann"}},{"cost":7,"charge":true,"attrs":{"user":"ann"}},{"cost":200,"hold":"1h","attrs":{"user":"bob"}},{"hold":"forever"},{"cost":-1,"charge":true}]`)
	all := readAnswer[[]answered](t, w)
	var got []string
	for _, a := range all {
		got = append(got, fmt.Sprint(a.Status, " ", a, " ", a.Detail))
	}
	want := []string{
		"200 allowed: calls 4 left, 0 held, 1 used; tokens 900 left, 100 held; slots 1 left, 1 held ",
		"200 charged: calls 3 left, 0 held, 1 charged; tokens 893 left, 100 held, 7 charged; slots 1 left, 1 held ",
		"200 allowed: calls 4 left, 0 held, 1 used; tokens 800 left, 200 held; slots 1 left, 1 held ",
		`400 :  bad request: hold: want how long it lasts without renewal, such as "60s", from 1ms to 24h`,
		"400 :  rules: bad request: cost -1: must not be negative",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ann, bob := all[0].Hold, all[2].Hold
	w = callCheck(s, "/v1/settle", `[{"hold":"`+ann+`","cost":1},{"hold":"`+ann+`","cost":1},{"hold":"x"},{"hold":"`+bob+`","cost":2}]`)
	got = nil
	for _, a := range readAnswer[[]answered](t, w) {
		got = append(got, fmt.Sprint(a.Status, " ", a, " ", a.Detail))
	}
	want = []string{
		"200 settled: tokens 992 left, 0 held, 1 charged; slots 2 left, 0 held ",
		"200 unknown: tokens 992 left, 0 held; slots 2 left, 0 held ",
		"400 :  bad request: hold: it is not a hold that this API returned",
		"200 settled: tokens 998 left, 0 held, 2 charged; slots 2 left, 0 held ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// In a list, the wait of a refusal that is a hint differs by chance, and is never shorter.
func TestHoldHints(t *testing.T) {
	s := newServer(t, `rules: [{name: slots, key: '"all"', limits: [1 in_flight retry 10s]}]`)
	callCheck(s, "/v1/check", `{"hold":"60s"}`)
	seen := map[int]bool{}
	for _, a := range readAnswer[[]struct {
		RetryAfter int `json:"retry_after"`
	}](t, callCheck(s, "/v1/check", "["+strings.Repeat(`{"hold":"60s"},`, 99)+`{"hold":"60s"}]`)) {
		seen[a.RetryAfter] = true
		if a.RetryAfter < 10 || a.RetryAfter > 15 {
			t.Fatalf("retry after %d s", a.RetryAfter)
		}
	}
	if len(seen) < 3 {
		t.Errorf("waits %v", seen)
	}
}

// What is no hold, or is asked for in a wrong way, is refused with the reason.
func TestHoldsRefused(t *testing.T) {
	s := newServer(t, holding)
	hold := readAnswer[answered](t, callCheck(s, "/v1/check", `{"hold":"60s","attrs":{"user":"ann"}}`)).Hold
	for _, c := range []struct {
		path, body string
		status     int
		detail     string
	}{
		{"/v1/check", `{"hold":"60"}`, 400, `hold: want how long it lasts without renewal, such as "60s", from 1ms to 24h`},
		{"/v1/check", `{"hold":"0s"}`, 400, "hold: want how long"},
		{"/v1/check", `{"hold":"25h"}`, 400, "hold: want how long"},
		{"/v1/check", `{"hold":""}`, 400, "hold: must not be empty"},
		{"/v1/check", `{"hold":60}`, 400, "hold: want text"},
		{"/v1/check", `{"hold":"60s","charge":true}`, 400, "want only one of hold, charge, settle and renew"},
		{"/v1/check", `{"settle":"x"}`, 400, "settle, renew: call POST /v1/settle or /v1/renew"},
		{"/v1/check", `{"charge":1}`, 400, "charge: want true or false"},
		{"/v1/settle", `{}`, 400, "hold: want the hold that /v1/check returned"},
		{"/v1/settle", `{"cost":1}`, 400, "hold: want the hold that /v1/check returned"},
		{"/v1/settle", `{"hold":"` + hold + `","cost":-1}`, 400, "cost: -1: must not be negative"},
		{"/v1/settle", `{"hold":"` + hold + `","costs":{"tokens":-1}}`, 400, "costs: -1: must not be negative"},
		{"/v1/settle", `{"hold":"` + hold + `","costs":{"calls":1}}`, 400, `costs: this hold has nothing of rule "calls"`},
		{"/v1/settle", `{"hold":"` + hold + `","costs":{"tokens":1,"tokens":2}}`, 400, `costs: "tokens" is given twice`},
		{"/v1/settle", `{"hold":"` + hold + `","again":true}`, 400, `unknown field "again"`},
		{"/v1/settle", `{"hold":"` + hold[:20] + `"}`, 400, "hold: it is not a hold that this API returned"},
		{"/v1/settle", `nothing`, 400, "the JSON cannot be read"},
		{"/v1/settle", `[{"hold":1},{"hold":]`, 400, "the JSON cannot be read"},
		{"/v1/settle", "{\"hold\":\"\xff\"}", 400, "not UTF-8"},
		{"/v1/settle", "[" + strings.Repeat("{},", 1000) + "{}]", 413, "More than 1,000"},
		{"/v1/settle", `{"hold":"` + strings.Repeat("A", 3<<20) + `"}`, 413, "The body is larger than 2 MiB."},
		{"/v1/renew", `{"hold":"` + hold + `","cost":1}`, 400, `unknown field "cost"`},
	} {
		w := callCheck(s, c.path, c.body)
		if a := readAnswer[answered](t, w); w.Code != c.status || !strings.Contains(a.Detail, c.detail) {
			t.Errorf("%s %.80s: %d %s, want %d %s", c.path, c.body, w.Code, a.Detail, c.status, c.detail)
		}
	}
	w := httptest.NewRecorder()
	checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/settle", nil))
	if w.Code != 405 {
		t.Errorf("GET: %d", w.Code)
	}
}

// The memory of calls about holds is bounded while they are under way, and free again afterwards,
// whatever became of them.
func TestBytesOfHoldCalls(t *testing.T) {
	const limits = 500
	var file strings.Builder
	file.WriteString("rules:\n")
	for i := range limits {
		fmt.Fprintf(&file, "  - {name: r%d, key: '\"all\"', limits: [9 in_flight]}\n", i)
	}
	s := newServer(t, file.String(), bounded(config.Instance{InFlight: 100, Bytes: 8 << 20}))
	g := start(t, s)
	free := func(after string) {
		t.Helper()
		if got := s.Holds()["bytes"]; got != 0 {
			t.Errorf("%d bytes are taken after %s", got, after)
		}
	}
	hold := readAnswer[answered](t, callCheck(s, "/v1/check", `{"hold":"60s"}`)).Hold
	of := func(n int) string {
		return "[" + strings.Repeat(`{"hold":"`+hold+`"},`, n-1) + `{"hold":"` + hold + `"}]`
	}
	for _, path := range []string{"/v1/renew", "/v1/settle"} {
		for _, c := range []struct {
			body   string
			status int
		}{
			{of(19), 200},
			{of(21), 413},
			{"[" + strings.Repeat(" ", 3<<20) + "]", 413},
			{strings.Repeat(" ", 100<<10) + "{", 400},
			{"[" + strings.Repeat(`{"hold":"x"},`, 900) + "{}]", 200},
			{of(19), 200},
		} {
			if w := callCheck(s, path, c.body); w.Code != c.status {
				t.Errorf("%s of %d bytes: %d %.200s, want %d", path, len(c.body), w.Code, w.Body, c.status)
			}
			free(path)
		}
		other := dial(t, g.check) // another client's check is under way
		defer other.Close()
		fmt.Fprint(other, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{}")
		if !await.So(func() bool { return s.Holds()["bytes"] > 0 }) {
			t.Fatal("its body takes no memory")
		}
		if w := callCheck(s, path, of(19)); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s beside another: %d %.200s", path, w.Code, w.Body)
		}
		fmt.Fprint(other, strings.Repeat(" ", 4998))
		if got := other.answer(t, "POST"); got.StatusCode != 200 {
			t.Errorf("the other: %s", got.Status)
		}
		if !await.So(func() bool { return s.Holds()["bytes"] == 0 }) {
			free("a check beside it")
		}
	}
}

// A check that the instance refuses holds nothing, although its rules allowed it.
func TestOverloadedChecksHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, holding, bounded(config.Instance{Limit: stint.MustLimit("1 per 10s fixed_window")}))
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(11 * time.Second)))
		const ann = `{"cost":300,"hold":"60s","attrs":{"user":"ann"}}`
		says(t, s, "/v1/check", ann, 200, "allowed: calls 4 left, 0 held, 1 used; tokens 700 left, 300 held; slots 1 left, 1 held")
		for range 3 {
			says(t, s, "/v1/check", ann, 503, "overloaded: ")
		}
		time.Sleep(10 * time.Second)
		says(t, s, "/v1/check?shadow=true", ann, 200, "allowed: calls 3 left, 0 held, 2 used; tokens 400 left, 600 held; slots 0 left, 2 held; watched 200 left, 600 held")
	})
}

// The keys of what a check holds come back in its hold, so they may not be too long altogether. A check
// that holds nothing may have any.
func TestKeysOfHolds(t *testing.T) {
	const limits = 20
	var file strings.Builder
	file.WriteString("rules:\n")
	for i := range limits {
		fmt.Fprintf(&file, "  - {name: r%d, key: attrs.user + \"%02d\", limits: [9 in_flight]}\n", i, i)
	}
	s := newServer(t, file.String())
	for _, c := range []struct {
		bytes  int
		hold   string
		status int
	}{
		{stint.MaxKey - 2, "", 200},
		{stint.MaxKey - 2, `"hold":"60s",`, 400},
		{2000, `"hold":"60s",`, 200},
		{stint.MaxKey - 1, "", 400}, // too long for a key
	} {
		w := callCheck(s, "/v1/check", fmt.Sprintf(`{%s"attrs":{"user":%q}}`, c.hold, strings.Repeat("k", c.bytes)))
		if w.Code != c.status {
			t.Errorf("keys of %d bytes, %s: %d %.300s, want %d", c.bytes, c.hold, w.Code, w.Body, c.status)
		}
	}
	one := newServer(t, `rules: [{name: r, key: attrs.user, limits: [9 in_flight]}]`)
	hold := readAnswer[answered](t, callCheck(one, "/v1/check", fmt.Sprintf(`{"hold":"60s","attrs":{"user":%q}}`, strings.Repeat("k", stint.MaxKey)))).Hold
	says(t, one, "/v1/settle", `{"hold":"`+hold+`"}`, 200, "settled: r 9 left, 0 held")
}

// awayHolder is a Memory that does not answer calls about holds while it is away.
type awayHolder struct {
	stint.Memory
	mu   sync.Mutex
	away error
}

func (a *awayHolder) set(away error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// Holds implements stint.Holder.
func (a *awayHolder) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	a.mu.Lock()
	away := a.away
	a.mu.Unlock()
	if away == nil {
		a.Memory.Holds(ctx, at, calls)
		return
	}
	for i := range calls {
		calls[i].Err = away
	}
}

// Settlements are counted under their rules: those that found a hold, and those that did not.
func TestSettleMetrics(t *testing.T) {
	s := newServer(t, holding)
	for _, cost := range []string{"250", "700"} {
		hold := readAnswer[answered](t, callCheck(s, "/v1/check", `{"cost":300,"hold":"60s","attrs":{"user":"ann"}}`)).Hold
		for range 2 {
			callCheck(s, "/v1/settle", `{"cost":`+cost+`,"hold":"`+hold+`"}`)
		}
	}
	callCheck(s, "/v1/check", `{"cost":20,"charge":true,"attrs":{"user":"bob"}}`)
	w := httptest.NewRecorder()
	checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
	for _, line := range []string{
		`stint_holds_ended_total{result="settled",rule="tokens"} 2`, `stint_holds_ended_total{result="unknown",rule="tokens"} 2`,
		`stint_holds_ended_total{result="settled",rule="slots"} 2`, `stint_holds_ended_total{result="settled",rule="watched"} 2`,
		`stint_holds_ended_total{result="lost",rule="tokens"} 0`, `stint_holds{rule="tokens"} 0`,
		`stint_hold_units_total{kind="held",rule="tokens"} 600`, `stint_hold_units_total{kind="used",rule="tokens"} 970`, `stint_hold_units_total{kind="excess",rule="tokens"} 420`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}

// While the store does not answer, the caller is asked to send the call again.
func TestSettleWithoutStore(t *testing.T) {
	store := new(awayHolder)
	var log logged
	s := newServer(t, holding, over(store), logTo(&log))
	hold := readAnswer[answered](t, callCheck(s, "/v1/check", `{"cost":5,"hold":"60s","attrs":{"user":"ann"}}`)).Hold
	store.set(limittest.ErrFault)
	for _, c := range []struct{ path, body, detail string }{
		{"/v1/settle", `{"hold":"` + hold + `","cost":7}`, "Retry the call; it is idempotent"},
		{"/v1/renew", `{"hold":"` + hold + `"}`, "Retry the call; it is idempotent"},
	} {
		w := callCheck(s, c.path, c.body)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), c.detail) {
			t.Errorf("%s: %d %v %s", c.path, w.Code, w.Header(), w.Body)
		}
		w = callCheck(s, c.path, "["+c.body+"]")
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"status":503`) || !strings.Contains(w.Body.String(), `"retry_after":1`) {
			t.Errorf("a list of %s: %d %s", c.path, w.Code, w.Body)
		}
	}
	if text := log.taken(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, limittest.ErrFault.Error()) {
		t.Errorf("logged: %s", text)
	}
	store.set(nil)
	says(t, s, "/v1/settle", `{"hold":"`+hold+`","cost":7}`, 200, "settled: tokens 993 left, 0 held, 7 charged; slots 2 left, 0 held")
}

// A charge that the store does not answer is made here, and charged to the store once when that
// answers again. The answer tells of it, also where a limit in flight, which a charge only asks
// about, is not known: a client that was told otherwise would send the charge again.
func TestChargeWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(awayHolder)
		s := newServer(t, holding, over(store))
		store.set(fmt.Errorf("%w: %w", layers.ErrNotCharged, limittest.ErrFault))
		body := `{"cost":7,"charge":true,"attrs":{"user":"ann"}}`
		says(t, s, "/v1/check", body, 200, "charged: calls 4 left, 0 held, 1 charged; tokens 993 left, 0 held, 7 charged")
		want := `"outcome":"charged"`
		if w := callCheck(s, "/v1/check", "["+body+"]"); !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "slots") {
			t.Errorf("in a list: %d %s", w.Code, w.Body)
		}
		store.set(nil)
		callCheck(s, "/v1/check", `{"charge":true,"attrs":{"user":"bob"}}`) // the store answers again
		time.Sleep(time.Second)
		says(t, s, "/v1/check", `{"cost":1,"charge":true,"attrs":{"user":"ann"}}`, 200, "charged: calls 2 left, 0 held, 1 charged; tokens 985 left, 0 held, 1 charged; slots 2 left, 0 held")
	})
}
