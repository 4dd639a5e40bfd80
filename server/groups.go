package server

import (
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// group is one request to the store. An HTTP request or a check has one group with all enforced rules, and
// one for each rule in shadow mode. A call of Envoy's service may have more; see apart.
type group struct {
	request stint.Request
	rules   []*rules.Rule
	places  []int // of its asks in the evaluation; nil: all of them
	answer  stint.Answer
	quota   bool              // it refuses only together with all others like it; in shadow mode never
	charged *[]stint.HoldCall // in shadow mode: the calls that charged refused units
}

// inShadow reports whether g is one rule in shadow mode.
func (g *group) inShadow() bool { return isShadow(g.rules[0]) }

// holds reports whether g may hold units, if its request has holds.
func (g *group) holds() bool {
	return slices.ContainsFunc(g.request.Asks, func(a stint.Ask) bool { return isHeld(&a) })
}

// mayHold reports whether the store may have allowed g: it was asked, and did not refuse.
func (g *group) mayHold() bool {
	if g.answer.Err != nil {
		return g.answer.Err != errNotAskedNow
	}
	return g.answer.Allowed
}

// allowed reports whether the store has allowed g, so that its units are taken.
func (g *group) allowed() bool { return g.answer.Err == nil && g.answer.Allowed }

// apart reports whether the i-th ask is in a group of its own, and whether that group refuses only together
// with all others like it (quota). In a call of Envoy's service, groups of their own have the asks of rules
// with quota_mode, those that take nothing and, if each descriptor is decided by itself, all.
func (t *evaluation) apart(i int) (apart, quota bool) {
	rule, d := t.Rules[i], t.in.Descriptors
	if d == nil || rule.Descriptor == nil {
		return isShadow(rule), false
	}
	quota = d.Quota || rule.Descriptor.Quota
	return quota || d.Each || isShadow(rule) || t.asks[i].Peek, quota
}

// divide makes the groups.
func (t *evaluation) divide(at time.Time) {
	t.Each = t.room.each[:]
	if n := len(t.asks); n > len(t.Each) {
		t.Each = make([]stint.Decision, n)
	} else {
		t.Each = t.Each[:n:n]
	}
	t.groups = t.room.groups[:1]
	if t.anyApart() {
		t.divideApart()
	} else {
		g := &t.groups[0]
		g.request.Asks, g.rules, g.answer.Each = t.asks, t.Rules, t.Each
	}
	if t.ending != nil && slices.ContainsFunc(t.asks, func(a stint.Ask) bool { return isHeld(&a) }) {
		t.holds, t.ending.holds = stint.NewHoldID(), true
	}
	for i := range t.groups {
		g := &t.groups[i]
		g.request.At = at
		if at.IsZero() { // a simulation waits for the store
			g.request.Deadline = soonest(g.rules)
		}
		g.request.Hold, g.request.HoldFor = t.holds, t.holdFor
	}
}

func (t *evaluation) anyApart() bool {
	for i := range t.Rules {
		if apart, _ := t.apart(i); apart {
			return true
		}
	}
	return false
}

// divideApart makes a group of the rules that are decided together, if there are any, and a group for each
// other rule or, in a call of Envoy's service, for each key of such a rule.
func (t *evaluation) divideApart() {
	last := -1 // the previous ask, if it is in the last group
	for i, rule := range t.Rules {
		g := &t.groups[0]
		apart, quota := t.apart(i)
		switch {
		case !apart:
			last = -1
		case last < 0 || rule != t.Rules[last] || rule.Descriptor != nil && t.asks[i].Key != t.asks[last].Key:
			t.groups = append(t.groups, group{quota: quota})
			fallthrough
		default:
			g, last = &t.groups[len(t.groups)-1], i
		}
		g.request.Asks = append(g.request.Asks, t.asks[i])
		g.rules = append(g.rules, rule)
		g.places = append(g.places, i)
	}
	if t.groups[0].places == nil {
		t.groups = t.groups[1:]
	}
	for i := range t.groups {
		t.groups[i].answer.Each = make([]stint.Decision, len(t.groups[i].places))
	}
}

// soonest is the shortest decision_timeout of the enforced rules; 0: none has one.
func soonest(all []*rules.Rule) time.Duration {
	var least time.Duration
	for _, r := range all {
		if d := r.DecisionTimeout; d > 0 && !isShadow(r) && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// unasked is how many descriptors ask nothing or refund units, in a call whose rules all refuse only
// together: these are not over a limit.
func (t *evaluation) unasked() (n int) {
	if d := t.in.Descriptors; d == nil || !d.Quota {
		return 0
	}
	for i := range t.Descriptors {
		if m := &t.Descriptors[i]; m.Ask < 0 || m.GiveBack {
			n++
		}
	}
	return n
}

// common is the answer of the enforced groups: of the refusals, the gravest and strictest, with the longest
// RetryAfter of all refusals; without any, the strictest of those that allow.
func (t *evaluation) common() stint.Decision {
	var one *group
	enforced, quotas, spent := 0, t.unasked(), 0
	for i := range t.groups {
		g := &t.groups[i]
		if g.quota {
			quotas++
			if !g.inShadow() && !g.answer.Allowed {
				spent++
			}
		}
		if !g.inShadow() {
			one = g
			enforced++
		}
	}
	if enforced == 1 && spent == quotas {
		return one.answer.Decision
	}
	gravest := stint.Allowed
	var wait time.Duration // also for limits beside a ban
	var each []stint.Decision
	for i := range t.groups {
		g := &t.groups[i]
		d := &g.answer.Decision
		if g.inShadow() || g.quota && !d.Allowed && spent < quotas {
			continue
		}
		gravest, wait = max(gravest, d.Outcome), max(wait, d.RetryAfter)
		each = append(each, *d)
	}
	if len(each) == 0 {
		return t.Decision // nothing refuses
	}
	d := stint.Strictest(slices.DeleteFunc(each, func(d stint.Decision) bool { return d.Outcome != gravest }))
	d.RetryAfter = wait
	return d
}
