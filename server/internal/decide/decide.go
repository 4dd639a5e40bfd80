// Package decide decides requests: which rules apply, what to ask the store, what its answers mean, what is
// undone, and what is charged when a request ends. It knows rules and stores. It does not know who asks or
// who watches: callers hand it requests that were read, and a Watcher learns what became of them.
//
// A request goes from Request.Plan over a Book to Request.conclude and Request.settle. Decisions,
// simulations, previews and explanations take the same road, each with a Book of its own.
package decide

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/server/rules"
)

// Options are the parts of a Decider. All must be given, but for those whose zero value has a meaning.
type Options struct {
	// Set returns the set in force.
	Set func() *Set
	// Limiter decides, behind the layers of this instance if there are any. Unlayered is over the store
	// itself.
	Limiter, Unlayered *stint.Limiter
	Fleet              *fleet.Store
	// StoreError is why the store does not decide now; nil: it does.
	StoreError func() error
	Instance   Instance
	// Now is a clock to compute differences with.
	Now func() time.Duration
	// Admit asks this instance's own limit about a request that the rules allow. If it refuses, the error is
	// a friend.ErrOverloaded. nil: there is no such limit.
	Admit func(context.Context) error
	// FitsHold returns an error if asks that hold are too many for the text that callers get; see
	// Request.Opaque.
	FitsHold func([]stint.Ask) error
	// Ambiguity are ambiguities that are not refused.
	Ambiguity rules.Ambiguity
	// Timeout bounds calls of the store.
	Timeout time.Duration
	// MostKept is the size of the largest list whose memory is reused.
	MostKept int
}

// Decider decides requests. It may be used from many goroutines at once.
type Decider struct {
	Options
	shadowCalls atomic.Int64 // in flight, for rules in shadow mode
}

// New returns a Decider.
func New(o Options) *Decider { return &Decider{Options: o} }

// ShadowCalls is how many calls of the store are in flight for rules in shadow mode.
func (d *Decider) ShadowCalls() int64 { return d.shadowCalls.Load() }

// Set is a set of rules, and who watches the requests that it decides.
type Set struct {
	*rules.Set
	Watcher Watcher
}

// Decide decides requests that arrived together, as if one after another, in as few calls of the store as
// possible. It skips those whose Request already has an error. at is their instant, for simulations; the zero
// Time means now.
//
// shadows reports whether to wait for the answers of rules in shadow mode.
//
// There is one difference: refunds by the instance's limit come too late for requests in the same call of the
// store.
func (d *Decider) Decide(ctx context.Context, all []Request, at time.Time, shadows bool) {
	a := arrival{set: d.Set(), start: d.Now(), at: at, shadows: shadows, several: len(all) > 1}
	m := plans.Get().(*rules.Plan)
	d.each(&a, all, func(t *Request) { t.plan(context.Background(), a.set, m, at, d.Ambiguity, d.FitsHold) })
	m.Asks, m.Rules, m.Claims, m.Descriptors, m.GiveBack = nil, nil, nil, nil, nil // the requests keep them
	plans.Put(m)
	for rest := all; len(rest) > 0; {
		n := inOneCall(rest)
		d.decideTogether(ctx, &a, rest[:n])
		rest = rest[n:]
	}
}

// arrival is common to requests that arrived together.
type arrival struct {
	set     *Set
	start   time.Duration
	at      time.Time // the instant of a simulation; zero: now
	shadows bool      // the answers of rules in shadow mode are wanted
	several bool
	waited  time.Duration // for what is to come after the decision
}

// decideTogether decides some of them with one call of the store.
func (d *Decider) decideTogether(ctx context.Context, a *arrival, all []Request) {
	defer func() {
		if c := all[len(all)-1].shadows; c != nil {
			c.conclude(nil) // after a panic
		}
	}()
	d.contain(a, all, func() { inStore{d}.Take(ctx, all, a.shadows) })
	d.each(a, all, func(t *Request) { d.applyAnswers(ctx, a, t) })
	d.each(a, all, func(t *Request) { t.settle(ctx, inStore{d}, a.at) })
	d.each(a, all, func(t *Request) { d.finish(ctx, a, t) })
}

// ErrBug is the error of a request of a list whose decision panicked.
var ErrBug = errors.New("the decision panicked")

// each runs a stage of the decision for each request of all that could be read.
func (d *Decider) each(a *arrival, all []Request, stage func(*Request)) {
	for i := range all {
		if t := &all[i]; t.In != nil {
			d.contain(a, all[i:i+1], func() { stage(t) })
		}
	}
}

// contain runs a stage of the decision for some requests of a list. If it panics, these requests get ErrBug,
// and the others of the list their answers. For a request that came alone, the panic reaches the caller.
func (d *Decider) contain(a *arrival, some []Request, stage func()) {
	if !a.several {
		stage()
		return
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		d.Instance.Panicked(p)
		for i := range some {
			t := &some[i]
			if t.Err == nil && (len(some) == 1 || len(t.Groups) > 0) { // the others asked nothing
				t.Err = ErrBug
			}
			if t.Err != nil {
				t.Verdict = Verdict{Kind: KindOf(&t.Verdict, t.Err)}
			}
		}
	}()
	stage()
}

// inOneCall returns how many of all, from the first on, one call of the store can decide: those before the
// first whose key's counts may change through earlier answers, or up to the first for which a rule in shadow
// mode holds units.
func inOneCall(all []Request) int {
	var changes map[string]bool // by key
	for i := range all {
		t := &all[i]
		asks := [...][]stint.Ask{t.Asks, t.back}
		for _, of := range asks {
			if changes != nil && slices.ContainsFunc(of, func(a stint.Ask) bool { return changes[a.Key] }) {
				return i
			}
		}
		switch {
		case t.Opaque && slices.ContainsFunc(t.Groups, func(g Group) bool { return g.InShadow() && g.holds() }):
			return i + 1
		case t.hasEffects():
			if changes == nil {
				changes = map[string]bool{}
			}
			for _, of := range asks {
				for j := range of {
					changes[of[j].Key] = true
				}
			}
		}
	}
	return len(all)
}

// hasEffects reports whether the answer to t, a call of Envoy's service, may change counts: t refunds units,
// or returns its units if another of its groups refuses it, or is charged although it is refused.
func (t *Request) hasEffects() bool {
	if t.In == nil || t.In.Descriptors == nil {
		return false
	}
	if len(t.back) > 0 {
		return true
	}
	enforced := 0
	for i := range t.Groups {
		g := &t.Groups[i]
		for j := range g.Request.Asks {
			if t.chargedCost(g, j) > 0 {
				return true
			}
		}
		if !g.InShadow() {
			enforced++
		}
	}
	return enforced > 1 && !t.In.Descriptors.Each
}

// applyAnswers makes the verdict from the store's answers, if t is not malformed.
func (d *Decider) applyAnswers(ctx context.Context, a *arrival, t *Request) {
	now := a.at.IsZero()
	if t.Err == nil && now && a.set.Holds() {
		t.noticeUnheld()
	}
	if t.Err == nil {
		t.Err = d.verdict(ctx, t)
	}
	if t.Err == nil && now {
		t.Err = d.admit(ctx, t)
	}
	if t.Settlement != nil && t.Settlement.Next != nil {
		before := d.Now()
		t.Err = t.Settlement.Next.Ready(t)
		a.waited += d.Now() - before
	}
}

// admit asks the instance's own limit about t, if the rules allow it.
func (d *Decider) admit(ctx context.Context, t *Request) error {
	if d.Admit == nil || !t.Allowed {
		return nil
	}
	return d.Admit(ctx)
}

// noticeUnheld reports a rule with held limits, if t holds nothing because its end is not seen.
func (t *Request) noticeUnheld() {
	if t.Hold != (stint.HoldID{}) {
		return
	}
	for i := range t.Asks {
		if l := t.Asks[i].Limit; l != nil && l.IsHeld() && t.Rules[i].Mode == rules.Enforce {
			t.Set.Watcher.Unheld(t.Rules[i], l)
			return
		}
	}
}

// finish does the rest of the work when t is decided.
func (d *Decider) finish(ctx context.Context, a *arrival, t *Request) {
	t.showLimits()
	if t.Err == nil && !t.Allowed {
		t.Message = t.message()
		if a.at.IsZero() {
			t.Identify()
		}
	}
	if t.Err != nil {
		t.Verdict = Verdict{Kind: t.Kind}
		d.Instance.Ambiguous(t.Err)
	}
	a.set.Watcher.Decided(ctx, Event{t, a.start, d.Now() - a.start - a.waited, !a.at.IsZero()})
}
