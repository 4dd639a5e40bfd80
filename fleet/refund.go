package fleet

import (
	"context"
	"fmt"

	"github.com/stintdev/stint"
)

// Refund implements stint.Refunder. Units that this instance admitted (ByLocal) go back to
// its share. All others go to the Store; while the breaker is not closed, they go to the
// share too.
func (f *Fallback) Refund(ctx context.Context, r *stint.Request) error {
	f.init()
	store, ok := stint.As[stint.Refunder](f.Store)
	if !r.At.IsZero() && ok {
		return store.Refund(ctx, r)
	}
	var local []stint.Ask
	counted := stint.Request{Deadline: r.Deadline}
	for _, a := range r.Asks {
		if a.By == stint.ByLocal || ok && f.parts.failing([]stint.Ask{a}) != nil {
			local = append(local, a)
		} else {
			counted.Asks = append(counted.Asks, a)
		}
	}
	f.refundLocal(local)
	switch {
	case len(counted.Asks) == 0:
		return nil
	case !ok:
		return fmt.Errorf("stint: refund: %w", stint.ErrUnsupported)
	}
	if err := f.call(ctx, &counted, func(ctx context.Context) error { return store.Refund(ctx, &counted) }); err != nil {
		return err
	}
	return f.local.Refund(ctx, &counted)
}

func (f *Fallback) refundLocal(asks []stint.Ask) {
	if len(asks) == 0 {
		return
	}
	live := f.Live()
	for i := range asks {
		a := &asks[i]
		f.ledger.refund(a)
		internal.SetUnits(a, scale(a.Limit, a.Units(), live))
	}
	_ = f.local.Refund(context.Background(), &stint.Request{Asks: asks}) // it cannot fail
}

// Reset implements stint.Resetter. The local counts are reset even if the Store fails.
func (f *Fallback) Reset(ctx context.Context, r *stint.Request) error {
	f.Forget(r)
	return stint.Reset(ctx, f.Store, r)
}

// Forget resets the keys at this instance only. Call it after they were reset through
// another instance.
func (f *Fallback) Forget(r *stint.Request) {
	f.init()
	_ = f.local.Reset(context.Background(), r) // it cannot fail
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit != nil {
			f.ledger.forget(a.Key, a.Limit)
		}
	}
}

// Violate implements stint.Violator. If the Store does not answer, this instance counts by
// itself.
func (f *Fallback) Violate(ctx context.Context, r *stint.Request) (d stint.Decision, err error) {
	f.init()
	store, ok := stint.As[stint.Violator](f.Store)
	switch {
	case !ok:
		return stint.Decision{}, fmt.Errorf("stint: violate: %w", stint.ErrUnsupported)
	case !r.At.IsZero():
		return store.Violate(ctx, r)
	}
	if f.parts.failing(r.Asks) == nil {
		err = f.call(ctx, r, func(ctx context.Context) error {
			d, err = store.Violate(ctx, r)
			return err
		})
		if err == nil {
			internal.Learn(f.local, r, &d, nil, f.deadline(r.Deadline))
		}
		if err == nil || isOwn(ctx, err) {
			return d, err
		}
	}
	d, err = f.local.Violate(ctx, r)
	d.By = stint.ByLocal
	return d, err
}

// Unwrap returns the Store.
func (f *Fallback) Unwrap() stint.Store { return f.Store }
