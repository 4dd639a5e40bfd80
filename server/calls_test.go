package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	layers "github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// newCalls is newServer with the rules of a file of Envoy's form, too.
func newCalls(t testing.TB, envoy, file string, changes ...func(*server.Config)) *server.Server {
	t.Helper()
	set, err := rules.ParseFiles([]rules.File{{Name: "rules.yaml", Data: []byte(file)}, {Name: "envoy.yaml", Data: []byte(envoy), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	return newServer(t, "{}", append([]func(*server.Config){func(c *server.Config) { c.Rules = set }}, changes...)...)
}

// calling is a call for the domain d. A descriptor is "key=value,key=value*cost"; the cost is 1 where there
// is none, and is given back if it is negative.
func calling(descriptors ...string) *rules.Input {
	d := &rules.Descriptors{Domain: "d"}
	for _, text := range descriptors {
		one := rules.Descriptor{Cost: 1}
		if entries, cost, ok := strings.Cut(text, "*"); ok {
			text = entries
			fmt.Sscan(cost, &one.Cost)
			one.GiveBack, one.Cost = one.Cost < 0, max(one.Cost, -one.Cost)
		}
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			one.Entries = append(one.Entries, rules.Entry{Key: key, Value: value})
		}
		d.List = append(d.List, one)
	}
	return &rules.Input{Descriptors: d}
}

func each(in *rules.Input) *rules.Input  { in.Descriptors.Each = true; return in }
func quota(in *rules.Input) *rules.Input { in.Descriptors.Quota = true; return in }

// sayCall says whether a call is allowed and, of each descriptor, what is left: "no: 3, 0!, -"; a "!" is
// a refusal, a "?" no decision, and a "-" no limit.
func sayCall(in *rules.Input, v *server.Verdict, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	text := "yes:"
	if !v.Allowed {
		text = "no:"
	}
	for i := range v.Descriptors {
		m := &v.Descriptors[i]
		text += " "
		if m.Ask < 0 {
			text += "-"
			continue
		}
		decided := v.Each
		if m.GiveBack {
			decided = v.GivenBack
		}
		if m.Ask >= len(decided) {
			text += "none"
			continue
		}
		d := &decided[m.Ask]
		if d.Outcome != 0 && (d.Key != m.Key || d.Limit != nil && d.Limit.Spec().Name != m.Rule.Name) {
			text += fmt.Sprintf("<%s %s, and not %s %s>", d.Limit, d.Key, m.Rule.Name, m.Key)
		}
		text += fmt.Sprint(d.Remaining)
		switch {
		case d.Outcome == 0:
			text += "?"
		case !d.Allowed:
			text += "!"
		}
	}
	return text
}

type callStep struct {
	after time.Duration
	in    *rules.Input
	want  string // see sayCall
}

func tellCalls(t *testing.T, s *server.Server, story []callStep) {
	t.Helper()
	for i, step := range story {
		v, err := s.Decide(context.Background(), step.in, noon.Add(step.after))
		if got := sayCall(step.in, &v, err); got != step.want {
			t.Errorf("step %d, after %s:\n got %s\nwant %s", i, step.after, got, step.want)
		}
		if !slices.ContainsFunc(v.Each, func(d stint.Decision) bool { return same(&d, &v.Decision) }) && v.Limit != nil {
			t.Errorf("step %d, after %s: the answer %+v is none of %+v", i, step.after, v.Decision, v.Each)
		}
	}
}

// same reports whether a and b say the same of one key under one limit.
func same(a, b *stint.Decision) bool {
	return a.Limit == b.Limit && a.Key == b.Key && a.Remaining == b.Remaining && a.ResetAfter == b.ResetAfter
}

const plainCalls = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: kept, rate_limit: {unit: minute, requests_per_unit: 3, charge_refused: false}}
`

// A call takes all or nothing. What is over is charged if it costs more than one unit.
func TestCalls(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		tellCalls(t, newCalls(t, plainCalls, "{}", store), []callStep{
			{0, calling("a=1"), "yes: 2"},
			{0, calling("a=1", "b=1"), "yes: 1 4"},
			{0, calling("a=1", "a=2", "nothing=1", "free=1"), "yes: 0 2 - -"},
			{0, calling("a=1", "b=1"), "no: 0! 4"}, // and b is not charged
			{0, calling("b=1*0"), "yes: 4"},
			{0, calling("a=1*0"), "no: 0!"},          // takes nothing, and not one is left
			{0, calling("a=1*0", "b=1"), "no: 0! 4"}, // so b is not charged
			{0, calling("b=1", "a=1*0", "a=1"), "no: 4 0! 0!"},
			{0, calling("none=1"), "no: 1!"},
			{0, calling("none=1*0"), "yes: 1"},
			// More than fits was used already:
			{0, calling("b=2*7"), "no: 0!"},
			{0, calling("b=2*0"), "no: 0!"}, // in debt
			{0, calling("b=2"), "no: 0!"},
			{0, calling("kept=1*7"), "no: 3!"},
			{0, calling("kept=1"), "yes: 2"},
			// Also what another descriptor refuses:
			{0, calling("b=3*2", "a=1"), "no: 3 0!"},
			{0, calling("b=3"), "yes: 2"},
			{time.Minute, calling("b=2", "a=1"), "yes: 4 2"}, // the debt has ended with its window
		})
	})
}

// Descriptors of a call can find one rule with different keys, and with one key, which takes the sum.
func TestCallsOfOneRule(t *testing.T) {
	tellCalls(t, newCalls(t, plainCalls, "{}"), []callStep{
		{0, calling("a=1", "a=2", "a=1"), "yes: 1 2 1"},
		{0, calling("a=1", "a=2", "a=1"), "no: 1! 2 1!"},
		{0, calling("a=1", "a=2"), "yes: 0 1"},
	})
}

// With Each, every descriptor is decided by itself.
func TestCallsDecidedEach(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		tellCalls(t, newCalls(t, plainCalls, "{rules: [{name: all, key: attrs.domain, limits: [8 per 1m fixed_window]}]}", store), []callStep{
			{0, each(calling("a=1*3", "b=1")), "yes: 0 4"},
			{0, each(calling("a=1", "b=1")), "no: 0! 3"},
			{0, calling("b=1*0"), "yes: 3"},
			{0, each(calling("a=2*4", "b=2*2")), "no: 0! 3"},
			{0, calling("a=2*0"), "no: 0!"}, // charged
			{0, calling("b=2*0"), "yes: 3"},
		})
	})
}

const quotaCalls = `
domain: d
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: kept, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`

// Rules with quota_mode refuse a call only together.
func TestQuotaCalls(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		tellCalls(t, newCalls(t, quotaCalls, "{}", store), []callStep{
			{0, calling("a=1", "b=1"), "yes: 0 1"},
			{0, calling("a=1", "b=1"), "yes: 0! 0"}, // b has room
			{0, calling("a=1", "b=1"), "no: 0! 0!"},
			{0, calling("a=1"), "no: 0!"},
			{0, calling("a=1", "b=2", "c=1"), "yes: 0! 1 2"},
			{0, calling("a=1", "b=1", "c=1"), "no: 0! 0! 2"}, // c is given back
			{0, calling("c=1*2"), "yes: 0"},
			{0, calling("b=2", "c=1"), "no: 1 0!"}, // b is given back
			{0, calling("b=2*0"), "yes: 1"},
			// What was used already stays charged:
			{0, calling("b=3*2", "c=1"), "no: 0 0!"},
			{0, calling("b=3", "c=2"), "no: 0! 3"},
			{0, calling("b=3", "kept=1*2"), "yes: 0! 0"},
			{0, calling("b=4*3", "c=2"), "no: 0! 3"}, // all quota rules of the call
			{0, calling("b=4*3", "a=2", "c=2"), "yes: 0! 0 2"},
		})
	})
}

// Descriptors.Quota makes all rules of Envoy's files those of quota_mode, but no others.
func TestQuotaForAll(t *testing.T) {
	s := newCalls(t, plainCalls, "{rules: [{name: all, key: attrs.domain, limits: [3 per 1m fixed_window]}]}")
	tellCalls(t, s, []callStep{
		{0, quota(calling("a=1", "b=1")), "yes: 2 4"},
		{0, quota(calling("a=1*2", "b=1*2")), "yes: 0 2"},
		{0, quota(calling("a=1", "b=1")), "no: 0! 2"}, // by rule all
		{0, quota(calling("a=1*0", "b=1*0")), "yes: 0! 2"},
	})
	tellCalls(t, newCalls(t, plainCalls, "{}"), []callStep{
		{0, quota(calling("a=1*3", "b=1*5")), "yes: 0 0"},
		{0, quota(calling("a=1")), "no: 0!"},
		{0, quota(calling("a=1", "b=1")), "no: 0! 0!"},
		{0, quota(calling("a=1", "nothing=1")), "yes: 0! -"}, // which is not over
		{0, quota(calling("a=1", "free=1")), "yes: 0! -"},
	})
}

// Who takes units ahead has not used what is refused.
func TestCallsAhead(t *testing.T) {
	ahead := func(in *rules.Input) *rules.Input { in.Descriptors.Ahead = true; return in }
	tellCalls(t, newCalls(t, plainCalls, "{}"), []callStep{
		{0, ahead(calling("a=1*7")), "no: 3!"},
		{0, ahead(calling("a=1*3")), "yes: 0"},
	})
}

// A call gives back what it wants to, if it is allowed.
func TestCallsGiveBack(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		tellCalls(t, newCalls(t, plainCalls, "{}", store), []callStep{
			{0, calling("a=1*3"), "yes: 0"},
			{0, calling("a=1*-2"), "yes: 2"},
			{0, calling("a=1*-5"), "yes: 3"}, // never below unused
			{0, calling("b=1*5"), "yes: 0"},
			{0, calling("a=1*-1", "b=1"), "no: none 0!"}, // all or nothing
			{0, each(calling("b=1*-1", "b=1")), "no: 1 0!"},
			{0, calling("b=1*9"), "no: 0!"},
			{0, calling("b=1*-9"), "yes: 1"}, // of 4 and 9
			{0, calling("free=1*-1", "nothing=1*-1", "none=1*-1"), "yes: - - -"},
			{0, calling("a=4*3", "b=4*5"), "yes: 0 0"},
			{0, calling("a=4*-1", "free=1", "b=4*-4"), "yes: 1 - 4"}, // each its own
			// What it gives back is not charged when the rest is refused:
			{0, each(calling("a=5", "a=5*6", "a=5*-5")), "no: 0! 0! 3"},
			{0, calling("a=5*-4"), "yes: 1"}, // of 6
			// Nor is what is refused under another key:
			{0, calling("a=6", "a=6*6", "a=7*2"), "no: 0! 0! 1"},
			{0, calling("a=6*-4"), "yes: 1"}, // of 6
		})
	})
}

// Rules in shadow mode are decided, one key at a time, and refuse nothing. What they refuse is charged
// as if they were enforced.
func TestShadowCalls(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		s := newCalls(t, `
domain: d
descriptors:
  - {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: tried, shadow_mode: true, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`, "{}", store)
		tellCalls(t, s, []callStep{
			{0, calling("quota=1", "tried=1"), "yes: 0 0"},
			{0, calling("quota=1", "tried=1"), "yes: 0! 0!"}, // not all quotas refuse
			{0, calling("quota=1"), "no: 0!"},
			{0, calling("a=1*2", "b=1"), "yes: 0 1"},
			{0, calling("a=1", "a=2", "b=1"), "yes: 0! 1 0"},
			{0, calling("a=2"), "yes: 0"},
			{0, calling("a=3*5"), "yes: 0!"},
			{0, calling("a=3"), "yes: 0!"},
		})
	})
}

// A ban that runs answers for its key; the others are not asked.
func TestBannedCalls(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		s := newCalls(t, `
domain: d
descriptors:
  - {key: a, penalty: {ban_after: 2, ban_for: 10m}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
`, "{}", store)
		tellCalls(t, s, []callStep{
			{0, calling("a=1", "a=2"), "yes: 0 0"},
			{0, calling("a=1"), "no: 0!"},
			{0, calling("a=3", "a=1"), "no: 1 0!"}, // the ban begins
			{0, calling("a=3", "a=1", "b=1"), "no: 0? 0! 0?"},
			{0, calling("a=1*5", "b=1*5"), "no: 0! 0?"}, // counts nothing
			{0, calling("b=1"), "yes: 1"},
			{0, calling("a=3"), "yes: 0"},
			{10 * time.Minute, calling("a=1"), "yes: 0"},
		})
		v, err := s.Decide(context.Background(), calling("a=3", "a=1"), noon.Add(time.Minute))
		if err != nil || v.Outcome != stint.Banned || v.Key != "1" || v.Rule == nil || v.Rule != v.Descriptors[1].Rule || v.BanLeft != 9*time.Minute {
			t.Errorf("%v, %s: want key 1 banned for 9 minutes", err, say(&v, err))
		}
	})
}

// The answer to a call whose descriptors are decided apart names what is gravest, and the wait after
// which none refuses any more.
func TestRetryAfterOfCalls(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		const file = `
domain: d
descriptors:
  - {key: a, penalty: {warn_after: 1, ban_after: 3, ban_for: 10m}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
`
		for name, change := range map[string]func(*rules.Input) *rules.Input{"each": each, "quota": quota} {
			s := newCalls(t, file, "{}", store)
			call := func(keys ...string) *rules.Input {
				for i := range keys {
					keys[i] += name // so that both have keys of their own
				}
				return change(calling(keys...))
			}
			tell(t, s, []step{
				{0, call("a=1", "hour=1"), "allowed by d/a, 0 left", ""},
				{0, call("hour=1"), "limited by d/hour, 0 left, retry 1h0m0s", ""},
				{0, call("a=1", "hour=1"), "warned by d/a, 0 left, retry 1h0m0s", ""},
				{0, call("a=1"), "warned by d/a, 0 left, retry 1m0s", ""},
				{0, call("hour=1", "a=1"), "banned by d/a, 0 left, banned for 10m0s, retry 1h0m0s", ""},
				{time.Minute, call("hour=1", "a=1"), "banned by d/a, banned for 9m0s, retry 59m0s", ""},
				{time.Hour, call("hour=1", "a=1"), "allowed by d/hour, 0 left", ""},
			})
		}
	})
}

// Rules that only watch responses are not among the decisions, which descriptors have the index of.
func TestCallsBesideRulesWithoutLimits(t *testing.T) {
	s := newCalls(t, plainCalls, `
rules:
  - {name: watch, key: attrs.domain, penalty: {on_status: [500], ban_after: 5, ban_for: 1m}}
  - {name: all, key: attrs.domain, limits: [100 per 1m]}
`)
	tellCalls(t, s, []callStep{
		{0, calling("a=1", "b=1"), "yes: 2 4"},
		{0, each(calling("a=1*3", "b=1*2")), "no: 0! 2"},
		{0, quota(calling("b=1*-3", "b=2*6", "a=2")), "yes: 5 0! 2"},
	})
	v, err := s.Decide(context.Background(), calling("b=4", "a=3*5"), noon)
	if m := v.Descriptors[1]; err != nil || len(v.Left) != len(v.Each) || v.Left[m.Ask] != 3 || v.Each[m.Ask].Remaining != 0 {
		t.Errorf("%v: left %d before the charge and %+v after it, want 3 and 0", err, v.Left, v.Each)
	}
}

// downStore is a Store that fails.
type downStore struct{ stint.Store }

var errDown = errors.New("down")

func (downStore) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errDown
}

func (downStore) Refund(context.Context, *stint.Request) error { return errDown }

func (downStore) Holds(_ context.Context, _ time.Time, calls []stint.HoldCall) {
	for i := range calls {
		calls[i].Err = fmt.Errorf("%w: %w", layers.ErrNotCharged, errDown)
	}
}

func (downStore) Held(context.Context, string, []*stint.Limit) ([]stint.Hold, error) {
	return nil, errDown
}

// Without the store, a rule decides by its on_store_error; if it denies, the call is an error, and takes
// nothing.
func TestCallsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCalls(t, `
domain: d
descriptors:
  - {key: local, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: allow, on_store_error: allow, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: deny, on_store_error: deny, rate_limit: {unit: minute, requests_per_unit: 2}}
`, "{}", over(downStore{new(stint.Memory)}))
		for i, tt := range []struct {
			in   *rules.Input
			want string
		}{
			{calling("local=1"), "yes: 1"},
			{calling("local=1", "allow=1"), "yes: 0 2"},
			{calling("local=1", "allow=1"), "no: 0! 2"},
			{calling("local=2", "deny=1"), "error"},
			{each(calling("local=2", "deny=1")), "error"},
			{quota(calling("local=2", "deny=1")), "error"},
			{calling("local=2*2"), "yes: 0"}, // the errors took nothing
			{calling("local=3*5"), "no: 0!"}, // charged here
			{calling("local=3"), "no: 0!"},
			{calling("local=3*-5"), "yes: 2"},
			{calling("deny=1*-5"), "error"},
		} {
			v, err := s.Decide(t.Context(), tt.in, time.Time{})
			if got := sayCall(tt.in, &v, err); got != tt.want && !(tt.want == "error" && err != nil && !errors.Is(err, stint.ErrRequest)) {
				t.Errorf("call %d: %s, want %s", i, got, tt.want)
			}
		}
	})
}

// A limit that the call gives takes the place of that of the rules, and its refusals are charged.
func TestCallsWithOverrides(t *testing.T) {
	limit := func(in *rules.Input, amount int64, unit rules.Unit) *rules.Input {
		for i := range in.Descriptors.List {
			in.Descriptors.List[i].Override = &rules.DescriptorLimit{Amount: amount, Unit: unit}
		}
		return in
	}
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		s := newCalls(t, plainCalls, "{}", store)
		tellCalls(t, s, []callStep{
			{0, limit(calling("a=1"), 2, rules.Hour), "yes: 1"},
			{0, limit(calling("a=1", "unknown=1"), 2, rules.Hour), "yes: 0 1"},
			{0, limit(calling("a=1", "unknown=1"), 2, rules.Hour), "no: 0! 1"},
			{0, calling("a=1"), "yes: 2"}, // under the rule
			{0, limit(calling("a=2*5"), 2, rules.Hour), "no: 0!"},
			{0, limit(calling("a=2"), 2, rules.Hour), "no: 0!"},
			{0, limit(calling("a=2"), 2, rules.Minute), "yes: 1"},
			{0, limit(calling("a=3"), 0, rules.Minute), "no: 1!"},
			{0, limit(calling("a=3*0"), 0, rules.Minute), "yes: 1"},
		})
		v, err := s.Decide(context.Background(), limit(calling("a=1"), 2, rules.Hour), noon)
		if err != nil || v.Rule == nil || v.Rule != v.Descriptors[0].Rule || v.Limit.Spec().Period != time.Hour {
			t.Errorf("%v, %s: want a refusal by the rule for overrides", err, say(&v, err))
		}
		for _, unit := range []rules.Unit{0, 5} {
			if _, err := s.Decide(context.Background(), limit(calling("a=1"), 2, unit), noon); !errors.Is(err, stint.ErrRequest) {
				t.Errorf("unit %d: %v, want ErrRequest", unit, err)
			}
		}
	})
}

// A list of checks may have calls among others.
func TestCallsBesideChecks(t *testing.T) {
	s := newCalls(t, plainCalls, "{rules: [{name: client, match: 'client.ip != \"\"', key: client.ip, limits: [2 per 24h fixed_window]}]}")
	const call = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`
	const client = `{"client":"192.0.2.1"}`
	var got []string
	for _, text := range checkEach(t, s, client, call, client, call, client, `{"cost":-1}`, call, call) {
		a := readAnswer[answered](t, &httptest.ResponseRecorder{Body: bytes.NewBuffer(text)})
		got = append(got, fmt.Sprint(a.Status, " ", a))
	}
	want := []string{
		"200 allowed: client 1 left, 0 held, 1 used", "200 allowed: d/a 2 left, 0 held, 1 used",
		"200 allowed: client 0 left, 0 held, 2 used", "200 allowed: d/a 1 left, 0 held, 2 used",
		"429 limited: client 0 left, 0 held, 2 used", "400 : ",
		"200 allowed: d/a 0 left, 0 held, 3 used", "429 limited: d/a 0 left, 0 held, 3 used",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// What is refused is charged in each of them.
	for i, text := range checkEach(t, s, strings.Replace(call, "{", `{"cost":4,`, 1), client, strings.Replace(strings.Replace(call, "{", `{"cost":5,`, 1), `"1"`, `"2"`, 1)) {
		if a := readAnswer[answered](t, &httptest.ResponseRecorder{Body: bytes.NewBuffer(text)}); i != 1 && a.String() != "limited: d/a 0 left, 0 held, 3 used" {
			t.Errorf("call %d: %s", i, a)
		}
	}
}

// What an overloaded instance refuses costs nothing, whatever its groups took, and gives nothing back.
func TestCallsOfAnOverloadedInstance(t *testing.T) {
	s := newCalls(t, quotaCalls, "{}", bounded(config.Instance{Limit: stint.MustLimit("1 per 24h")}))
	ask := func(in *rules.Input) string {
		v, err := s.Decide(t.Context(), in, time.Time{})
		return sayCall(in, &v, err)
	}
	if got := ask(calling("b=1", "b=2", "c=1")); got != "yes: 1 1 2" {
		t.Error(got)
	}
	for range 2 {
		if got := ask(calling("b=2", "c=1*2", "b=1*-1")); !strings.HasPrefix(got, "error") {
			t.Error(got)
		}
	}
	// Refusals by rules come first, and show how the keys stand.
	if got := ask(calling("b=1*2", "c=1*4")); got != "no: 0! 0!" {
		t.Error(got)
	}
	used := operator{t, s.Admin()}.want(200, "POST", "/v1/keys/show", `{"rule":"d/b","key":"2"}`)
	if !strings.Contains(used, `"used":1,`) {
		t.Errorf("key 2 after refunds: %s", used)
	}
}
