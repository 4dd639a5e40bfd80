package redislimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// wayOf returns how an ask takes its units if r is allowed, and how many must fit.
func wayOf(r *stint.Request, a *stint.Ask) (units int64, way algo.Way) {
	units = a.Units()
	switch {
	case a.Limit == nil || !a.Limit.IsHeld():
		return units, algo.WayCharge
	case r.Hold != (stint.HoldID{}) && units > 0:
		return units, algo.WayHold
	case kit.Plan(a.Limit).Kind != algo.InFlight && r.Hold == (stint.HoldID{}):
		return units, algo.WayCharge
	case units > 0:
		return units, algo.WayAsk
	}
	return 1, algo.WayPeek
}

// span is how long a hold lasts, µs.
func span(l *stint.Limit, holdFor time.Duration) int64 {
	return cmp.Or(holdFor.Microseconds(), kit.Plan(l).Hold)
}

// heldID replaces a limit's ID in the key of its holds.
func heldID(l *stint.Limit) string { return "h" + l.ID() }

// addHeldKeys adds the keys of a limit that is held.
func (s *Store) addHeldKeys(b *batch, subject string, l *stint.Limit) {
	if kit.Plan(l).Kind != algo.InFlight {
		b.addKey(s, subject, l.ID())
	}
	b.addKey(s, subject, heldID(l))
	b.holds = true
}

// brokenHolds is the first of a script's codes for a key of holds that is not readable: see
// algo.Head.
const brokenHolds = 6

func (s *Store) countKey(a *stint.Ask, held bool) string {
	if held {
		return s.key(a.Key, heldID(a.Limit))
	}
	return s.key(a.Key, a.Limit.ID())
}

// heldVerdict is verdict under a limit that is held.
func heldVerdict(r *stint.Request, a *stint.Ask, s string, before int64, allowed bool) (v algo.Verdict, rest string, err error) {
	p := kit.Plan(a.Limit)
	answer, rest, err := algo.ReadHeld(s)
	if err != nil {
		return v, "", badReply("%w", err)
	}
	n, way := wayOf(r, a)
	lasts := span(a.Limit, r.HoldFor)
	if way <= algo.WayHold && before > 0 && n > 0 && before > p.Capacity/n {
		return v, "", badReply("%d admitted of %d units each", before, n)
	}
	switch way {
	case algo.WayHold:
		answer.Hold(before, n, lasts)
	case algo.WayCharge:
		answer.Used += before * n * p.Unit
	}
	if allowed && p.Small() && !p.FitsHeld(&answer, n, way) {
		return v, "", badReply("admitted at %d used, %d held", answer.Used, answer.Held)
	}
	return p.SettleHeld(&answer, n, way, lasts, allowed), rest, nil
}

// Holds implements stint.Holder.
func (s *Store) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	if len(calls) == 0 {
		return
	}
	if _, err := s.conn.Await(ctx, 0); err != nil {
		failCalls(calls, all(len(calls)), notSent(err))
		return
	}
	places := all(len(calls))
	if s.envoy != nil {
		places = s.chargeEnvoy(ctx, at, calls)
	}
	if !s.conn.Cluster() {
		s.callInOrder(ctx, at, calls, places)
		return
	}
	bySlot := map[uint16]*part{}
	var parts []*part
	for _, i := range places {
		n := slot(calls[i].Key)
		if bySlot[n] == nil {
			bySlot[n] = new(part)
			parts = append(parts, bySlot[n])
		}
		bySlot[n].places = append(bySlot[n].places, i)
	}
	inParallel(parts, func(p *part) { s.callInOrder(ctx, at, calls, p.places) })
}

func failCalls(calls []stint.HoldCall, places []int, err error) {
	for _, i := range places {
		calls[i].Err = err
	}
}

// callInOrder makes the calls at these places, and repeats those with an outsideError.
func (s *Store) callInOrder(ctx context.Context, at time.Time, calls []stint.HoldCall, places []int) {
	for sent := 0; sent < mostSent && len(places) > 0; sent++ {
		s.callOnce(ctx, at, calls, places)
		var again []int
		for _, i := range places {
			if s.outside(calls[i].Err) {
				again = append(again, i)
			}
		}
		places = again
	}
}

// callOnce makes the calls at these places: few merged with the requests of others, many as a
// list.
func (s *Store) callOnce(ctx context.Context, at time.Time, calls []stint.HoldCall, places []int) {
	if len(places) <= mostMerged {
		s.callMerged(ctx, at, calls, places)
		return
	}
	for len(places) > 0 {
		n := min(len(places), mostInCall)
		s.callListed(ctx, at, calls, places[:n])
		places = places[n:]
	}
}

// mostMerged is how many calls are merged with the requests of others.
const mostMerged = 8

func (s *Store) callMerged(ctx context.Context, at time.Time, calls []stint.HoldCall, places []int) {
	if err := ctx.Err(); err != nil {
		failCalls(calls, places, notSent(err))
		return
	}
	w := s.merger.newWaiter(&stint.Request{At: at}, nil)
	for _, i := range places {
		w.calls = append(w.calls, calls[i])
	}
	var n uint16
	if s.conn.Cluster() {
		n = slot(calls[places[0]].Key)
	}
	q, _ := s.merger.enqueue(n, w, false)
	if q == nil {
		w.free()
		failCalls(calls, places, notSent(errWaiting))
		return
	}
	if err := s.await(ctx, q, w, 0); err != nil {
		failCalls(calls, places, err)
		return
	}
	defer w.free()
	for j, i := range places {
		if w.err != nil {
			calls[i].Err = w.err
		} else {
			s.readCall(&calls[i], w.replies[j], w.spots[j].place)
		}
	}
}

func (s *Store) callListed(ctx context.Context, at time.Time, calls []stint.HoldCall, places []int) {
	b := batch{at: at}
	var spots []spot
	for _, i := range places {
		spots = append(spots, s.addCall(&b, &calls[i]))
	}
	reply, err := s.runListed(ctx, &b)
	if err != nil {
		failCalls(calls, places, err)
		return
	}
	replies := make([]string, len(b.groups))
	for i := range b.groups {
		if replies[i], reply, err = cut(reply, &b.groups[i]); err != nil {
			failCalls(calls, places, err)
			return
		}
	}
	for j, i := range places {
		s.readCall(&calls[i], replies[spots[j].group], spots[j].place)
	}
}

// addCall appends a call.
func (s *Store) addCall(b *batch, c *stint.HoldCall) spot {
	b.asks++
	asks := []stint.Ask{{Key: c.Key, Limit: c.Limit}}
	what := actionOf(c)
	at, joined := b.join(asks, true, func(g *group) bool {
		return g.action == what && sameCount(&g.asks[0], &asks[0]) && samePlan(g.asks[0].Limit, c.Limit)
	})
	if !joined {
		g := b.newGroup(asks)
		g.calls, g.action = true, what
		at = spot{len(b.groups) - 1, 0}
		if c.Limit.IsHeld() {
			s.addHeldKeys(b, c.Key, c.Limit)
		} else {
			b.addKey(s, c.Key, c.Limit.ID())
			b.holds = true
		}
		b.blob = algo.AppendCalls(b.blob, s.around(b, kit.Plan(c.Limit)), what.code, what.units, what.span)
	}
	g := &b.groups[at.group]
	g.beside = algo.AppendHoldID(g.beside, c.Hold)
	g.costs = algo.AppendCost(g.costs, c.Cost)
	if last := len(g.costs) - 7; last > 0 && !g.each && string(g.costs[last:]) != string(g.costs[:7]) {
		g.each = true
		algo.SetEachCost(b.blob, g.place)
	}
	return at
}

// action has what calls must have in common to be one group.
type action struct {
	code        byte
	units, span int64
}

func actionOf(c *stint.HoldCall) action {
	switch {
	case c.Action == stint.HoldRenew && c.Again:
		return action{algo.CallRenewAgain, c.Units, span(c.Limit, c.For)}
	case c.Action == stint.HoldRenew:
		return action{algo.CallRenew, 0, span(c.Limit, c.For)}
	case c.Action == stint.HoldRelease:
		return action{algo.CallRelease, 0, span(c.Limit, c.For)}
	case c.Action == stint.HoldCharge:
		return action{code: algo.CallCharge}
	}
	return action{code: algo.CallSettle}
}

// readCall fills in the answer to c from the script's reply to its group.
func (s *Store) readCall(c *stint.HoldCall, reply string, place int) {
	c.Found, c.Released, c.Charged, c.Remaining, c.Held, c.ResetAfter = false, false, 0, 0, 0, 0
	head, rest, err := algo.ReadHead(reply)
	switch {
	case err != nil:
		c.Err = badReply("%w", err)
		return
	case !head.Names(0, 1):
		c.Err = badReply("%v", head)
		return
	case !head.Verdicts():
		if clock, ok := head.Outside(); ok {
			c.Err = &outsideError{clock}
			return
		}
		c.Err = s.broken([]stint.Ask{{Key: c.Key, Limit: c.Limit}}, nil, head)
		return
	}
	called, err := kit.Plan(c.Limit).ReadCalled(rest, place)
	if err != nil {
		c.Err = badReply("%w", err)
		return
	}
	c.Err = nil
	c.Found, c.Released, c.Charged = called.Found, called.Released, called.Charged
	c.Remaining, c.Held, c.ResetAfter = called.Remaining, called.Verdict.Held, algo.Duration(called.Reset)
}

var holdsScript = conn.NewScript(algo.HoldsScript)

// Held implements stint.Holder, in one round trip that writes nothing.
func (s *Store) Held(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	limits = slices.DeleteFunc(slices.Clone(limits), func(l *stint.Limit) bool { return !l.IsHeld() })
	if len(limits) == 0 {
		return nil, nil
	}
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = s.key(key, heldID(l))
	}
	reply, err := s.conn.Eval(ctx, holdsScript, names)
	if err != nil {
		if conn.IsWrongType(err) {
			return nil, fmt.Errorf("redislimit: held: a key of the holds of %q holds another type of value: %w", key, fleet.ErrBroken)
		}
		return nil, fmt.Errorf("redislimit: held: %w", err)
	}
	parts, _ := reply.([]any)
	if len(parts) != 2+len(limits) {
		return nil, fmt.Errorf("redislimit: held: the script replied %T to %d keys", reply, len(limits))
	}
	now, err := instant(parts[:2])
	if err != nil {
		return nil, fmt.Errorf("redislimit: held: %w", err)
	}
	var held []stint.Hold
	for i, l := range limits {
		fields, _ := parts[2+i].([]any)
		for j := 0; j+1 < len(fields); j += 2 {
			field, _ := fields[j].(string)
			value, _ := fields[j+1].(string)
			r, ok := algo.ReadHoldRecord(field, value)
			switch {
			case !ok:
				return nil, brokenKey(names[i], false)
			case r.Counts(now):
				held = append(held, stint.Hold{ID: r.ID, Limit: l, Units: r.Units, Left: algo.Duration(r.Until - now), For: algo.Duration(r.Span)})
			}
		}
	}
	return held, nil
}
