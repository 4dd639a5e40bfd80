package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint"
)

// Debts are charged beside other requests. Only those for the very keys wait: so the Store knows all
// that this instance has spent of a key when it is asked again.

const (
	repayTimeout = time.Second
	repayBatch   = listPart
	repayPause   = time.Second
)

// repaySoon starts repay, unless that runs or has just failed. now is by f.start's clock.
func (f *Fallback) repaySoon(now time.Duration) {
	if (f.ledger.owes.Load() || f.ledger.loses.Load()) && int64(now) >= f.repayAt.Load() && f.State() != Open && !f.repaying.Swap(true) {
		go f.repay()
	}
}

// repay settles what was lost and charges what is owed until a batch fails, or only parts that are
// not asked are left.
func (f *Fallback) repay() {
	for f.settleLost() {
		p := f.ledger.claimSome(repayBatch, f.clock(), f.Live(), func(e *debt) bool { return f.asks(e.key) })
		if p == nil {
			break
		}
		if f.pay(p); p.failed {
			break
		}
	}
	f.repayAt.Store(int64(time.Since(f.start) + repayPause))
	f.repaying.Store(false)
}

// asks reports whether the Store is asked about a key.
func (f *Fallback) asks(key string) bool {
	return f.State() == Closed || f.parts.of(key).isClosed()
}

// pay charges each debt by itself: what is due or the limit has left. As others may charge meanwhile,
// it repeats with less. Nothing is sent twice: a call without an answer may have charged.
func (f *Fallback) pay(p *payment) {
	ctx, cancel := context.WithTimeout(context.Background(), repayTimeout)
	defer cancel()
	notCharged := map[*debt]bool{}
	for due := p.debts; len(due) > 0 && !p.failed; {
		var less []*debt
		for i, a := range f.takeBatch(ctx, due) {
			e := due[i]
			switch {
			case errors.Is(a.Err, ErrNotCharged):
				notCharged[e], p.failed = true, true
				p.full = p.full || errors.Is(a.Err, stint.ErrFull)
			case a.Err != nil:
				p.failed = p.failed || !errors.Is(a.Err, ErrBroken)
			case !a.Allowed && a.Remaining > 0 && a.Remaining < e.charge.Cost:
				e.charge.Cost = a.Remaining
				less = append(less, e)
			}
		}
		due = less
	}
	f.ledger.end(p, func(e *debt) bool { return notCharged[e] }, f.Live())
}

// takeBatch sends a single debt as a plain request, which a Store may merge with others.
func (f *Fallback) takeBatch(ctx context.Context, due []*debt) []stint.Answer {
	answers := make([]stint.Answer, len(due))
	var asked []int // places of what is charged if it fits
	var calls []stint.HoldCall
	for i, e := range due {
		if !e.anyway {
			asked = append(asked, i)
			continue
		}
		calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: e.key, Limit: e.charge.Limit, Cost: e.charge.Cost})
	}
	rs := make([]stint.Request, len(due))
	for i, e := range due {
		rs[i].Asks, rs[i].Deadline = []stint.Ask{e.charge}, repayTimeout
	}
	if len(asked) == 1 {
		i := asked[0]
		answers[i].Decision, answers[i].Err = f.Store.Take(ctx, &rs[i], nil)
	} else if len(asked) > 0 {
		takeSome(asked, rs, answers, func(rs []stint.Request, answers []stint.Answer) { stint.TakeBatch(ctx, f.Store, rs, answers) })
	}
	if len(calls) == 0 {
		return answers
	}
	f.holder.Holds(ctx, time.Time{}, calls)
	for i, e := range due {
		if e.anyway {
			answers[i].Allowed, answers[i].Err = true, calls[0].Err
			calls = calls[1:]
		}
	}
	return answers
}

// errOwing means that the debts of a key could not be charged before its deadline.
var errOwing = fmt.Errorf("stint: the store has not yet charged what was admitted without it: %w: %w", ErrNotCharged, context.DeadlineExceeded)

// repayFirst charges what is owed of some keys before the Store is asked about them.
func (f *Fallback) repayFirst(ctx context.Context, asks []stint.Ask) error {
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
