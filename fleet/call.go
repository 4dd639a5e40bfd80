package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint"
)

const fewAsks = 4

// space is reusable memory for a call: a decision for each ask, even if the caller wants only the
// whole, and a request that can be changed.
type space struct {
	each    []stint.Decision
	request stint.Request
}

func (f *Fallback) space(n int) *space {
	s, _ := f.spaces.Get().(*space)
	if s == nil {
		s = new(space)
	}
	if cap(s.each) < n {
		s.each = make([]stint.Decision, n, max(n, fewAsks))
		return s
	}
	s.each = s.each[:n]
	clear(s.each)
	return s
}

func (f *Fallback) free(s *space) {
	s.request = stint.Request{}
	f.spaces.Put(s)
}

// ask lets the Store decide r within its deadline, without making a context (the largest cost here)
// if the Store is a DeadlineKeeper.
func (f *Fallback) ask(ctx context.Context, r *stint.Request, s *space, each []stint.Decision) (d stint.Decision, err error) {
	owes := f.ledger.owes.Load()
	if f.keepsDeadline && !owes {
		if patience, hurried := f.patience(ctx, r.Deadline); patience > 0 { // a Request's Deadline of 0 is none
			if r.Deadline != patience {
				s.request = *r
				s.request.Deadline = patience
				r = &s.request
			}
			began := time.Since(f.start)
			d, err = f.Store.Take(ctx, r, each)
			f.note(ctx, r, began, hurried, err)
			return d, err
		}
	}
	err = f.call(ctx, r, func(ctx context.Context) (err error) {
		if owes {
			if err = f.repayFirst(ctx, r.Asks); err != nil {
				return err
			}
		}
		d, err = f.Store.Take(ctx, r, each)
		return err
	})
	return d, err
}

// deadline is how long a request waits for the store at most; own is its Request.Deadline.
func (f *Fallback) deadline(own time.Duration) time.Duration {
	return or(own, or(f.Deadline, DefaultDeadline))
}

// patience is how long to wait for the store. If the caller has less time, hurried is true and a
// tenth of that time is kept for deciding without the store.
func (f *Fallback) patience(ctx context.Context, deadline time.Duration) (d time.Duration, hurried bool) {
	d = f.deadline(deadline)
	if until, ok := ctx.Deadline(); ok {
		if left := time.Until(until); left-left/10 < d {
			return left - left/10, true
		}
	}
	return d, false
}

// call asks the store about r within r's Deadline, and notes the result.
func (f *Fallback) call(ctx context.Context, r *stint.Request, ask func(context.Context) error) error {
	patience, hurried := f.patience(ctx, r.Deadline)
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Since(f.start)
	err := ask(bounded)
	f.note(ctx, r, began, hurried, err)
	return err
}

// isOwn reports whether a call failed because of the caller: its request was malformed or not
// supported by the store, or the caller has left.
func isOwn(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, stint.ErrRequest) || errors.Is(err, stint.ErrUnsupported) || ctx.Err() != nil)
}

// isAlive reports whether err is the answer of a working store: one key that it cannot read, or has
// no room for, must not open the breaker for all.
func isAlive(err error) bool { return errors.Is(err, ErrBroken) || errors.Is(err, stint.ErrFull) }

func (f *Fallback) note(ctx context.Context, r *stint.Request, began time.Duration, hurried bool, err error) {
	ended := time.Since(f.start)
	if isOwn(ctx, err) {
		return
	}
	f.log.called(r, err)
	f.watchers.called(ended-began, err)
	if f.Called != nil {
		f.Called(ended-began, err)
	}
	if hurried && errors.Is(err, context.DeadlineExceeded) {
		return // another caller may have had an answer
	}
	alive := isAlive(err)
	if alive || err == nil && (f.Breaker.Slow == 0 || ended-began < f.Breaker.Slow) {
		f.parts.each(r.Asks, func(q *storePart, _ *stint.Ask) { q.answered(ended) })
		if err == nil {
			f.repaySoon(ended)
		}
		return
	}
	why := err
	if err == nil {
		why = fmt.Errorf("stint: the store took %s", ended-began)
	}
	// A request that was not sent in time is the store's failure only if no other call was answered
	// meanwhile.
	unsent := errors.Is(err, ErrNotCharged) && errors.Is(err, context.DeadlineExceeded)
	// Which of several parts failed is unknown; those that answer a probe are cleared.
	f.parts.each(r.Asks, func(q *storePart, a *stint.Ask) {
		if !unsent || q.heard.Load() <= int64(began) {
			f.failed(q, a, began, ended, why)
		}
	})
}

// probe asks about the key and limit of a failed call, so that the same server answers. An answer
// too late for a request is errLate.
func (f *Fallback) probe(ctx context.Context, l *stint.Limit, key string, patience time.Duration) error {
	inTime := f.deadline(0)
	ctx, cancel := context.WithTimeout(ctx, max(inTime, patience))
	defer cancel()
	began := time.Now()
	err := internal.Probe(ctx, f.Store, l, key)
	if isAlive(err) {
		err = nil
	}
	if took := time.Since(began); err == nil && (took > inTime || f.Breaker.Slow > 0 && took >= f.Breaker.Slow) {
		return fmt.Errorf("%w: a probe took %s", errLate, took)
	}
	return err
}
