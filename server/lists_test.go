package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

const perUser = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
`

// userCall is a call about a user, in JSON; more are members of its descriptor.
func userCall(user, more string) string {
	return `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"` + user + `"}],` + more + `}]}`
}

func leftOf(t *testing.T, s *server.Server, user string) int64 {
	t.Helper()
	v, err := s.Decide(t.Context(), &rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{
		{Entries: []rules.Entry{{Key: "user", Value: user}}}}}}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Remaining
}

// Calls of Envoy's service in one list give back, and are charged, as single ones are.
func TestListOfCallsIsCalls(t *testing.T) {
	s := newCalls(t, perUser, "rules: []")
	give := func(user string) string { return userCall(user, `"hits_addend":3,"is_negative_hits":true`) }
	checkEach(t, s, userCall("ann", `"hits_addend":8`), userCall("bob", `"hits_addend":8`))
	checkEach(t, s, give("ann"), give("bob"), `{"operation":"any"}`)
	if a, b := leftOf(t, s, "ann"), leftOf(t, s, "bob"); a != 5 || b != 5 {
		t.Errorf("given back in a list: ann has %d left, bob %d; want 5 and 5", a, b)
	}
	check(s, userCall("one", `"hits_addend":20`))
	checkEach(t, s, userCall("eve", `"hits_addend":20`), userCall("fay", `"hits_addend":20`))
	if o, a, b := leftOf(t, s, "one"), leftOf(t, s, "eve"), leftOf(t, s, "fay"); o != a || o != b {
		t.Errorf("refused: alone %d left; in a list %d and %d", o, a, b)
	}
}

// buggy is a Memory that panics if it is asked to charge a key that has "bug", or to decide about one that
// has "crash".
type buggy struct{ *stint.Memory }

func (b buggy) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	for i := range calls {
		if strings.Contains(calls[i].Key, "bug") {
			panic("a bug")
		}
	}
	b.Memory.Holds(ctx, at, calls)
}

func (b buggy) TakeBatch(ctx context.Context, all []stint.Request, out []stint.Answer) {
	for i := range all {
		if strings.Contains(all[i].Asks[0].Key, "crash") {
			panic("a crash")
		}
	}
	b.Memory.TakeBatch(ctx, all, out)
}

// A check of a list that panics is answered with 500, and the others are decided. So are those that the
// store is not asked about, if its call for the others panics.
func TestPanicInAList(t *testing.T) {
	s := newCalls(t, perUser, "rules: [{name: a, match: 'operation in [\"one\", \"two\", \"crash\"]', key: operation, limits: [1 per 24h fixed_window]}]", over(buggy{new(stint.Memory)}))
	give := func(user string) string { return userCall(user, `"hits_addend":3,"is_negative_hits":true`) }
	check(s, userCall("ann", `"hits_addend":8`))
	for _, c := range []struct {
		checks []string
		want   string
	}{
		{[]string{`{"operation":"one"}`, give("bug"), `{"operation":"one"}`, give("ann")}, "[200 500 429 200]"},
		{[]string{`{"operation":"two"}`, `{"operation":"crash"}`, `{"operation":"free"}`}, "[500 500 200]"},
	} {
		var got []int
		for i, answer := range checkEach(t, s, c.checks...) {
			var said struct {
				Status int
				Detail string
			}
			if err := json.Unmarshal(answer, &said); err != nil {
				t.Fatal(err)
			}
			got = append(got, said.Status)
			if said.Status == http.StatusInternalServerError && said.Detail != "An error of the server itself kept it from deciding about this request." {
				t.Errorf("%d: %s", i, answer)
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.checks, got, c.want)
		}
	}
	if left := leftOf(t, s, "ann"); left != 5 {
		t.Errorf("ann has %d left, want 5", left)
	}
}

const rulesOfCalls = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: c, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: q, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: z, rate_limit: {unit: day, requests_per_unit: 0}}
`

// callOf is a call for the domain d, and entry a descriptor of it; more are members of that.
func callOf(descriptors ...string) string {
	return `{"domain":"d","descriptors":[` + strings.Join(descriptors, ",") + `]}`
}

func entry(key, more string) string {
	return `{"entries":[{"key":"` + key + `","value":"x"}]` + more + `}`
}

// The next check of a list finds what the one before gave back, was charged although it was refused, and
// took and gave up.
func TestListsInTheirOrder(t *testing.T) {
	take, back := callOf(entry("user", `,"hits_addend":5`)), callOf(entry("user", `,"hits_addend":5,"is_negative_hits":true`))
	for _, c := range []struct {
		checks []string
		want   string
	}{
		{[]string{take, back, take}, "[200 200 200]"},
		{[]string{callOf(entry("c", `,"hits_addend":100`)), callOf(entry("c", `,"hits_addend":5`))}, "[429 429]"},
		{[]string{callOf(entry("q", ""), entry("z", "")), callOf(entry("q", ""))}, "[429 200]"},
	} {
		apart, together := newCalls(t, rulesOfCalls, "rules: []"), newCalls(t, rulesOfCalls, "rules: []")
		var alone, listed []int
		for _, body := range c.checks {
			alone = append(alone, check(apart, body).Code)
		}
		for _, answer := range checkEach(t, together, c.checks...) {
			var said struct{ Status int }
			if err := json.Unmarshal(answer, &said); err != nil {
				t.Fatal(err)
			}
			listed = append(listed, said.Status)
		}
		if fmt.Sprint(alone) != c.want || fmt.Sprint(listed) != c.want {
			t.Errorf("%s: alone %v, in a list %v, want %s", c.checks, alone, listed, c.want)
		}
	}
}

// Charges of refused calls are shown at the calls that were charged.
func TestListShowsItsCharges(t *testing.T) {
	s := newCalls(t, rulesOfCalls, "rules: []")
	var used []int64
	for _, answer := range checkEach(t, s, callOf(entry("c", ""), entry("z", "")), callOf(entry("c", `,"hits_addend":25`))) {
		var said struct{ Decisions []struct{ Used int64 } }
		if err := json.Unmarshal(answer, &said); err != nil || len(said.Decisions) == 0 {
			t.Fatal(err, string(answer))
		}
		used = append(used, said.Decisions[0].Used)
	}
	if fmt.Sprint(used) != "[0 20]" {
		t.Errorf("c has used %v, want [0 20]", used)
	}
}
