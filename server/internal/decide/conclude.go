package decide

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

// verdict concludes t, and adds the effects that explanations and previews do not have.
func (d *Decider) verdict(ctx context.Context, t *Request) error {
	var failed error
	for i := range t.Groups {
		if err := d.answered(ctx, t, &t.Groups[i]); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	t.conclude()
	return nil
}

// conclude makes the verdict from the answers of all groups. Decisions, explanations, previews and
// simulations all conclude here. It changes only t.
func (t *Request) conclude() {
	t.decides = -1
	if len(t.Groups) == 0 {
		return
	}
	for i := range t.Groups {
		g := &t.Groups[i]
		if g.InShadow() {
			g.concludeShadow()
		} else if t.In.Descriptors != nil {
			g.concludeCall()
		}
		t.place(g)
	}
	v := &t.Verdict
	v.Decision, v.applied = t.together(), true
	if v.ranBan() && t.In.Descriptors == nil {
		v.Each = nil
	}
	if t.decides = int32(v.decidedBy(t.Asks)); t.decides >= 0 {
		v.Rule = v.Rules[t.decides]
	}
	t.watch()
}

// place puts the answer of g among those of all groups.
func (t *Request) place(g *Group) {
	for j, place := range g.Places {
		t.Each[place] = g.Answer.Each[j]
	}
}

// answered does what follows from g's own answer: its hold is settled when the request ends. The error is why
// nothing is decided.
func (d *Decider) answered(ctx context.Context, t *Request, g *Group) error {
	a := &g.Answer
	if g.InShadow() {
		if g.Request.At.IsZero() {
			return nil
		}
		return a.Err // of a simulation
	}
	if errors.Is(a.Err, stint.ErrFull) && !d.Fleet.IsLayered() {
		d.Instance.Failed(NoStore, a.Err)
		withoutRoom(g, a)
	}
	if a.Err == nil && t.Settlement != nil {
		t.Settlement.keep(ctx, heldGroup{stint.Internal(friend.Of{}).Keep(d.Limiter, &g.Request, a.Each, &a.Decision), g.Request.Asks, g.Rules, t.Set.Watcher})
	}
	return a.Err
}

// withoutRoom decides when a store in memory is full, for the rules that allow then. A second
// memory beside it would not help.
func withoutRoom(g *Group, a *stint.Answer) {
	for _, r := range g.Rules {
		if r.OnStoreError != stint.OnErrorAllow {
			return
		}
	}
	for i := range g.Request.Asks {
		a.Each[i] = stint.Internal(friend.Of{}).ByPolicy(&g.Request.Asks[i])
	}
	a.Decision, a.Err = stint.Strictest(a.Each), nil
}

// concludeShadow gives each ask of a rule in shadow mode its own answer; zero without an answer.
func (g *Group) concludeShadow() {
	switch a := &g.Answer; {
	case a.Err != nil:
		clear(a.Each)
	case a.Outcome == stint.Banned && a.Limit == nil:
		for j := range a.Each { // as if this ban had answered for all
			a.Each[j] = a.Decision
		}
	}
}

// concludeCall turns the answer of g, which is enforced, into the answer to a call of Envoy's service.
func (g *Group) concludeCall() {
	if g.Answer.Outcome == stint.Banned && g.Answer.Limit == nil {
		g.bannedAlone()
	}
	g.refuseSpent()
}

// bannedAlone reduces the answer of g, in which a running ban refuses all, to the banned key. The others were
// not asked.
func (g *Group) bannedAlone() {
	d := &g.Answer.Decision
	for i := range g.Answer.Each {
		g.Answer.Each[i] = stint.Decision{}
		if a := &g.Request.Asks[i]; a.Penalty == d.Penalty && a.Key == d.Key {
			g.Answer.Each[i] = *d
		}
	}
}

// refuseSpent calls RefuseSpent for each ask of g.
func (g *Group) refuseSpent() {
	spent := false
	for i := range g.Answer.Each {
		spent = RefuseSpent(g.Rules[i], &g.Request.Asks[i], &g.Answer.Each[i]) || spent
	}
	if spent && g.Answer.Allowed {
		g.Answer.Decision = stint.Strictest(g.Answer.Each)
	}
}

// RefuseSpent refuses an ask of a call that takes nothing, if not one unit is left. The store allows
// that. But Envoy asks with 0 and charges the used units when the response ends. A charge of one unit that
// does not fit takes nothing, so the count would stay at the limit, and nothing would refuse. It reports
// whether it has changed d, the answer to a.
func RefuseSpent(rule *rules.Rule, a *stint.Ask, d *stint.Decision) bool {
	if rule.Descriptor == nil || !a.Peek || !d.Allowed || d.Limit == nil || d.Remaining > 0 || d.By == stint.ByPolicy {
		return false
	}
	d.RetryAfter = stint.Internal(friend.Of{}).Lasts(d)
	d.Allowed, d.Outcome = false, stint.Limited
	return true
}

// unasked is how many descriptors ask nothing or refund units, in a call whose rules all refuse only
// together: these are not over a limit.
func (t *Request) unasked() (n int) {
	if d := t.In.Descriptors; d == nil || !d.Quota {
		return 0
	}
	for i := range t.Descriptors {
		if m := &t.Descriptors[i]; m.Ask < 0 || m.GiveBack {
			n++
		}
	}
	return n
}

// together is the answer of the enforced groups: of the refusals, the gravest and strictest, with the longest
// RetryAfter of all refusals; without any, the strictest of those that allow.
func (t *Request) together() stint.Decision {
	var one *Group
	enforced, quotas, spent := 0, t.unasked(), 0
	for i := range t.Groups {
		g := &t.Groups[i]
		if g.Quota {
			quotas++
			if !g.InShadow() && !g.Answer.Allowed {
				spent++
			}
		}
		if !g.InShadow() {
			one = g
			enforced++
		}
	}
	if enforced == 1 && spent == quotas {
		return one.Answer.Decision
	}
	gravest := stint.Allowed
	var wait time.Duration // also for limits beside a ban
	var each []stint.Decision
	for i := range t.Groups {
		g := &t.Groups[i]
		d := &g.Answer.Decision
		if g.InShadow() || g.Quota && !d.Allowed && spent < quotas {
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
