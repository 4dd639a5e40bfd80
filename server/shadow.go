package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

// Refusals by rules in shadow mode are counted, and returned to callers who ask for them. They change no
// answer. So these rules are decided in calls of their own: asks in one call share its deadline, its leases
// and its failures.

func isShadow(r *rules.Rule) bool { return r.Mode == rules.Shadow }

// shadows are the asks of rules in shadow mode about some requests. Apart from groups, it
// shares no memory that is reused, because the store may still work on it when the requests
// have been answered.
type shadows struct {
	asked
	groups   []*group
	rules    []*rules.Rule
	counters []ruleCounters
	endings  []*ending          // nil: nothing is settled
	charges  [][]stint.HoldCall // of requests that are refused

	// concluded is closed when the last request is decided. If that is not allowed, ends are the calls that
	// end its holds, whose identity nobody else knows. nil: a concurrent call holds nothing for it, or others
	// settle its holds.
	concluded chan struct{}
	ends      []stint.HoldCall
}

// shadowsOf collects the n groups in shadow mode.
func shadowsOf(all []evaluation, n int) *shadows {
	c := &shadows{
		asked:  asked{make([]stint.Request, 0, n), make([]stint.Answer, 0, n)},
		groups: make([]*group, 0, n), rules: make([]*rules.Rule, 0, n), counters: make([]ruleCounters, 0, n),
		endings: make([]*ending, 0, n), charges: make([][]stint.HoldCall, 0, n),
	}
	for i := range all {
		for j := range all[i].groups {
			if g := &all[i].groups[j]; g.inShadow() {
				if e := all[i].ending; e != nil {
					e.late = true
				}
				if all[i].opaque && g.holds() {
					c.concluded = make(chan struct{})
				}
				g.answer.Err = errNotAskedNow
				c.requests = append(c.requests, g.request)
				c.answers = append(c.answers, stint.Answer{Each: make([]stint.Decision, len(g.request.Asks)), Err: errNotAskedNow})
				c.groups, c.rules, c.counters = append(c.groups, g), append(c.rules, g.rules[0]), append(c.counters, all[i].set.counters)
				c.endings, c.charges = append(c.endings, all[i].ending), append(c.charges, all[i].charges(g, nil))
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
	if !b.fleet.IsLayered() || !c.requests[0].At.IsZero() { // in memory, or a simulation
		c.concluded = nil
		return func() {
			if c.requests[0].At.IsZero() && !b.roomForShadows() {
				c.count()
				return
			}
			c.take(ctx, b.limiter)
			c.answer()
		}
	}
	err := b.StoreError()
	if err != nil {
		b.sampled.storeFailure(err)
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
	patience := b.settings.DecisionTimeout
	if wanted && least > 0 {
		patience = least
	}
	for _, g := range c.groups {
		g.answer.Err = errNotAnswered
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	done := make(chan struct{})
	go func() {
		defer b.shadowCalls.Add(-1)
		c.take(ctx, b.limiter)
		close(done)
		cancel()
		if c.concluded != nil {
			<-c.concluded
			if err := c.end(ctx, b.limiter.Store, b.settings.DecisionTimeout); err != nil {
				b.sampled.failure("what a rule in shadow mode holds could not be given back, and runs out by itself", err)
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

// The answers to rules in shadow mode that the store was not asked, and that it has not answered in time.
var (
	errNotAskedNow = errors.New("rules in shadow mode are not evaluated now")
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
			if len(c.charges[i]) > 0 && refused(&c.answers[i]) {
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
	c.endings[i].keep(ctx, kept{stint.Internal(friend.Of{}).Keep(l, r, a.Each, &a.Decision), r.Asks, all, c.counters[i]})
}

// answer gives the groups their answers.
func (c *shadows) answer() {
	for i, g := range c.groups {
		g.answer = c.answers[i]
		if len(c.charges[i]) > 0 && refused(&g.answer) {
			g.charged = &c.charges[i]
		}
	}
}

// count counts the refusals and the skipped rules.
func (c *shadows) count() {
	for i := range c.answers {
		switch a := &c.answers[i]; {
		case a.Err != nil:
			c.counters[i].skipped(c.rules[i])
		case !a.Allowed:
			c.counters[i].refusedInShadow(c.rules[i])
		}
	}
}

// roomForShadows reports whether rules in shadow mode may be counted. A Memory that is full
// refuses new keys, so half of it is kept for the rules that are enforced.
func (b inStore) roomForShadows() bool {
	m, ok := stint.As[*stint.Memory](b.limiter.Store)
	return !ok || m.MaxKeys <= 0 || m.Len() < m.MaxKeys/2
}

// concludeShadow gives each ask of a rule in shadow mode its own answer; zero without an answer.
func (g *group) concludeShadow() {
	switch a := &g.answer; {
	case a.Err != nil:
		clear(a.Each)
	case a.Outcome == stint.Banned && a.Limit == nil:
		for j := range a.Each { // as if this ban had answered for all
			a.Each[j] = a.Decision
		}
	}
}

// heldInShadow returns the calls that end the holds, certain or possible, of rules in shadow mode for t.
func (t *evaluation) heldInShadow() []stint.HoldCall {
	h := checkHold{id: t.holds, last: t.holdFor}
	for i := range t.groups {
		if g := &t.groups[i]; g.inShadow() && g.mayHold() {
			for j := range g.request.Asks {
				h.add(&g.request.Asks[j], stint.ByStore, true)
			}
		}
	}
	return h.calls(stint.HoldSettle)
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

// readShadow reports whether a check asks for the answers of rules in shadow mode. wrong is the error in the
// query; empty: none.
func readShadow(r *http.Request) (asked bool, wrong string) {
	if r.URL.RawQuery == "" {
		return false, ""
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false, "The query cannot be read: " + err.Error() + "."
	}
	switch values := query["shadow"]; {
	case values == nil, len(values) == 1 && values[0] == "false":
		return false, ""
	case len(values) == 1 && values[0] == "true":
		return true, ""
	}
	return false, "The parameter shadow must be true or false."
}
