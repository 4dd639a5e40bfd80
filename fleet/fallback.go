package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// DefaultDeadline is how long a Fallback waits for its Store where its Deadline is
// 0.
const DefaultDeadline = 25 * time.Millisecond

// Fallback is a Store that decides by its Store as long as that answers in time, and by
// this instance's share of the limits while it does not. So every request has an answer by
// the deadline. Only a request with OnErrorDeny gets an error instead, and one whose context
// is done, and, where Local is full of exhausted keys, one for a new key (stint.ErrFull).
//
// Each instance decides by the last answers of the Store and by an equal share of each
// limit; what it admits is charged to the Store when that answers again. How much all
// instances together may admit meanwhile is in docs/reliability.md, and why it is done like
// this in docs/decisions/0016-fallback.md. A call that failed may have been charged, unless
// its error wraps stint.ErrNotCharged, and is not sent again.
//
// Store must be given; the fields must not be changed once it is in use. It must not
// be copied. It may be used from many goroutines at once. Requests with an instant go to the
// Store alone.
type Fallback struct {
	// Store counts for all instances.
	Store stint.Store
	// Local decides in its stead, and remembers its last answers. nil: one of
	// stint.DefaultMaxKeys.
	Local *stint.Memory
	// Deadline is how long a request waits for the Store, unless it says so
	// itself. Where its context has less time left, it waits nine tenths of that,
	// and if that was too short, it does not count as a failure. 0:
	// DefaultDeadline.
	Deadline time.Duration
	// Breaker says when to stop asking.
	Breaker Breaker
	// Instances is how many instances share the limits. 0: as many as Follow has
	// counted last; 1 before that.
	Instances int
	// MaxOwed bounds the bytes that are kept of what was spent without the Store, to
	// be charged when it answers again, keys included. What does not fit is not charged
	// later. 0: DefaultMaxOwed. Negative: nothing is kept.
	MaxOwed int
	// Called is called after every call of the Store for a request, with how long it
	// took and its error, after which the request is decided without the Store; but not
	// where the request was malformed or its caller left. It must not block. nil and
	// Breaker.Changed nil, too: failures are logged with slog.Default, each line at most
	// once in 10 s.
	Called func(took time.Duration, err error)

	once    sync.Once
	local   *stint.Memory
	start   time.Time
	counted atomic.Int64 // instances, by Follow
	parts   parts
	ledger  ledger
	spaces  sync.Pool // of *space

	repaying atomic.Bool  // what the ledger holds is being charged
	repayAt  atomic.Int64 // by start's clock, when that may be tried again

	keepsDeadline bool // the Store does
}

func (f *Fallback) init() {
	f.once.Do(func() {
		f.local = f.Local
		if f.local == nil {
			f.local = new(stint.Memory)
		}
		if f.Called == nil && f.Breaker.Changed == nil {
			log := new(outageLog)
			f.Called, f.Breaker.Changed = log.called, log.changed
		}
		f.ledger.most = f.MaxOwed
		f.start = time.Now()
		f.parts.init(f.Store, f.Breaker)
		f.keepsDeadline = keepsDeadline(f.Store)
	})
}

// State is the breaker's. A Store that is Partitioned has one for each server: Closed, Open
// and HalfOpen are then the state of all.
func (f *Fallback) State() BreakerState { return f.parts.state() }

// Close ends probes; an open breaker stays open. It does not close the Store.
func (f *Fallback) Close() {
	f.init()
	f.parts.close()
}

// Live is how many instances are taken to share the limits.
func (f *Fallback) Live() int64 {
	if f.Instances > 0 {
		return int64(f.Instances)
	}
	return max(1, f.counted.Load())
}

// ConfirmedLive is Live, but 0 while the Store, or one of its servers, is not asked, and until
// the instances have been counted for the first time. It is what Leases needs to know.
func (f *Fallback) ConfirmedLive() int64 {
	if f.State() != Closed || f.Instances == 0 && f.counted.Load() == 0 {
		return 0
	}
	return f.Live()
}

// clock is the instant by which debts are counted, µs since 1970.
func (f *Fallback) clock() int64 { return internal.Now(f.local) }

// Take implements stint.Store.
func (f *Fallback) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return f.takeAhead(ctx, r, 0, out)
}

func (f *Fallback) takeAhead(ctx context.Context, r *stint.Request, ahead int64, out []stint.Decision) (stint.Decision, error) {
	if !r.At.IsZero() {
		return f.Store.Take(ctx, r, out)
	}
	f.init()
	if p := f.parts.failing(r.Asks); p != nil {
		p.yield()
		return f.without(r, ahead, out, errOpen, true)
	}
	each, n := out, 0
	if each == nil {
		n = len(r.Asks)
	}
	space := f.space(n)
	defer f.free(space)
	if each == nil {
		each = space.each
	}
	d, err := f.ask(ctx, r, space, each)
	switch {
	case err == nil:
		internal.SetLeastCost(f.local, f.Live()) // what gives way to r's keys goes by it
		internal.Learn(f.local, r, &d, each)
		return d, nil
	case isOwn(ctx, err):
		return stint.Decision{}, err
	}
	return f.without(r, ahead, out, err, errors.Is(err, stint.ErrNotCharged))
}
