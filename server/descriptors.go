package server

import (
	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

// Calls is how an Envoy rate limit service decides its calls: rules.Descriptors.Each and Quota for all of
// them. The check API and Explain decide such calls in the same way.
type Calls struct{ Each, Quota bool }

// set makes d, which may be nil, be decided that way.
func (c Calls) set(d *rules.Descriptors) {
	if d != nil {
		d.Each, d.Quota = d.Each || c.Each, d.Quota || c.Quota
	}
}

// concludeCall turns the answer of g, which is enforced, into the answer to a call of Envoy's service.
func (g *group) concludeCall() {
	if g.answer.Outcome == stint.Banned && g.answer.Limit == nil {
		g.bannedAlone()
	}
	g.refuseSpent()
}

// bannedAlone reduces the answer of g, in which a running ban refuses all, to the banned key. The others were
// not asked.
func (g *group) bannedAlone() {
	d := &g.answer.Decision
	for i := range g.answer.Each {
		g.answer.Each[i] = stint.Decision{}
		if a := &g.request.Asks[i]; a.Penalty == d.Penalty && a.Key == d.Key {
			g.answer.Each[i] = *d
		}
	}
}

// refuseSpent calls the function refuseSpent for each ask of g.
func (g *group) refuseSpent() {
	spent := false
	for i := range g.answer.Each {
		spent = refuseSpent(g.rules[i], &g.request.Asks[i], &g.answer.Each[i]) || spent
	}
	if spent && g.answer.Allowed {
		g.answer.Decision = stint.Strictest(g.answer.Each)
	}
}

// refuseSpent refuses an ask of a call that takes nothing, if not one unit is left. The store allows
// that. But Envoy asks with 0 and charges the used units when the response ends. A charge of one unit that
// does not fit takes nothing, so the count would stay at the limit, and nothing would refuse. It reports
// whether it has changed d, the answer to a.
func refuseSpent(rule *rules.Rule, a *stint.Ask, d *stint.Decision) bool {
	if rule.Descriptor == nil || !a.Peek || !d.Allowed || d.Limit == nil || d.Remaining > 0 || d.By == stint.ByPolicy {
		return false
	}
	d.RetryAfter = stint.Internal(friend.Of{}).Lasts(d)
	d.Allowed, d.Outcome = false, stint.Limited
	return true
}
