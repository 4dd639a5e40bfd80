package stint

import (
	"context"
	"fmt"
)

// powers is a Store with its optional interfaces, for the Limiter and for the layers
// around a Store: what the Store lacks is ErrUnsupported, or done one by one.
type powers struct{ Store }

func (p powers) takeBatch(ctx context.Context, rs []Request, answers []Answer) {
	if s, ok := p.Store.(BatchTaker); ok {
		s.TakeBatch(ctx, rs, answers)
		return
	}
	for i := range rs {
		a := &answers[i]
		a.Decision, a.Err = p.Take(ctx, &rs[i], a.Each)
	}
}

func (p powers) refund(ctx context.Context, r *Request) error {
	if s, ok := p.Store.(Refunder); ok {
		return s.Refund(ctx, r)
	}
	return fmt.Errorf("stint: refund: %w", ErrUnsupported)
}

func (p powers) reset(ctx context.Context, r *Request) error {
	if s, ok := p.Store.(Resetter); ok {
		return s.Reset(ctx, r)
	}
	return fmt.Errorf("stint: reset: %w", ErrUnsupported)
}

func (p powers) violate(ctx context.Context, r *Request) (Decision, error) {
	if s, ok := p.Store.(Violator); ok {
		return s.Violate(ctx, r)
	}
	return Decision{}, fmt.Errorf("stint: violate: %w", ErrUnsupported)
}

func (p powers) record(ctx context.Context, key string, penalty *Penalty) (Record, error) {
	if s, ok := p.Store.(Recorder); ok {
		return s.Record(ctx, key, penalty)
	}
	return Record{}, fmt.Errorf("stint: record: %w", ErrUnsupported)
}

func (p powers) inspect(ctx context.Context, key string, limits []*Limit) ([]Stored, error) {
	if s, ok := p.Store.(Inspector); ok {
		return s.Inspect(ctx, key, limits)
	}
	return nil, fmt.Errorf("stint: inspect: %w", ErrUnsupported)
}

func (p powers) banned(ctx context.Context, yield func(Record) bool) error {
	if s, ok := p.Store.(Recorder); ok {
		return s.Banned(ctx, yield)
	}
	return fmt.Errorf("stint: banned: %w", ErrUnsupported)
}

func (p powers) punctual() bool {
	s, ok := p.Store.(DeadlineKeeper)
	return ok && s.KeepsDeadline()
}

func (p powers) listen(ctx context.Context, e Ear) error {
	if s, ok := p.Store.(Teller); ok {
		return s.Listen(ctx, e)
	}
	return fmt.Errorf("stint: listen: %w", ErrUnsupported)
}

// Networked is a Store that is reached over a network, and so may be slow or away.
//
// WithFallback returns a Store over the same counts that answers in time whatever the
// network does, by this instance's share of the limits where it has to: the same one at
// each call, ended when the Networked is. Guards and package httplimit ask by it. A layer
// around a Networked hides that it is one: it belongs around WithFallback.
type Networked interface {
	Store
	WithFallback() Store
}

// Teller is a Store that tells what others undo: that units of a key were given
// back, or that its counts, violations or bans were forgotten, through whichever
// Store over the same data. It is what a layer that remembers answers needs.
//
// Listen returns when ctx is done, or at once, with an error that wraps
// ErrUnsupported, if it will never have anything to tell.
type Teller interface {
	Listen(ctx context.Context, e Ear) error
}

// Ear is whom a Teller tells, one thing at a time. Its functions must not block.
type Ear struct {
	// Hears is called with true when everything that is undone from then on will
	// be told, and with false when something may be missed.
	Hears func(bool)
	// Undone is called soon after something of a key was undone; with "": of any
	// key. What has not happened may be told, too.
	Undone func(key string)
}

// Punctual is a Store whose Take keeps a Request's Deadline by itself, so that a
// Fallback need not make a context for each call. Where the Deadline is more than 0
// and that long has passed, Take returns as if its context had ended by then: with an
// error that wraps context.DeadlineExceeded, and ErrNotCharged if nothing was charged, for
// certain. The context still counts, if it ends before. Of its other methods nothing
// is promised: those are bounded by their contexts alone.
type DeadlineKeeper interface {
	// KeepsDeadline tells whether the Store does. A layer is where its Store is, if its
	// Take asks that no more than once. The answer must not change.
	KeepsDeadline() bool
}
