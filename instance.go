package stint

import (
	"context"
	"time"
)

// instanceKey is the only key of Limiter.Instance.
const instanceKey = "instance"

func (l *Limiter) instanceCount() *Memory {
	if l.of != nil {
		return &l.of.instance
	}
	return &l.instance
}

// enter takes a unit of l.Instance for r, if one is left; else d is the refusal. A request
// that takes nothing, or has an instant, needs none.
func (l *Limiter) enter(r *Request) (d Decision, taken, ok bool) {
	if l.Instance == nil || !r.At.IsZero() || !r.takes() {
		return d, false, true
	}
	own := Request{Asks: []Ask{{Key: instanceKey, Limit: l.Instance, MaxDelay: r.maxDelay()}}}
	if l.holdsHere(r) {
		own.Hold = r.Hold
	}
	d, err := l.instanceCount().Take(context.Background(), &own, nil)
	if err != nil { // its only key always has room
		return d, false, true
	}
	d.By = ByInstance
	return d, d.Allowed, d.Allowed
}

// holdsHere reports whether r, once allowed, holds a unit of l.Instance until it is settled.
func (l *Limiter) holdsHere(r *Request) bool {
	return l.Instance != nil && l.Instance.spec.Algorithm == InFlight && r.Hold != HoldID{} && r.At.IsZero() && r.takes()
}

// takes reports whether r asks for any units.
func (r *Request) takes() bool {
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Units() > 0 || !a.Peek && a.Limit.IsUnlimited() {
			return true
		}
	}
	return false
}

// maxDelay is the shortest MaxDelay of r: negative if the caller accepts no delay, 0 if
// none is given.
func (r *Request) maxDelay() (most time.Duration) {
	for i := range r.Asks {
		if d := r.Asks[i].MaxDelay; d != 0 && (most == 0 || d < most) {
			most = d
		}
	}
	return most
}

// settle handles the answer to r, which has taken a unit of l.Instance. If r was refused or
// not decided, the unit goes back, unless it is a place in the queue of a LeakyBucket (see
// Refund). If r was allowed, its delay is the longer of both.
func (l *Limiter) settle(r *Request, own *Decision, d *Decision, err error) {
	if err == nil && d.Allowed {
		d.Delay = max(d.Delay, own.Delay)
		return
	}
	switch l.Instance.spec.Algorithm {
	case LeakyBucket:
	case InFlight:
		if l.holdsHere(r) {
			l.instanceCount().Holds(context.Background(), time.Time{}, []HoldCall{{Key: instanceKey, Limit: l.Instance, Hold: r.Hold, Units: 1}})
		}
	default:
		_ = l.instanceCount().Refund(context.Background(), &Request{Asks: []Ask{{Key: instanceKey, Limit: l.Instance}}}) // it cannot fail
	}
}

// takeHere is Take with an Instance.
func (l *Limiter) takeHere(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	own, taken, ok := l.enter(r)
	if !ok {
		answerEach(out, &own)
		return own, nil
	}
	d, err := l.takeThere(ctx, r, out)
	if taken {
		l.settle(r, &own, &d, err)
	}
	return d, err
}

// takeEachHere is TakeBatch with an Instance, for checked requests: the Store decides those
// that enter.
func (l *Limiter) takeEachHere(ctx context.Context, rs []Request, answers []Answer) {
	type entry struct {
		at    int // in rs
		own   Decision
		taken bool
	}
	var entered []entry
	var asked []Request
	var got []Answer
	for i := range rs {
		a := &answers[i]
		own, taken, ok := l.enter(&rs[i])
		if !ok {
			a.Decision = own
			answerEach(a.Each, &own)
			continue
		}
		entered = append(entered, entry{i, own, taken})
		asked, got = append(asked, rs[i]), append(got, *a)
	}
	if len(asked) == 0 {
		return
	}
	TakeBatch(ctx, l.store(), asked, got)
	for i := range entered {
		e := &entered[i]
		if e.taken {
			l.settle(&asked[i], &e.own, &got[i].Decision, got[i].Err)
		}
		answers[e.at] = got[i]
	}
}
