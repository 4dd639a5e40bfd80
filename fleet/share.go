package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

var errOpen = errors.New("the circuit breaker is open")

// isOwed reports whether units admitted in place of a call that failed with err are charged later.
// Most stores charge a call even if they do not answer it in time. A store with a bad reply may
// never charge, although it answers others about the same key.
func isOwed(err error) bool { return errors.Is(err, ErrNotCharged) || errors.Is(err, ErrBadReply) }

// without decides by the asks' OnError, without the units charged ahead. owed means that units it
// admits must be charged to the Store.
func (f *Fallback) without(r *stint.Request, ahead int64, out []stint.Decision, why error, owed bool) (stint.Decision, error) {
	live := f.Live()
	internal.SetLeastCost(f.local, live)
	each := out
	if each == nil {
		each = make([]stint.Decision, len(r.Asks))
	}
	local := stint.Request{Asks: make([]stint.Ask, 0, len(r.Asks)), Hold: r.Hold, HoldFor: r.HoldFor, Deadline: r.Deadline}
	for i := range r.Asks {
		a := &r.Asks[i]
		switch a.OnError {
		case stint.OnErrorDeny:
			return stint.Decision{}, fmt.Errorf("stint: the store does not decide, and %q denies then: %w", nameOf(a), why)
		case stint.OnErrorLocal:
			scaled := *a
			if a.Limit != nil {
				internal.SetUnits(&scaled, scale(a.Limit, a.Units()-ahead, live))
			}
			local.Asks = append(local.Asks, scaled)
		default:
			each[i] = internal.ByPolicy(a)
		}
	}
	if len(local.Asks) == 0 {
		return stint.Strictest(each), nil
	}
	answers := make([]stint.Decision, len(local.Asks))
	f.placed(&local, answers) // before there are answers, because others learn meanwhile
	d, err := f.local.Take(context.Background(), &local, answers)
	if err != nil {
		return stint.Decision{}, errors.Join(why, err)
	}
	if d.Allowed {
		f.placed(&local, answers)
	}
	shared(&d, live)
	if d.Outcome == stint.Banned && d.Limit == nil {
		return d, nil
	}
	for i, j := 0, 0; i < len(r.Asks); i++ {
		if r.Asks[i].OnError != stint.OnErrorLocal {
			continue
		}
		each[i] = answers[j]
		shared(&each[i], live)
		if d.Allowed && owed && isCharged(r, &r.Asks[i]) {
			spent := r.Asks[i]
			internal.SetUnits(&spent, spent.Units()-ahead)
			f.owe(&spent, &answers[j], local.Asks[j].Units(), live)
		}
		j++
	}
	if d.Allowed && d.Limit == nil { // only bans were asked; another ask may have a limit
		return stint.Strictest(each), nil
	}
	return d, nil
}

// placed notes the places in queues that answers give to r here, unknown to the Store, for as long as
// the Store may decide requests that leave before them.
func (f *Fallback) placed(r *stint.Request, answers []stint.Decision) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil {
			continue
		}
		if p := planOf(a.Limit); p.Kind == algo.LeakyBucket {
			late := answers[i].Delay + f.deadline(r.Deadline)
			internal.Placed(f.local, f.clock()+late.Microseconds()+p.Flow(a.Units()))
		}
	}
}

func nameOf(a *stint.Ask) string {
	if a.Limit == nil {
		return a.Penalty.Spec().Name
	}
	return a.Limit.Spec().Name
}

// isCharged reports whether an ask of r, if that is allowed, is charged at once.
func isCharged(r *stint.Request, a *stint.Ask) bool {
	if a.Units() == 0 || planOf(a.Limit).Kind == algo.InFlight {
		return false
	}
	return r.Hold == (stint.HoldID{}) || !a.Limit.IsHeld()
}

// owe notes an ask that was allowed and charged only here. scaled is its cost as counted here, d the
// answer. Under a held limit it is charged later whether it fits or not: holds at that time must not
// prevent it.
func (f *Fallback) owe(a *stint.Ask, d *stint.Decision, scaled, live int64) {
	now, p := f.clock(), planOf(a.Limit)
	used := usedUntil(p, d.Remaining, d.Held, d.ResetAfter)
	f.ledger.note(a, now, now+runsDry(p, used, scaled), live, a.Limit.IsHeld() && f.holder != nil)
}

// shared turns the answer to a scaled cost into the answer to the cost itself.
func shared(d *stint.Decision, live int64) {
	if !d.Limit.IsUnlimited() {
		d.Remaining /= live
	}
	d.By = stint.ByLocal
}

// Look fills out with the answer that each ask of r, by itself, would get from this
// instance's share of its limit. It ignores OnError and penalties, does not ask the Store
// and takes nothing. Remaining is the share's. out must have a place for each ask.
func (f *Fallback) Look(r *stint.Request, out []stint.Decision) error {
	f.init()
	live := f.Live()
	local := stint.Request{Asks: slices.Clone(r.Asks)}
	for i := range local.Asks {
		a := &local.Asks[i]
		if a.Limit != nil {
			internal.SetUnits(a, scale(a.Limit, a.Units(), live))
		}
	}
	if err := internal.DryRun(context.Background(), f.local, &local, out); err != nil {
		return err
	}
	for i := range out {
		shared(&out[i], live)
	}
	return nil
}
