package watch

import (
	"sync/atomic"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// holdCounters are the counters of a rule with held limits. A nil holdCounters counts nothing.
type holdCounters struct {
	series *holdSeries

	// Of responses that are not errors: whether one reported its request's cost, and how many did not.
	read   atomic.Bool
	unread atomic.Int64
}

// begun counts a request that holds something.
func (c *holdCounters) begun() {
	if c != nil {
		c.series[holdsNow].Add(1)
	}
}

// ended counts that such a request has ended: whether it took place, and whether the store had lost its hold.
func (c *holdCounters) ended(tookPlace, lost bool) {
	if c == nil {
		return
	}
	c.series[holdsNow].Add(-1)
	switch {
	case lost:
		c.series[holdsLost].Add(1)
	case tookPlace:
		c.series[holdsSettled].Add(1)
	default:
		c.series[holdsGivenBack].Add(1)
	}
}

// cost counts the held and the final units of a request under one limit.
func (c *holdCounters) cost(held, used int64) {
	if c == nil {
		return
	}
	c.series[unitsHeld].Add(held)
	c.series[unitsUsed].Add(used)
	c.series[unitsAbove].Add(max(0, used-held))
}

// costUnknown counts a request whose cost could not be read.
func (c *holdCounters) costUnknown() {
	if c != nil {
		c.series[costsUnknown].Add(1)
	}
}

// unreadResponses is the number of responses, all without a cost, from which on that is a finding.
const unreadResponses = 20

// responseRead records whether a response with this status reported its request's cost. never is true once:
// when many did not, and none did.
func (c *holdCounters) responseRead(status int, known bool) (never bool) {
	switch {
	case c == nil || status == 0 || status >= 400:
	case known:
		c.read.Store(true)
	case !c.read.Load():
		return c.unread.Add(1) == unreadResponses
	}
	return false
}

// holdsByName has the counters of the rules that hold units.
type holdsByName map[string]*holdCounters

// HoldsNow is how many requests in flight hold something, by rule.
func (c *Served) HoldsNow() map[string]int64 {
	var all map[string]int64
	for rule, counters := range c.holds {
		if n := counters.series[holdsNow].Load(); n > 0 {
			if all == nil {
				all = map[string]int64{}
			}
			all[rule] = n
		}
	}
	return all
}

// Settled counts a settlement by a caller of the check API. Its hold is not in the gauge: it does
// not belong to an instance.
func (c *Served) Settled(calls []stint.HoldCall) {
	type end struct{ found, failed bool }
	ends := map[string]end{} // by rule
	for i := range calls {
		call := &calls[i]
		rule := decide.RuleOf(call.Limit)
		e := ends[rule]
		ends[rule] = end{e.found || call.Found, e.failed || call.Err != nil}
		if call.Found && rules.IsBudget(call.Limit) {
			c.holds[rule].cost(call.Units, call.Cost)
		}
	}
	for rule, e := range ends {
		switch counters := c.holds[rule]; {
		case counters == nil: // the rule is gone
		case e.found:
			counters.series[holdsSettled].Add(1)
		case !e.failed:
			counters.series[holdsNotFound].Add(1)
		}
	}
}

// Charged is for decide.Watcher: it counts the charges without a hold among calls.
func (c *Served) Charged(calls []stint.HoldCall) {
	for i := range calls {
		if call := &calls[i]; call.Action == stint.HoldCharge && call.Err == nil && rules.IsBudget(call.Limit) {
			c.holds[decide.RuleOf(call.Limit)].cost(0, call.Cost)
		}
	}
}

// Held is for decide.Watcher.
func (c *Served) Held(r *rules.Rule) { c.counters.of(r).holds.begun() }

// Released is for decide.Watcher.
func (c *Served) Released(r *rules.Rule, tookPlace, lost bool) {
	c.counters.of(r).holds.ended(tookPlace, lost)
}

// Cost is for decide.Watcher.
func (c *Served) Cost(r *rules.Rule, held, cost int64) { c.counters.of(r).holds.cost(held, cost) }

// CostRead is for decide.Watcher.
func (c *Served) CostRead(r *rules.Rule, status int, known bool) {
	counters := c.counters.of(r).holds
	if counters.responseRead(status, known) {
		c.foundUnread(r)
	}
	if !known {
		counters.costUnknown()
	}
}
