package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint"
)

// What was spent without the Store is charged to it beside all other requests, none of
// which waits for that, but for those of the very keys: their debts are charged first.
// So as soon as the Store is asked again for a key, it knows all that this instance has
// spent of it.

const (
	// repayTimeout bounds the charging of a batch, and repayBatch is its size.
	repayTimeout = time.Second
	repayBatch   = listPart
	// repayPause is how long after a batch that was not charged the next is tried.
	repayPause = time.Second
)

// repaySoon has what is owed charged in the background, unless that is being done, or
// has just failed. now is by f.start's clock.
func (f *Fallback) repaySoon(now time.Duration) {
	if f.ledger.owes.Load() && int64(now) >= f.repayAt.Load() && f.State() != Open && !f.repaying.Swap(true) {
		go f.repay()
	}
}

// repay charges what is owed, until nothing is but to parts that are not asked, or a batch
// fails.
func (f *Fallback) repay() {
	for {
		p := f.ledger.claimSome(repayBatch, f.clock(), f.Live(), f.pays)
		if p == nil {
			f.repayAt.Store(int64(time.Since(f.start) + repayPause))
			break
		}
		if f.pay(p); p.failed {
			f.repayAt.Store(int64(time.Since(f.start) + repayPause))
			break
		}
	}
	f.repaying.Store(false)
}

// pays reports whether a debt can be charged now.
func (f *Fallback) pays(e *debt) bool {
	return f.State() == Closed || f.parts.of(e.key).isClosed()
}

// pay charges debts that were taken out, each by itself: with what is due or, where
// the limit has less left, with that. Between an answer and the next try another
// instance may charge what it has spent; so it is tried until nothing is left, each
// time with less. Nothing is sent twice: what is not answered may have been charged.
func (f *Fallback) pay(p *payment) {
	ctx, cancel := context.WithTimeout(context.Background(), repayTimeout)
	defer cancel()
	notCharged := map[*debt]bool{}
	for due := p.debts; len(due) > 0 && !p.failed; {
		var less []*debt
		for i, a := range f.takeBatch(ctx, due) {
			e := due[i]
			switch {
			case errors.Is(a.Err, stint.ErrNotCharged):
				notCharged[e], p.failed = true, true
				p.full = p.full || errors.Is(a.Err, stint.ErrFull)
			case a.Err != nil:
				p.failed = p.failed || !errors.Is(a.Err, stint.ErrBroken)
			case !a.Allowed && a.Remaining > 0 && a.Remaining < e.charge.Cost:
				e.charge.Cost = a.Remaining
				less = append(less, e)
			}
		}
		due = less
	}
	f.ledger.end(p, func(e *debt) bool { return notCharged[e] }, f.Live())
}

// takeBatch charges each debt by itself. A single one is a request like any other, which
// a Store may send together with those.
func (f *Fallback) takeBatch(ctx context.Context, due []*debt) []stint.Answer {
	rs, answers := make([]stint.Request, len(due)), make([]stint.Answer, len(due))
	for i, e := range due {
		rs[i].Asks, rs[i].Deadline = []stint.Ask{e.charge}, repayTimeout
	}
	if len(due) == 1 {
		answers[0].Decision, answers[0].Err = f.Store.Take(ctx, &rs[0], nil)
		return answers
	}
	stint.TakeBatch(ctx, f.Store, rs, answers)
	return answers
}

// errOwing means that what is owed of a key could not be charged in time, before the
// Store was to be asked about it.
var errOwing = fmt.Errorf("stint: the store has not charged yet what was spent without it: %w: %w", stint.ErrNotCharged, context.DeadlineExceeded)

// settle charges what the keys of some asks owe, and waits for that until ctx is done.
func (f *Fallback) settle(ctx context.Context, asks []stint.Ask) error {
	for { // what calls that failed meanwhile have spent comes on top
		own, payments := f.ledger.claim(asks, f.clock(), f.Live())
		if own != nil {
			go f.pay(own)
			payments = append(payments, own)
		}
		if len(payments) == 0 {
			return nil
		}
		full := false
		for _, p := range payments {
			select {
			case <-p.ended:
			case <-ctx.Done():
				return errOwing
			}
			if p.failed && !p.full {
				return errOwing
			}
			full = full || p.full
		}
		if full { // nor is there any for what is asked, but it may be refused
			return nil
		}
	}
}
