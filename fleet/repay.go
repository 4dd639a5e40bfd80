package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint"
)

// Debts are charged while other requests go on. Only requests for the same keys wait, so that the
// Store knows all units that this instance has spent of a key when it is asked again.

const (
	repayTimeout = time.Second
	repayBatch   = listPart
	repayPause   = time.Second
)

// repaySoon starts repay, unless it runs or has just failed. now is by f.start's clock.
func (f *Fallback) repaySoon(now time.Duration) {
	if (f.ledger.owes.Load() || f.ledger.settles.Load()) && int64(now) >= f.repayAt.Load() && f.State() != Open && !f.repaying.Swap(true) {
		go f.repay()
	}
}

// repay sends settlements and charges debts until a batch fails, or only parts that are not asked are
// left.
func (f *Fallback) repay() {
	for f.settleKept() {
		p := f.ledger.claimSome(repayBatch, f.clock(), f.Live(), func(e *debt) bool { return f.asks(e.limit, e.key) })
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

// asks reports whether the Store is asked about a key under l.
func (f *Fallback) asks(l *stint.Limit, key string) bool {
	return f.State() == Closed || f.parts.of(l, key).isClosed()
}

// pay charges each debt separately: the due units, or as many as the limit has left. If others charge
// meanwhile, it repeats with less. Nothing is sent twice: a call without an answer may have charged.
func (f *Fallback) pay(p *payment) {
	ctx, cancel := context.WithTimeout(context.Background(), repayTimeout)
	defer cancel()
	stillDue := map[*debt]bool{}
	failed := func(e *debt, why error) {
		// Debts that are charged even if they do not fit could be charged endlessly.
		if errors.Is(why, ErrNotCharged) || errors.Is(why, ErrBadReply) && !e.chargeAnyway {
			stillDue[e], p.failed = true, true
			p.full = p.full || errors.Is(why, stint.ErrFull)
			return
		}
		p.failed = p.failed || !errors.Is(why, ErrBroken)
	}
	var anyway, due []*debt
	for _, e := range p.debts {
		if e.chargeAnyway {
			anyway = append(anyway, e)
		} else {
			due = append(due, e)
		}
	}
	f.charge(ctx, anyway, failed)
	for len(due) > 0 && !p.failed {
		var less []*debt
		for i, a := range f.takeBatch(ctx, due) {
			e := due[i]
			switch {
			case a.Err != nil:
				failed(e, a.Err)
			case !a.Allowed && a.Remaining > 0 && a.Remaining < e.charge.Cost:
				e.charge.Cost = a.Remaining
				less = append(less, e)
			}
		}
		due = less
	}
	for _, e := range due { // that were not sent
		stillDue[e] = true
	}
	if now := int64(time.Since(f.start)); !p.failed {
		for _, e := range p.debts {
			f.parts.of(e.charge.Limit, e.charge.Key).heard.Store(now)
		}
	}
	f.ledger.end(p, func(e *debt) bool { return stillDue[e] }, f.Live())
}

// takeBatch sends a single debt as a plain request, which a Store may merge with others.
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

// errOwing means that the debts of a key could not be charged before its deadline.
var errOwing = fmt.Errorf("stint: the store has not yet charged what was admitted without it: %w: %w", ErrNotCharged, context.DeadlineExceeded)

// repayFirst charges the debts of some keys before the Store is asked about them.
func (f *Fallback) repayFirst(ctx context.Context, asks []stint.Ask) error {
	for { // calls that failed meanwhile add debts
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
		if full { // there is no room for the request either, but it may be refused
			return nil
		}
	}
}
