package stint

import (
	"context"
	"fmt"
)

// Refund implements Refunder: what this instance decided (ByLocal) goes back to its
// share, and all else to the Store or, while the breaker is not closed, to the share,
// too.
func (f *Fallback) Refund(ctx context.Context, r *Request) error {
	f.init()
	store, ok := f.Store.(Refunder)
	if !r.At.IsZero() && ok {
		return store.Refund(ctx, r)
	}
	var local []Ask
	counted := Request{Deadline: r.Deadline}
	for _, a := range r.Asks {
		if a.By == ByLocal || ok && f.parts.failing([]Ask{a}) != nil {
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
		return fmt.Errorf("stint: refund: %w", ErrUnsupported)
	}
	if err := f.call(ctx, &counted, func(ctx context.Context) error { return store.Refund(ctx, &counted) }); err != nil {
		return err
	}
	return f.local.Refund(ctx, &counted)
}

// refundLocal returns units to this instance's share.
func (f *Fallback) refundLocal(asks []Ask) {
	if len(asks) == 0 {
		return
	}
	live := f.Live()
	for i := range asks {
		a := &asks[i]
		f.ledger.refund(a)
		a.SetUnits(a.Limit.scale(a.Units(), live))
	}
	_ = f.local.Refund(context.Background(), &Request{Asks: asks}) // it cannot fail
}

// Reset implements Resetter. What this instance remembers is forgotten also if the
// Store fails.
func (f *Fallback) Reset(ctx context.Context, r *Request) error {
	f.init()
	_ = f.local.Reset(ctx, r) // it cannot fail
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit != nil {
			f.ledger.forget(a.Key, a.Limit)
		}
	}
	return powers{f.Store}.reset(ctx, r)
}

// Violate implements Violator: where the Store does not answer, this instance
// counts by itself.
func (f *Fallback) Violate(ctx context.Context, r *Request) (d Decision, err error) {
	f.init()
	store, ok := f.Store.(Violator)
	switch {
	case !ok:
		return Decision{}, fmt.Errorf("stint: violate: %w", ErrUnsupported)
	case !r.At.IsZero():
		return store.Violate(ctx, r)
	}
	if f.parts.failing(r.Asks) == nil {
		err = f.call(ctx, r, func(ctx context.Context) error {
			d, err = store.Violate(ctx, r)
			return err
		})
		if err == nil {
			f.local.learn(r, &d, nil)
		}
		if err == nil || ctx.Err() != nil {
			return d, err
		}
	}
	d, err = f.local.Violate(ctx, r)
	d.By = ByLocal
	return d, err
}

// Record implements Recorder, for the Store.
func (f *Fallback) Record(ctx context.Context, key string, p *Penalty) (Record, error) {
	return powers{f.Store}.record(ctx, key, p)
}

// Inspect implements Inspector, for the Store.
func (f *Fallback) Inspect(ctx context.Context, key string, limits []*Limit) ([]Stored, error) {
	return powers{f.Store}.inspect(ctx, key, limits)
}

// Banned implements Recorder, for the Store.
func (f *Fallback) Banned(ctx context.Context, yield func(Record) bool) error {
	return powers{f.Store}.banned(ctx, yield)
}

// Forget drops what this instance remembers of a key under a penalty, when it was
// pardoned through another.
func (f *Fallback) Forget(key string, p *Penalty) {
	f.init()
	_ = f.local.Reset(context.Background(), &Request{Asks: []Ask{{Key: key, Penalty: p}}})
}

// Listen implements Teller, for the Store.
func (f *Fallback) Listen(ctx context.Context, e Ear) error { return powers{f.Store}.listen(ctx, e) }
