package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Units that a call gives back while the store is away go to this instance's share alone. What a refused call
// took and the store does not take back stays taken, and the log says so.
func TestCallsGiveBackWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		fails := map[int]bool{} // calls of the store
		store := &limittest.Faulty{Store: new(stint.Memory), Fault: func(call int) (f limittest.Fault) {
			if fails[call] {
				f.Err = limittest.ErrFault
			}
			return f
		}}
		s := newCalls(t, plainCalls, "{}", over(store), logTo(&log))
		quotas := newCalls(t, quotaCalls, "{}", over(store), logTo(&log))
		for i, step := range []struct {
			server *server.Server
			in     *rules.Input
			fails  []int // of the calls that the step makes: those that fail
			want   string
			logged string
		}{
			{s, calling("a=1*3", "b=1*5"), nil, "yes: 0 0", ""},
			{s, calling("b=1*-2"), nil, "yes: 2", ""},
			{s, calling("a=1*-2", "b=1*-2"), []int{1, 2, 3, 4}, "yes: 2 4", limittest.ErrFault.Error()},
			{s, calling("a=1*0", "b=1*0"), nil, "no: 0! 2", ""}, // the store has none of that
			{quotas, calling("b=3", "c=1*4"), nil, "no: 2 0!", ""},
			{quotas, calling("b=3", "c=2*4"), []int{2}, "no: 1 0!", "could not be refunded under the limits that allowed it"},
			{quotas, calling("b=3*0"), nil, "yes: 1", ""},
		} {
			synctest.Wait()
			time.Sleep(time.Second)
			clear(fails)
			before := store.Calls()
			for _, n := range step.fails {
				fails[before+n] = true
			}
			v, err := step.server.Decide(t.Context(), step.in, time.Time{})
			if got := sayCall(step.in, &v, err); got != step.want {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
			if text := log.taken(); !strings.Contains(text, step.logged) || strings.Contains(text, "level=ERROR") != (step.logged != "") {
				t.Errorf("step %d: logged %s", i, text)
			}
		}
	})
}

// An override by hand may have several limits: they refuse together, also in quota mode, and all of them
// are charged.
func TestCallsWithOverridesByHand(t *testing.T) {
	const both = `,"limits":["2 per 1m fixed_window","9 per 1h fixed_window"]}`
	for _, mode := range []string{"all", "each", "quota"} {
		s := newCalls(t, plainCalls, "{}")
		operator{t, s.Admin()}.want(201, "POST", "/v1/overrides", `{"rule":"d/a","key":"1"`+both)
		call := func(descriptors ...string) *rules.Input {
			in := calling(descriptors...)
			in.Descriptors.Each, in.Descriptors.Quota = mode == "each", mode == "quota"
			return in
		}
		for i, step := range []struct {
			after time.Duration
			in    *rules.Input
			want  string // allowed, and what is left of each limit
		}{
			{0, call("a=1"), "true [1 8]"},
			{0, call("a=1*4"), "false [0 4]"}, // charged under both
			{0, call("a=1"), "false [0 4]"},
			{time.Minute, call("a=1*3"), "false [0 1]"},
			{2 * time.Minute, call("a=1*2"), "false [0 0]"},
			{3 * time.Minute, call("a=1"), "false [2 0]"}, // and nothing is taken under the other
			{time.Hour, call("a=1"), "true [1 8]"},
		} {
			v, err := s.Decide(t.Context(), step.in, noon.Add(step.after))
			var left []int64
			for _, d := range v.Each {
				left = append(left, d.Remaining)
			}
			if got := fmt.Sprint(v.Allowed, left); got != step.want || err != nil {
				t.Errorf("%s, step %d: %s, %v, want %s", mode, i, got, err, step.want)
			}
		}
	}
}

// A verdict has what was left before a charge, if anything was charged. A call that takes nothing is
// refused where not one is left, but a graver refusal beside it stays.
func TestChargedCalls(t *testing.T) {
	s := newCalls(t, `
domain: d
descriptors:
  - {key: a, penalty: {warn_after: 1}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
`, "{}")
	for i, step := range []struct {
		in         *rules.Input
		want, left string
	}{
		{calling("hour=x", "tried=1*3"), "allowed by d/hour, 0 left", "[]"},
		{calling("hour=x"), "limited by d/hour, 0 left, retry 1h0m0s", "[]"},
		{calling("hour=x", "tried=1"), "limited by d/hour, 0 left, retry 1h0m0s", "[]"},
		{calling("hour=x*0"), "limited by d/hour, 0 left, retry 1h0m0s", "[]"},
		{calling("a=1", "a=2"), "allowed by d/a, 0 left", "[]"},
		{calling("a=3", "a=2", "hour=x"), "warned by d/a, 0 left, retry 1h0m0s", "[]"}, // the key that counts is not that of the longest wait
		{calling("hour=x*0", "a=1"), "warned by d/a, 0 left, retry 1h0m0s", "[]"},
		{calling("hour=y*2", "a=4"), "limited by d/hour, 0 left, never", "[1 1]"},
		{calling("tried=2*4"), "allowed", "[3]"}, // in shadow mode
		{calling("tried=2*0"), "allowed", "[]"},
	} {
		v, err := s.Decide(t.Context(), step.in, noon)
		if got, left := say(&v, err), fmt.Sprint(v.Left); got != step.want || left != step.left {
			t.Errorf("step %d: %s, left %s; want %s, left %s", i, got, left, step.want, step.left)
		}
	}
}

// What calls give back leaves nothing in the log, and no unit more than was taken, also in an instance that
// is overloaded: there, rules with quota_mode that refused have taken nothing.
func TestGivingBackIsQuiet(t *testing.T) {
	var log logged
	s := newCalls(t, quotaCalls, "{}", over(&limittest.Faulty{Store: new(stint.Memory)}), unhurried, logTo(&log), bounded(config.Instance{Limit: stint.MustLimit("2 per 24h fixed_window")}))
	o := operator{t, s.Admin()}
	for i, step := range []struct {
		in   *rules.Input
		want string
	}{
		{calling("b=1*2", "c=1*3"), "yes: 0 0"},
		{calling("c=1*-2"), "yes: 2"},
		{calling("b=1", "kept=1"), "error"}, // b refuses, kept does not
		{calling("b=1", "kept=1"), "error"},
	} {
		v, err := s.Decide(t.Context(), step.in, time.Time{})
		if got := sayCall(step.in, &v, err); got != step.want && (step.want != "error" || err == nil) {
			t.Errorf("call %d: %s, want %s", i, got, step.want)
		}
	}
	for key, used := range map[string]string{"b": `"used":2,`, "c": `"used":1,`, "kept": `"used":0,`} {
		o.want(200, "POST", "/v1/keys/show", `{"rule":"d/`+key+`","key":"1"}`, used)
	}
	if text := log.taken(); strings.Contains(text, "level=ERROR") {
		t.Errorf("logged: %s", text)
	}
}
