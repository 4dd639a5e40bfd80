package server

import (
	"context"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
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

// chargedCost returns how many units the i-th ask of g is charged if it is refused: those of descriptors that
// take more than one unit, because these were used before the call. Nothing is charged under a limit of 0
// units.
func (t *evaluation) chargedCost(g *group, i int) (cost int64) {
	rule, a := g.rules[i], &g.request.Asks[i]
	switch {
	case rule.Descriptor == nil, !rule.Descriptor.ChargeRefused, a.Units() < 2, !isChargeable(a.Limit):
		return 0
	case t.in.Descriptors.Ahead, g.request.Hold != stint.HoldID{}: // not used yet
		return 0
	}
	place := i
	if g.places != nil {
		place = g.places[i]
	}
	for k := range t.Descriptors {
		m, d := &t.Descriptors[k], &t.in.Descriptors.List[k]
		if m.Rule != rule || m.Key != a.Key || m.GiveBack || m.Limit == nil || m.Limit.Amount == 0 || d.Cost < 2 {
			continue
		}
		if m.Ask == place || d.Override == nil && m.Ask >= 0 { // an operator's override may have several limits
			cost = min(cost+min(d.Cost, a.Units()), a.Units()) // costs are bounded in asks
		}
	}
	return cost
}

// isChargeable reports whether units can be charged under l without being asked for.
func isChargeable(l *stint.Limit) bool { return l.Spec().Algorithm != stint.InFlight }

// refused reports whether a limit has refused g. A ban that runs counts nothing.
func refused(a *stint.Answer) bool { return a.Err == nil && !a.Allowed && a.Limit != nil }

// charges appends the calls that charge g's units, if it is refused.
func (t *evaluation) charges(g *group, calls []stint.HoldCall) []stint.HoldCall {
	for i := range g.request.Asks {
		if cost := t.chargedCost(g, i); cost > 0 {
			a := &g.request.Asks[i]
			calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit, Cost: cost})
		}
	}
	return calls
}

// showCharged puts the state of g's keys after calls, which charges returned, into g's answer. It returns the
// other calls.
func (g *group) showCharged(calls []stint.HoldCall) []stint.HoldCall {
	for i := range g.request.Asks {
		a := &g.request.Asks[i]
		if len(calls) == 0 || calls[0].Key != a.Key || calls[0].Limit != a.Limit {
			continue
		}
		if c := &calls[0]; c.Err == nil {
			g.answer.Each[i].Remaining, g.answer.Each[i].ResetAfter = c.Remaining, c.ResetAfter
		}
		calls = calls[1:]
	}
	return calls
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
	d.RetryAfter = httplimit.Internal(friend.Of{}).Lasts(d)
	d.Allowed, d.Outcome = false, stint.Limited
	return true
}

// settleCall finishes a call of Envoy's service when its limits have answered. An allowed call makes the
// refunds that it asks for. A refused call gets its units back, unless each descriptor is decided by itself.
// Refused units are charged if their rule says so.
func (s *Server) settleCall(ctx context.Context, t *evaluation, at time.Time) {
	each := t.in.Descriptors.Each
	if len(t.back) > 0 && (t.Allowed || each) {
		if t.err = s.giveUnits(ctx, t, at); t.err != nil {
			s.takeBack(ctx, t, true)
			return
		}
	}
	if !t.Allowed && !each {
		s.takeBack(ctx, t, false)
	}
	charges := t.refusedCharges()
	s.charge(ctx, charges, at)
	t.showCharged(charges)
}

// charge makes calls, which charge refused units.
func (s *Server) charge(ctx context.Context, calls []stint.HoldCall, at time.Time) {
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout) // they were used, whether the caller waits or not
	defer cancel()
	s.hold(ctx, at, calls)
	s.set.Load().holds.charged(calls)
	for i := range calls {
		if err := calls[i].Err; err != nil {
			s.notCharged(err)
		}
	}
}

// refusedCharges returns the calls that charge the refused units of t's enforced groups.
func (t *evaluation) refusedCharges() (calls []stint.HoldCall) {
	for i := range t.groups {
		if g := &t.groups[i]; !g.inShadow() && refused(&g.answer) {
			calls = t.charges(g, calls)
		}
	}
	return calls
}

// showCharged is group.showCharged for all groups of t. Those in shadow mode were charged by calls of
// their own.
func (t *evaluation) showCharged(calls []stint.HoldCall) {
	charged := len(calls) > 0
	for i := range t.groups {
		switch g := &t.groups[i]; {
		case g.charged != nil: // in shadow mode
			t.keepLeft()
			g.showCharged(*g.charged)
			t.place(g)
		case !g.inShadow() && len(calls) > 0 && refused(&g.answer):
			t.keepLeft()
			calls = g.showCharged(calls)
			t.place(g)
		}
	}
	if charged {
		for i := range t.Each {
			if d := &t.Each[i]; d.Limit != nil && d.Limit == t.Limit && d.Key == t.Key {
				t.Remaining, t.ResetAfter = d.Remaining, d.ResetAfter
			}
		}
	}
}

// keepLeft records the remaining units before the first charge.
func (t *evaluation) keepLeft() {
	if t.Left != nil {
		return
	}
	t.Left = make([]int64, len(t.Each))
	for i := range t.Each {
		t.Left[i] = t.Each[i].Remaining
	}
}

// takeBack refunds the units of t's allowed groups: all, if t could not be decided, or those that a refused
// call is not charged.
func (s *Server) takeBack(ctx context.Context, t *evaluation, all bool) {
	for i := range t.groups {
		g := &t.groups[i]
		if g.inShadow() || !g.allowed() {
			continue
		}
		stays := func(i int) bool { return !all && t.chargedCost(g, i) > 0 }
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
		err := s.refundGroup(ctx, g, t.ending, stays)
		cancel()
		if err != nil {
			s.sampled.failure("a request was refused, and could not be refunded under the limits that allowed it", err)
			continue
		}
		for j := range g.answer.Each {
			if d, a := &g.answer.Each[j], &g.request.Asks[j]; !stays(j) && isRefundable(a) {
				d.Remaining = min(d.Remaining+a.Units(), a.Limit.Capacity())
			}
		}
		t.place(g)
	}
}

// giveUnits refunds the units of t.back, and reads the state of their keys. If the store fails, they go back
// to this instance's share, like units taken without the store, unless on_store_error denies.
func (s *Server) giveUnits(ctx context.Context, t *evaluation, at time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	shared := at.IsZero() && s.fleet.IsLayered()
	denies := slices.ContainsFunc(t.back, func(a stint.Ask) bool { return a.OnError == stint.OnErrorDeny })
	if shared && denies {
		if err := s.StoreError(); err != nil {
			return err
		}
	}
	err := stint.Refund(ctx, s.fleet, &stint.Request{Asks: t.back, At: at})
	if err != nil && shared && !denies {
		s.sampled.storeFailure(err)
		local := stint.Request{Asks: slices.Clone(t.back)}
		for i := range local.Asks {
			local.Asks[i].By = stint.ByLocal
		}
		err = stint.Refund(ctx, s.fleet, &local)
	}
	if err != nil {
		return err
	}
	t.GivenBack = make([]stint.Decision, len(t.back))
	var calls []stint.HoldCall // which charge nothing
	for i := range t.back {
		key, limit := t.back[i].Key, t.back[i].Limit
		t.GivenBack[i] = stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: limit, Key: key, Remaining: limit.Capacity()}
		if isChargeable(limit) {
			calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: key, Limit: limit})
		}
	}
	s.hold(ctx, at, calls)
	for i := range t.GivenBack {
		if len(calls) == 0 || !isChargeable(t.back[i].Limit) {
			continue
		}
		d, c := &t.GivenBack[i], &calls[0]
		calls = calls[1:]
		if c.Err != nil {
			s.sampled.storeFailure(c.Err)
			continue
		}
		d.Remaining, d.Held, d.ResetAfter = c.Remaining, c.Held, c.ResetAfter
	}
	return nil
}
