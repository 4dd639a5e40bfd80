package decide

import (
	"context"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Charge is a check that charges units spent already, whether they fit or not.
type Charge struct {
	In    *rules.Input
	Rules []*rules.Rule // of Calls
	Calls []stint.HoldCall
	Err   error
}

// Plan finds the rules that apply, and makes their calls. An in-flight limit is not charged: its call only
// reads the key's state. id must not be in use.
func (c *Charge) Plan(ctx context.Context, set *Set, at time.Time, allowed rules.Ambiguity, id stint.HoldID) {
	t := Request{In: c.In}
	if t.Plan(ctx, set, new(rules.Plan), at, allowed); t.Err != nil {
		c.Err = t.Err
		return
	}
	for i := range t.Asks {
		a := &t.Asks[i]
		if a.Limit == nil {
			continue
		}
		call := stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit, Cost: a.Units()}
		if a.Limit.Spec().Algorithm == stint.InFlight {
			call.Action, call.Hold, call.Units, call.Cost = stint.HoldSettle, id, 1, 0
		}
		c.Calls, c.Rules = append(c.Calls, call), append(c.Rules, t.Rules[i])
	}
}

// Charge charges all of them now. If a call of the store fails, its Err says so.
func (d *Decider) Charge(ctx context.Context, all []Charge) {
	if len(all) == 0 {
		return
	}
	set := d.Set()
	var calls []stint.HoldCall
	for i := range all {
		c := &all[i]
		c.Plan(ctx, set, time.Time{}, d.Ambiguity, stint.NewHoldID())
		d.Instance.Ambiguous(c.Err)
		calls = append(calls, c.Calls...)
	}
	ctx, cancel := Outliving(ctx)
	defer cancel()
	d.Hold(ctx, time.Time{}, calls)
	for i := range all {
		n := copy(all[i].Calls, calls)
		calls = calls[n:]
		all[i].dropUnanswered()
	}
}

// dropUnanswered drops calls that only read an in-flight limit, if the store did not answer. They charge
// nothing, and their errors would hide that the others did charge: the client would charge again.
func (c *Charge) dropUnanswered() {
	n := 0
	for i := range c.Calls {
		if c.Calls[i].Action == stint.HoldSettle && c.Calls[i].Err != nil {
			continue
		}
		c.Calls[n], c.Rules[n] = c.Calls[i], c.Rules[i]
		n++
	}
	c.Calls, c.Rules = c.Calls[:n], c.Rules[:n]
}
