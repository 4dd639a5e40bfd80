package decide

import (
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Group is one request to the store. An HTTP request or a check has one group with all enforced rules, and
// one for each rule in shadow mode. A call of Envoy's service may have more; see apart.
type Group struct {
	Request stint.Request
	Rules   []*rules.Rule
	Places  []int // of its asks in those of the Request that is decided; nil: all of them
	Answer  stint.Answer
	Quota   bool              // it refuses only together with all others like it; in shadow mode never
	charged *[]stint.HoldCall // in shadow mode: the calls that charged refused units
}

// InShadow reports whether g is one rule in shadow mode.
func (g *Group) InShadow() bool { return IsShadow(g.Rules[0]) }

// holds reports whether g may hold units, if its request has holds.
func (g *Group) holds() bool {
	return slices.ContainsFunc(g.Request.Asks, func(a stint.Ask) bool { return isHeld(&a) })
}

// mayHold reports whether the store has allowed g, or may have: a rule in shadow mode that it was asked about
// may be allowed without an answer.
func (g *Group) mayHold() bool {
	return g.allowed() || g.InShadow() && g.Answer.Err != nil && g.Answer.Err != ErrNotAskedNow
}

// allowed reports whether the store has allowed g, so that its units are taken.
func (g *Group) allowed() bool { return g.Answer.Err == nil && g.Answer.Allowed }

// apart reports whether the i-th ask is in a group of its own, and whether that group refuses only together
// with all others like it (quota). In a call of Envoy's service, groups of their own have the asks of rules
// with quota_mode, those that take nothing and, if each descriptor is decided by itself, all.
func (t *Request) apart(i int) (apart, quota bool) {
	rule, d := t.Rules[i], t.In.Descriptors
	if d == nil || rule.Descriptor == nil {
		return IsShadow(rule), false
	}
	quota = d.Quota || rule.Descriptor.Quota
	return quota || d.Each || IsShadow(rule) || t.Asks[i].Peek, quota
}

// divide makes the groups.
func (t *Request) divide(at time.Time) {
	t.Each = t.room.each[:]
	if n := len(t.Asks); n > len(t.Each) {
		t.Each = make([]stint.Decision, n)
	} else {
		t.Each = t.Each[:n:n]
	}
	t.Groups = t.room.groups[:1]
	if t.anyApart() {
		t.divideApart()
	} else {
		g := &t.Groups[0]
		g.Request.Asks, g.Rules, g.Answer.Each = t.Asks, t.Rules, t.Each
	}
	if t.Settlement != nil && slices.ContainsFunc(t.Asks, func(a stint.Ask) bool { return isHeld(&a) }) {
		t.Hold, t.Settlement.Holds = stint.NewHoldID(), true
	}
	for i := range t.Groups {
		g := &t.Groups[i]
		g.Request.At = at
		if at.IsZero() { // a simulation waits for the store
			g.Request.Deadline = soonest(g.Rules)
		}
		g.Request.Hold, g.Request.HoldFor = t.Hold, t.HoldFor
	}
}

func (t *Request) anyApart() bool {
	for i := range t.Rules {
		if apart, _ := t.apart(i); apart {
			return true
		}
	}
	return false
}

// divideApart makes a group of the rules that are decided together, if there are any, and a group for each
// other rule or, in a call of Envoy's service, for each key of such a rule.
func (t *Request) divideApart() {
	last := -1 // the previous ask, if it is in the last group
	for i, rule := range t.Rules {
		g := &t.Groups[0]
		apart, quota := t.apart(i)
		switch {
		case !apart:
			last = -1
		case last < 0 || rule != t.Rules[last] || rule.Descriptor != nil && t.Asks[i].Key != t.Asks[last].Key:
			t.Groups = append(t.Groups, Group{Quota: quota})
			fallthrough
		default:
			g, last = &t.Groups[len(t.Groups)-1], i
		}
		g.Request.Asks = append(g.Request.Asks, t.Asks[i])
		g.Rules = append(g.Rules, rule)
		g.Places = append(g.Places, i)
	}
	if t.Groups[0].Places == nil {
		t.Groups = t.Groups[1:]
	}
	for i := range t.Groups {
		t.Groups[i].Answer.Each = make([]stint.Decision, len(t.Groups[i].Places))
	}
}

// soonest is the shortest decision_timeout of the enforced rules; 0: none has one.
func soonest(all []*rules.Rule) time.Duration {
	var least time.Duration
	for _, r := range all {
		if d := r.DecisionTimeout; d > 0 && !IsShadow(r) && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
