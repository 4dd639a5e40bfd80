package stint

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// space is room for what a call needs: a decision for each ask, to learn from, also
// where the caller wants the whole alone; and a request like the caller's, which
// nobody else may change.
type space struct {
	each    []Decision
	request Request
}

// space has room for n decisions. It is to be freed.
func (f *Fallback) space(n int) *space {
	s, _ := f.spaces.Get().(*space)
	if s == nil {
		s = new(space)
	}
	if cap(s.each) < n {
		s.each = make([]Decision, n, max(n, fewAsks))
		return s
	}
	s.each = s.each[:n]
	clear(s.each)
	return s
}

func (f *Fallback) free(s *space) {
	s.request = Request{}
	f.spaces.Put(s)
}

// ask has the Store decide r within its deadline, which a Store that is Punctual
// keeps by itself: a context for each call would cost more than all else here.
func (f *Fallback) ask(ctx context.Context, r *Request, s *space, each []Decision) (d Decision, err error) {
	if f.punctual {
		if patience, hurried := f.patience(ctx, r.Deadline); patience > 0 { // of a Request, 0 is none
			if r.Deadline != patience {
				s.request = *r
				s.request.Deadline = patience
				r = &s.request
			}
			began := time.Since(f.start)
			d, err = f.Store.Take(ctx, r, each)
			f.note(ctx, began, hurried, err)
			return d, err
		}
	}
	err = f.call(ctx, r.Deadline, func(ctx context.Context) (err error) {
		d, err = f.Store.Take(ctx, r, each)
		return err
	})
	return d, err
}

// patience is how long to wait for the store. Of the time that the caller has, if
// that is less, which is hurried, a tenth is kept for deciding without.
func (f *Fallback) patience(ctx context.Context, deadline time.Duration) (d time.Duration, hurried bool) {
	d = or(deadline, or(f.Deadline, DefaultDeadline))
	if until, ok := ctx.Deadline(); ok {
		if left := time.Until(until); left-left/10 < d {
			return left - left/10, true
		}
	}
	return d, false
}

// call asks the store for as long as deadline, or Deadline where that is 0, and
// notes how that went.
func (f *Fallback) call(ctx context.Context, deadline time.Duration, ask func(context.Context) error) error {
	patience, hurried := f.patience(ctx, deadline)
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Since(f.start)
	err := ask(bounded)
	f.note(ctx, began, hurried, err)
	return err
}

// note notes how a call went that began by f.start's clock.
func (f *Fallback) note(ctx context.Context, began time.Duration, hurried bool, err error) {
	ended := time.Since(f.start)
	if err != nil && (errors.Is(err, ErrRequest) || ctx.Err() != nil) {
		return // not the store's fault; or whoever asked has left
	}
	if f.Called != nil {
		f.Called(ended-began, err)
	}
	if hurried && errors.Is(err, context.DeadlineExceeded) {
		return // another caller may have had an answer
	}
	second := int64(ended/time.Second) + 1
	if errors.Is(err, ErrBroken) { // else a single key would close the store to all
		f.breaker.answered(second)
		return
	}
	if err == nil && (f.Breaker.Slow == 0 || ended-began < f.Breaker.Slow) {
		f.breaker.answered(second)
		f.repaySoon(second)
		return
	}
	why := err
	if err == nil {
		why = fmt.Errorf("stint: the store took %s", ended-began)
	}
	if f.breaker.failure(&f.Breaker, second) {
		f.breaker.open(&f.Breaker, why, f.probe, f.repay)
	}
}
