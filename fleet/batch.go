package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/stintdev/stint"
)

// soonest is the shortest Deadline of several requests; 0: none has one.
func soonest(rs []stint.Request) time.Duration {
	var least time.Duration
	for i := range rs {
		if d := rs[i].Deadline; d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// TakeBatch implements stint.BatchTaker.
func (f *Fallback) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	store, ok := f.Store.(stint.BatchTaker)
	f.init()
	if ok && len(rs) > 0 && !rs[0].At.IsZero() {
		store.TakeBatch(ctx, rs, answers)
		return
	}
	if !ok {
		for i := range rs {
			a := &answers[i]
			a.Decision, a.Err = f.Take(ctx, &rs[i], a.Each)
		}
		return
	}
	if f.State() != Closed {
		f.takeAnswering(ctx, store, rs, answers)
		return
	}
	f.takeList(ctx, store, rs, answers)
}

func (f *Fallback) takeAnswering(ctx context.Context, store stint.BatchTaker, rs []stint.Request, answers []stint.Answer) {
	var asked []int
	for i := range rs {
		a := &answers[i]
		if f.parts.failing(rs[i].Asks) == nil {
			asked = append(asked, i)
			continue
		}
		a.Decision, a.Err = f.Take(ctx, &rs[i], a.Each)
	}
	takeSome(asked, rs, answers, func(rs []stint.Request, answers []stint.Answer) { f.takeList(ctx, store, rs, answers) })
}

// takeSome lets take answer the requests at some places.
func takeSome(places []int, rs []stint.Request, answers []stint.Answer, take func([]stint.Request, []stint.Answer)) {
	some, theirs := make([]stint.Request, len(places)), make([]stint.Answer, len(places))
	for j, i := range places {
		some[j], theirs[j] = rs[i], answers[i]
	}
	take(some, theirs)
	for j, i := range places {
		answers[i] = theirs[j]
	}
}

func (f *Fallback) takeList(ctx context.Context, store stint.BatchTaker, rs []stint.Request, answers []stint.Answer) {
	for i := range answers {
		if answers[i].Each == nil {
			answers[i].Each = make([]stint.Decision, len(rs[i].Asks))
		}
	}
	var why error // why the Store did not decide the last part
	for deadline := soonest(rs); len(rs) > 0; {
		n := listed(rs)
		if why == nil {
			why = f.takePart(ctx, store, rs[:n], answers[:n], deadline)
		} else {
			for i := range n {
				answers[i].Err = unasked{why}
			}
		}
		for i := range n {
			f.conclude(ctx, &rs[i], &answers[i])
		}
		rs, answers = rs[n:], answers[n:]
	}
}

// listPart is how many asks of a list go in one call, which blocks Redis for some 200 µs.
const listPart = 64

func listed(rs []stint.Request) (n int) {
	for asks := 0; n < len(rs); n++ {
		if asks += len(rs[n].Asks); n > 0 && asks > listPart {
			break
		}
	}
	return n
}

type unasked struct{ why error }

func (e unasked) Error() string {
	return "stint: not asked, because the store did not decide before: " + e.why.Error()
}
func (e unasked) Unwrap() []error { return []error{ErrNotCharged, e.why} }

// isAnswer reports whether an error is about one request of a list, not about the store.
func isAnswer(err error) bool {
	return errors.Is(err, stint.ErrRequest) || errors.Is(err, stint.ErrUnsupported) || isAlive(err)
}

// takePart asks the store about a part of a list. After an error, the rest is not sent.
func (f *Fallback) takePart(ctx context.Context, store stint.BatchTaker, rs []stint.Request, answers []stint.Answer, deadline time.Duration) error {
	// Of several failures one is noted: one of the store's, if there is any.
	asked := stint.Request{Asks: rs[0].Asks, Deadline: deadline}
	err := f.call(ctx, &asked, func(ctx context.Context) (err error) {
		if f.ledger.owes.Load() {
			var asks []stint.Ask
			for i := range rs {
				asks = append(asks, rs[i].Asks...)
			}
			if err = f.repayFirst(ctx, asks); err != nil {
				for i := range answers {
					answers[i].Err = err
				}
				return err
			}
		}
		store.TakeBatch(ctx, rs, answers)
		for i := range answers {
			if e := answers[i].Err; e != nil && (err == nil || isAnswer(err)) {
				err, asked.Asks = e, rs[i].Asks
			}
		}
		return err
	})
	if isAnswer(err) {
		return nil
	}
	return err
}

func (f *Fallback) conclude(ctx context.Context, r *stint.Request, a *stint.Answer) {
	switch {
	case a.Err == nil:
		internal.SetLeastCost(f.local, f.Live())
		internal.Learn(f.local, r, &a.Decision, a.Each, f.deadline(r.Deadline))
	case isOwn(ctx, a.Err):
		f.lose(r, a.Err)
	default:
		f.lose(r, a.Err)
		a.Decision, a.Err = f.without(r, 0, a.Each, a.Err, isOwed(a.Err))
	}
}
