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

// Refusals by rules in shadow mode are counted, and returned to callers who ask for them. They change no
// answer. So these rules are decided in calls of their own: asks in one call share its deadline, its leases
// and its failures.

// IsShadow reports whether r is in shadow mode.
func IsShadow(r *rules.Rule) bool { return r.Mode == rules.Shadow }

// shadows are the asks of rules in shadow mode about some requests. Apart from groups, it
// shares no memory that is reused, because the store may still work on it when the requests
// have been answered.
type shadows struct {
	storeCall
	groups   []*Group
	rules    []*rules.Rule
	watchers []Watcher
	endings  []*Settlement      // nil: nothing is settled
	charges  [][]stint.HoldCall // of requests that are refused

	// concluded is closed when the last request is decided. If that is not allowed, ends are the calls that
	// end its holds, whose identity nobody else knows. nil: a concurrent call holds nothing for it, or others
	// settle its holds.
	concluded chan struct{}
	ends      []stint.HoldCall
}

// shadowsOf collects the n groups in shadow mode.
func shadowsOf(all []Request, n int) *shadows {
	c := &shadows{
		storeCall: storeCall{make([]stint.Request, 0, n), make([]stint.Answer, 0, n)},
		groups:    make([]*Group, 0, n), rules: make([]*rules.Rule, 0, n), watchers: make([]Watcher, 0, n),
		endings: make([]*Settlement, 0, n), charges: make([][]stint.HoldCall, 0, n),
	}
	for i := range all {
		for j := range all[i].Groups {
			if g := &all[i].Groups[j]; g.InShadow() {
				if e := all[i].Settlement; e != nil {
					e.late = true
				}
				if all[i].Opaque && g.holds() {
					c.concluded = make(chan struct{})
				}
				g.Answer.Err = ErrNotAskedNow
				c.requests = append(c.requests, g.Request)
				c.answers = append(c.answers, stint.Answer{Each: make([]stint.Decision, len(g.Request.Asks)), Err: ErrNotAskedNow})
				c.groups, c.rules, c.watchers = append(c.groups, g), append(c.rules, g.Rules[0]), append(c.watchers, all[i].Set.Watcher)
				c.endings, c.charges = append(c.endings, all[i].Settlement), append(c.charges, all[i].Charges(g, nil))
			}
		}
	}
	return c
}

// takeShadows calls the store: after the enforced rules if that takes no time, as in memory,
// else concurrently with them. The groups have their answers when wait returns. If the answers are wanted,
// wait waits for a concurrent call, but no longer than for the enforced rules: least or, if that is 0, the
// server's deadline. They are also wanted if the caller gets these rules' holds: it may settle them at once.
//
// These calls bypass the layers over the store, because the layers would carry over to other requests what
// happens here: failures of the store, debts to it, units to lease. So while the store does not decide, these
// rules are skipped.
func (b inStore) takeShadows(ctx context.Context, c *shadows, least time.Duration, wanted bool) (wait func()) {
	if !b.Fleet.IsLayered() || !c.requests[0].At.IsZero() { // in memory, or a simulation
		c.concluded = nil
		return func() {
			if c.requests[0].At.IsZero() && !b.roomForShadows() {
				c.count()
				return
			}
			c.take(ctx, b.Unlayered)
			c.answer()
		}
	}
	err := b.StoreError()
	if err != nil {
		b.Instance.Failed(NoStore, err)
	}
	if err != nil || b.shadowCalls.Add(1) > mostShadows {
		if err == nil {
			b.shadowCalls.Add(-1)
		}
		c.concluded = nil
		c.count()
		return func() {}
	}
	wanted = wanted || c.concluded != nil
	patience := b.Timeout
	if wanted && least > 0 {
		patience = least
	}
	for _, g := range c.groups {
		g.Answer.Err = errNotAnswered
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	done := make(chan struct{})
	go func() {
		defer b.shadowCalls.Add(-1)
		c.take(ctx, b.Unlayered)
		close(done)
		cancel()
		if c.concluded != nil {
			<-c.concluded
			if err := c.end(ctx, b.Unlayered.Store, b.Timeout); err != nil {
				b.Instance.Failed("what a rule in shadow mode holds could not be given back, and runs out by itself", err)
			}
		}
	}()
	if !wanted {
		return func() {}
	}
	return func() {
		<-ctx.Done() // also when the call is done
		select {
		case <-done:
			c.answer()
		default:
		}
	}
}

// mostShadows bounds the calls in flight for rules in shadow mode.
const mostShadows = 1000

// ErrNotAskedNow is the answer to a rule in shadow mode about which the store was not asked, and
// errNotAnswered that it has not answered in time.
var (
	ErrNotAskedNow = errors.New("rules in shadow mode are not evaluated now")
	errNotAnswered = errors.New("rules in shadow mode are not answered yet")
)

// mostAtOnce is the number of limits in one call of the store. A store does nothing else during a call.
const mostAtOnce = 64

// take calls l, and counts the answers.
func (c *shadows) take(ctx context.Context, l *stint.Limiter) {
	for from := 0; from < len(c.requests); {
		to, asks := from+1, len(c.requests[from].Asks)
		for ; to < len(c.requests) && asks+len(c.requests[to].Asks) <= mostAtOnce; to++ {
			asks += len(c.requests[to].Asks)
		}
		l.TakeBatch(ctx, c.requests[from:to], c.answers[from:to])
		for i := from; i < to; i++ {
			c.keep(ctx, l, i)
			if len(c.charges[i]) > 0 && Refused(&c.answers[i]) {
				stint.Holds(ctx, l.Store, c.requests[i].At, c.charges[i])
			}
		}
		from = to
	}
	c.count()
}

// keep settles the i-th rule's holds at the end of the request.
func (c *shadows) keep(ctx context.Context, l *stint.Limiter, i int) {
	r, a := &c.requests[i], &c.answers[i]
	if c.endings[i] == nil || r.Hold == (stint.HoldID{}) || a.Err != nil {
		return
	}
	all := make([]*rules.Rule, len(r.Asks))
	for j := range all {
		all[j] = c.rules[i]
	}
	c.endings[i].keep(ctx, heldGroup{stint.Internal(friend.Of{}).Keep(l, r, a.Each, &a.Decision), r.Asks, all, c.watchers[i]})
}

// answer gives the groups their answers.
func (c *shadows) answer() {
	for i, g := range c.groups {
		g.Answer = c.answers[i]
		if len(c.charges[i]) > 0 && Refused(&g.Answer) {
			g.charged = &c.charges[i]
		}
	}
}

// count counts the refusals and the skipped rules.
func (c *shadows) count() {
	for i := range c.answers {
		switch a := &c.answers[i]; {
		case a.Err != nil:
			c.watchers[i].Skipped(c.rules[i])
		case !a.Allowed:
			c.watchers[i].RefusedInShadow(c.rules[i])
		}
	}
}

// roomForShadows reports whether rules in shadow mode may be counted. A Memory that is full
// refuses new keys, so half of it is kept for the rules that are enforced.
func (b inStore) roomForShadows() bool {
	m, ok := stint.As[*stint.Memory](b.Unlayered.Store)
	return !ok || m.MaxKeys <= 0 || m.Len() < m.MaxKeys/2
}

// heldInShadow returns the calls that end the holds, certain or possible, of rules in shadow mode for t.
func (t *Request) heldInShadow() (calls []stint.HoldCall) {
	t.EachHeld(func(a *stint.Ask, by stint.Source, shadow bool) {
		if shadow {
			calls = append(calls, stint.HoldCall{Action: stint.HoldSettle, Key: a.Key, Limit: a.Limit, Hold: t.Hold, Units: a.Units(), For: t.HoldFor, By: by})
		}
	})
	return calls
}

// EachHeld calls f with the asks of t that hold units, and who allowed them. Rules in shadow mode that the
// store did not answer in time may hold the units that they asked for.
func (t *Request) EachHeld(f func(a *stint.Ask, by stint.Source, shadow bool)) {
	for i := range t.Groups {
		g := &t.Groups[i]
		if !g.mayHold() {
			continue
		}
		for j := range g.Request.Asks {
			a, by := &g.Request.Asks[j], stint.ByStore
			if !g.InShadow() {
				by = g.Answer.Each[j].By
			}
			if HoldsBy(a, by) {
				f(a, by, g.InShadow())
			}
		}
	}
}

// HoldsBy reports whether a holds units if by allowed it.
func HoldsBy(a *stint.Ask, by stint.Source) bool {
	return stint.Internal(friend.Of{}).HoldsBy(a) && by <= stint.ByLocal
}

// conclude records that the last request is decided, and the calls that end its holds. Only the first call
// counts.
func (c *shadows) conclude(ends []stint.HoldCall) {
	select {
	case <-c.concluded:
	default:
		c.ends = ends
		close(c.concluded)
	}
}

// end makes the calls of ends, after those that may have made the holds, and repeats them if they fail. The
// error is why some still fail.
func (c *shadows) end(ctx context.Context, store stint.Store, timeout time.Duration) error {
	pauses := [...]time.Duration{0, 100 * time.Millisecond, time.Second}
	for try := 0; len(c.ends) > 0; try++ {
		if try == len(pauses) {
			return c.ends[0].Err
		}
		time.Sleep(pauses[try])
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		stint.Holds(ctx, store, time.Time{}, c.ends)
		cancel()
		c.ends = slices.DeleteFunc(c.ends, func(call stint.HoldCall) bool { return call.Err == nil })
	}
	return nil
}
