package redislimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
)

func oneSlot(r *stint.Request) bool {
	for i := 1; i < len(r.Asks); i++ {
		if r.Asks[i].Key != r.Asks[0].Key && slot(r.Asks[i].Key) != slot(r.Asks[0].Key) {
			return false
		}
	}
	return true
}

type part struct {
	request   stint.Request
	places    []int // of its asks in the whole request
	decision  stint.Decision
	each      []stint.Decision
	err       error
	refund    stint.Request    // asks to refund
	release   []stint.HoldCall // holds to settle with 0
	refundErr error            // error of refund or release
}

func split(r *stint.Request) []*part {
	var parts []*part
	bySlot := map[uint16]*part{}
	for i := range r.Asks {
		n := slot(r.Asks[i].Key)
		p := bySlot[n]
		if p == nil {
			p = &part{request: stint.Request{At: r.At, Hold: r.Hold, HoldFor: r.HoldFor}}
			bySlot[n] = p
			parts = append(parts, p)
		}
		p.request.Asks = append(p.request.Asks, r.Asks[i])
		p.places = append(p.places, i)
	}
	return parts
}

// hasQueue reports whether p asks a leaky bucket, which is never refunded: others may queue
// behind.
func (p *part) hasQueue() bool { return slices.ContainsFunc(p.request.Asks, isQueue) }

func isQueue(a stint.Ask) bool {
	return a.Limit != nil && a.Limit.Spec().Algorithm == stint.LeakyBucket
}

// takeSlots takes in all slots at once, and refunds if one refuses. Parts with leaky buckets come
// last, one after another, and take nothing after a refusal: a place in a queue is lost only if a
// second queue refuses.
func (s *Store) takeSlots(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	parts := split(r)
	if ban, err := s.findBan(ctx, parts); err != nil {
		return ban, err
	} else if ban.BanLeft > 0 {
		err = s.addLimitWaits(ctx, parts, &ban)
		return ban, err
	}
	var first, last []*part
	for _, p := range parts {
		if p.hasQueue() {
			last = append(last, p)
		} else {
			first = append(first, p)
		}
	}
	inParallel(first, func(p *part) { s.takePart(ctx, p) })
	s.peekWhereFull(ctx, first)
	for _, p := range last {
		s.takeLast(ctx, p, first)
		first = append(first, p)
	}
	s.peekWhereFull(ctx, parts)
	var errs []error
	allowed := true
	for _, p := range parts {
		allowed = allowed && p.decision.Allowed
		errs = append(errs, p.err)
	}
	refunded := allowed || s.refundParts(ctx, parts)
	if err := errors.Join(errs...); err != nil {
		return stint.Decision{}, slotsError(ctx, errs, refunded)
	}
	return join(r, parts, out), nil
}

func (s *Store) takePart(ctx context.Context, p *part) {
	p.each = make([]stint.Decision, len(p.request.Asks))
	p.decision, _, p.err = s.takeMerged(ctx, &p.request, p.each)
}

// peekWhereFull peeks again at parts whose server has no room, if another part refuses: then
// nothing is charged there either.
func (s *Store) peekWhereFull(ctx context.Context, parts []*part) {
	isFull := func(p *part) bool { return errors.Is(p.err, stint.ErrFull) }
	if !slices.ContainsFunc(parts, isFull) || !slices.ContainsFunc(parts, (*part).refuses) {
		return
	}
	for _, p := range parts {
		if isFull(p) {
			s.peekPart(ctx, p, p.request.Asks)
		}
	}
}

func (p *part) refuses() bool {
	return p.err == nil && (p.decision.BanLeft > 0 || slices.ContainsFunc(p.each, func(d stint.Decision) bool { return d.Limit != nil && !d.Allowed }))
}

// takeLast takes a part if all parts before it allow; else it only counts violations.
func (s *Store) takeLast(ctx context.Context, p *part, before []*part) {
	for _, b := range before {
		if b.err != nil && !errors.Is(b.err, stint.ErrFull) {
			return // nothing is decided, and p charges nothing
		}
		if b.err != nil || !b.decision.Allowed {
			s.peekPart(ctx, p, p.request.Asks)
			return
		}
	}
	s.takePart(ctx, p)
}

// impossible is a limit that refuses requests of two units.
var impossible = stint.MustLimit("1 per 1s")

// peekPart fills p's answers as if another part refused. The asks may be p's without penalties.
func (s *Store) peekPart(ctx context.Context, p *part, asks []stint.Ask) {
	peeking := stint.Request{At: p.request.At, Hold: p.request.Hold, HoldFor: p.request.HoldFor, Asks: append(slices.Clone(asks), stint.Ask{Key: asks[0].Key, Limit: impossible, Cost: 2})}
	each := make([]stint.Decision, len(peeking.Asks))
	p.decision, _, p.err = s.takeMerged(ctx, &peeking, each)
	p.each = each[:len(asks)]
}

// slotsError wraps fleet.ErrNotCharged only if no part can still be charged.
func slotsError(ctx context.Context, errs []error, refunded bool) error {
	var unsure []error
	for _, err := range errs {
		if err != nil && !errors.Is(err, fleet.ErrNotCharged) {
			unsure = append(unsure, err)
		}
	}
	switch {
	case len(unsure) > 0:
		return errors.Join(unsure...)
	case refunded:
		return errors.Join(errs...)
	case ctx.Err() != nil:
		return fmt.Errorf("redislimit: the keys on other slots of the Cluster may have been charged: %w (%v)", ctx.Err(), errors.Join(errs...))
	default:
		return fmt.Errorf("redislimit: the keys on other slots of the Cluster may have been charged: %v", errors.Join(errs...))
	}
}

// findBan finds the longest running ban before a part is charged, by a request of records alone.
func (s *Store) findBan(ctx context.Context, parts []*part) (stint.Decision, error) {
	var bearing []*part
	for _, p := range parts {
		if _, penalised := penalties(p.request.Asks); len(penalised) > 0 {
			bearing = append(bearing, p)
		}
	}
	if len(bearing) == 0 {
		return stint.Decision{}, nil
	}
	inParallel(bearing, func(p *part) {
		b := batch{at: p.request.At}
		_, penalised := penalties(p.request.Asks)
		s.addPenalties(&b, penalised, 0)
		var reply string
		if reply, p.err = s.run(ctx, &b); p.err == nil {
			p.decision, p.err = s.readBan(reply, penalised)
		}
	})
	var longest stint.Decision
	for _, p := range bearing {
		if p.err != nil {
			return stint.Decision{}, p.err
		}
		if p.decision.BanLeft > longest.BanLeft {
			longest = p.decision
		}
	}
	return longest, nil
}

// addLimitWaits raises d.RetryAfter of a running ban to the wait for the limits if that is
// longer.
func (s *Store) addLimitWaits(ctx context.Context, parts []*part, d *stint.Decision) error {
	inParallel(parts, func(p *part) {
		asks := slices.DeleteFunc(slices.Clone(p.request.Asks), func(a stint.Ask) bool { return a.Limit == nil })
		for i := range asks {
			asks[i].Penalty = nil
		}
		if p.each = nil; len(asks) > 0 {
			s.peekPart(ctx, p, asks)
		}
	})
	for _, p := range parts {
		if p.err != nil {
			return p.err
		}
		for i := range p.each {
			d.RetryAfter = max(d.RetryAfter, p.each[i].RetryAfter)
		}
	}
	return nil
}

// refundTimeout bounds the refund of a refused request, even if its context has ended. Tests
// change it.
var refundTimeout = time.Second

// refundParts reports whether all was refunded. If no time is left, the caller does not wait.
func (s *Store) refundParts(ctx context.Context, parts []*part) (complete bool) {
	var taken []*part
	lost := false
	for _, p := range parts {
		if p.err != nil || !p.decision.Allowed {
			continue
		}
		if p.hasQueue() { // the places stay taken, with others behind them
			lost = true
		}
		for i := range p.request.Asks {
			p.each[i].Delay = 0 // a refused request does not wait, even if its place stays taken
			p.addRefund(&p.request.Asks[i])
		}
		if p.refund.At = p.request.At; len(p.refund.Asks)+len(p.release) > 0 {
			taken = append(taken, p)
		}
	}
	if len(taken) == 0 {
		return !lost
	}
	late := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	refund := func() {
		defer cancel()
		inParallel(taken, func(p *part) { p.refundErr = s.refundPart(ctx, p) })
	}
	if late {
		go refund()
		return false
	}
	refund()
	complete = !lost
	for _, p := range taken {
		if p.refundErr == nil {
			p.undoCharge()
		} else { // they stay taken, as Store documents
			complete = false
		}
	}
	return complete
}

// addRefund notes how to undo an ask: charged units are refunded, and a hold is settled with cost 0.
func (p *part) addRefund(a *stint.Ask) {
	switch n, way := wayOf(&p.request, a); {
	case n == 0 || way > algo.WayHold || isQueue(*a):
	case way == algo.WayHold:
		p.release = append(p.release, stint.HoldCall{
			Action: stint.HoldSettle, Key: a.Key, Limit: a.Limit, Hold: p.request.Hold, Units: n, For: p.request.HoldFor,
		})
	default:
		p.refund.Asks = append(p.refund.Asks, *a)
	}
}

func (s *Store) refundPart(ctx context.Context, p *part) error {
	var errs []error
	if len(p.refund.Asks) > 0 {
		errs = append(errs, s.Refund(ctx, &p.refund))
	}
	if len(p.release) > 0 {
		s.callInOrder(ctx, p.request.At, p.release, all(len(p.release)))
	}
	for i := range p.release {
		errs = append(errs, p.release[i].Err)
	}
	return errors.Join(errs...)
}

func (p *part) undoCharge() {
	for i := range p.each {
		d, a := &p.each[i], &p.request.Asks[i]
		n, way := wayOf(&p.request, a)
		if n == 0 || way > algo.WayHold || isQueue(*a) {
			continue
		}
		if way == algo.WayHold {
			d.Held -= n
		}
		d.Remaining = min(d.Remaining+n, d.Limit.Capacity())
	}
}

// join makes one answer from those of the parts. A running ban answers for all.
func join(r *stint.Request, parts []*part, out []stint.Decision) stint.Decision {
	var running stint.Decision
	for _, p := range parts {
		d := &p.decision
		if d.Outcome == stint.Banned && d.Limit == nil && d.BanLeft > running.BanLeft {
			running = *d
		}
	}
	if running.BanLeft > 0 {
		return running
	}
	if out == nil {
		out = make([]stint.Decision, len(r.Asks))
	}
	for _, p := range parts {
		for i, place := range p.places {
			out[place] = p.each[i]
		}
	}
	g := gravest(parts)
	if g.Violations == 0 {
		return stint.Strictest(out)
	}
	d := kit.Blamed(r.Asks, out, &stint.Ask{Key: g.Key, Penalty: g.Penalty})
	d.Outcome, d.Penalty, d.Violations, d.BanLeft = g.Outcome, g.Penalty, g.Violations, g.BanLeft
	d.RetryAfter = max(d.RetryAfter, d.BanLeft)
	return d
}

// gravest is the decision with the gravest outcome; of equals one that counted a violation,
// then the longest ban, then the first ask: parts are ordered only by their first asks.
func gravest(parts []*part) stint.Decision {
	var d stint.Decision
	first := 0
	for _, p := range parts {
		place := p.places[0]
		for i := range p.request.Asks {
			if a := &p.request.Asks[i]; a.Key == p.decision.Key && (a.Penalty == p.decision.Penalty || p.decision.Penalty == nil) {
				place = p.places[i]
				break
			}
		}
		e := &p.decision
		graver := cmp.Or(cmp.Compare(e.Outcome, d.Outcome), cmp.Compare(min(1, e.Violations), min(1, d.Violations)), cmp.Compare(e.BanLeft, d.BanLeft))
		if graver > 0 || graver == 0 && place < first {
			d, first = *e, place
		}
	}
	return d
}

const mostAtOnce = 64

func inParallel[T any](parts []T, f func(T)) {
	if len(parts) == 0 {
		return
	}
	var wg sync.WaitGroup
	room := make(chan struct{}, mostAtOnce)
	for _, p := range parts[1:] {
		room <- struct{}{}
		wg.Go(func() {
			f(p)
			<-room
		})
	}
	f(parts[0])
	wg.Wait()
}
