package limittest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// ErrFault is the error of a Faulty if its Fault has none.
var ErrFault = errors.New("injected fault")

// Fault says how one call fails. The zero Fault: it does not.
type Fault struct {
	// Err is what the call returns. nil: the context's error if the call hangs, or ErrFault
	// if the answer is lost.
	Err error
	// Lost makes the Store execute the call and lose its answer: the request may be charged
	// although the call fails. Otherwise a failing call never reaches the Store.
	Lost bool
	// Hang makes the call return only when its context is done.
	Hang bool
}

// Faulty is a Store that passes calls on to its Store, and fails where a test wants it to.
// It implements stint.BatchTaker, stint.Refunder, stint.Resetter, stint.Violator,
// stint.Inspector and stint.Holder. If the Store lacks one of these, the call returns stint.ErrUnsupported;
// batches are decided one by one. Faulty has no clock and never sleeps. It may be used from
// many goroutines at once if Fault may.
type Faulty struct {
	// Store answers the calls that do not fail.
	Store stint.Store
	// Fault returns the fault of a call. Calls of all methods are numbered together, from
	// 1. nil: no call fails.
	Fault func(call int) Fault

	calls atomic.Int64
}

// Calls returns how many calls have begun.
func (f *Faulty) Calls() int { return int(f.calls.Load()) }

func (f *Faulty) call(ctx context.Context, inner func() error) error {
	n := int(f.calls.Add(1))
	var fault Fault
	if f.Fault != nil {
		fault = f.Fault(n)
	}
	if fault.Err == nil && !fault.Lost && !fault.Hang {
		return inner()
	}
	if fault.Lost {
		_ = inner() // its result is what gets lost
	}
	if fault.Hang {
		<-ctx.Done()
		if fault.Err == nil {
			return fmt.Errorf("limittest: call %d: %w", n, ctx.Err())
		}
	}
	if fault.Err == nil {
		return fmt.Errorf("limittest: call %d: %w", n, ErrFault)
	}
	return fault.Err
}

// faulty is call for a method with a result, which is zero if the call fails.
func faulty[T any](ctx context.Context, f *Faulty, inner func() (T, error)) (T, error) {
	var result, none T
	err := f.call(ctx, func() (err error) {
		result, err = inner()
		return err
	})
	if err != nil {
		return none, err
	}
	return result, nil
}

// Take implements stint.Store.
func (f *Faulty) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return faulty(ctx, f, func() (stint.Decision, error) { return f.Store.Take(ctx, r, out) })
}

// TakeBatch implements stint.BatchTaker. It is one call: a fault affects all its requests.
func (f *Faulty) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	err := f.call(ctx, func() error {
		stint.TakeBatch(ctx, f.Store, rs, answers)
		return nil
	})
	if err != nil {
		for i := range answers {
			answers[i].Decision, answers[i].Err = stint.Decision{}, err
		}
	}
}

// Refund implements stint.Refunder.
func (f *Faulty) Refund(ctx context.Context, r *stint.Request) error {
	return f.call(ctx, func() error { return stint.Refund(ctx, f.Store, r) })
}

// Reset implements stint.Resetter.
func (f *Faulty) Reset(ctx context.Context, r *stint.Request) error {
	return f.call(ctx, func() error { return stint.Reset(ctx, f.Store, r) })
}

// Violate implements stint.Violator.
func (f *Faulty) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	return faulty(ctx, f, func() (stint.Decision, error) { return stint.Violate(ctx, f.Store, r) })
}

// Holds implements stint.Holder. It is one call: a fault affects all HoldCalls.
func (f *Faulty) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	err := f.call(ctx, func() error {
		stint.Holds(ctx, f.Store, at, calls)
		return nil
	})
	if err != nil {
		for i := range calls {
			c := &calls[i]
			c.Found, c.Charged, c.Remaining, c.Held, c.ResetAfter, c.Err = false, 0, 0, 0, 0, err
		}
	}
}

// Held implements stint.Holder.
func (f *Faulty) Held(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	return faulty(ctx, f, func() ([]stint.Hold, error) {
		if s, ok := stint.As[stint.Holder](f.Store); ok {
			return s.Held(ctx, key, limits)
		}
		return nil, fmt.Errorf("limittest: held: %w", stint.ErrUnsupported)
	})
}

// Record implements stint.Inspector.
func (f *Faulty) Record(ctx context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	return faulty(ctx, f, func() (stint.Record, error) {
		if s, ok := stint.As[stint.Inspector](f.Store); ok {
			return s.Record(ctx, key, p)
		}
		return stint.Record{}, fmt.Errorf("limittest: record: %w", stint.ErrUnsupported)
	})
}

// Inspect implements stint.Inspector.
func (f *Faulty) Inspect(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	return faulty(ctx, f, func() ([]stint.Stored, error) {
		if s, ok := stint.As[stint.Inspector](f.Store); ok {
			return s.Inspect(ctx, key, limits)
		}
		return nil, fmt.Errorf("limittest: inspect: %w", stint.ErrUnsupported)
	})
}

// Banned implements stint.Inspector. If the answer is lost, it still calls yield, and then
// returns the error.
func (f *Faulty) Banned(ctx context.Context, yield func(stint.Record) bool) error {
	return f.call(ctx, func() error {
		if s, ok := stint.As[stint.Inspector](f.Store); ok {
			return s.Banned(ctx, yield)
		}
		return fmt.Errorf("limittest: banned: %w", stint.ErrUnsupported)
	})
}
