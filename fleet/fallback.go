package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// DefaultDeadline is how long a Fallback waits for its Store if its Deadline is 0.
const DefaultDeadline = 25 * time.Millisecond

// Fallback is a Store that always answers by its deadline: with its Store's answer if that comes in
// time, else by this instance's share of each limit. Requests get an error only in three cases:
// they have OnErrorDeny, their context is done, or their key is new and Local is full of exhausted
// keys (stint.ErrFull).
//
// Without the Store, an instance starts from the Store's last answers and admits an equal
// share of each limit. It charges what it admitted when the Store answers again.
// docs/reliability.md says how much all instances together may admit meanwhile, and
// docs/decisions/0010-fallback.md says why. A failed call may have been charged unless its error
// wraps ErrNotCharged; it is not sent again, and units admitted in its place are not charged later
// unless its error wraps ErrBadReply.
//
// It is a stint.Holder if its Store is or wraps one; else requests that would hold units get
// an error that wraps stint.ErrUnsupported, whether the Store answers or not. See Holds and
// docs/decisions/0014-holds-of-requests.md.
//
// Store must be given. The fields must not be changed once it is in use, and it must not be
// copied. It may be used from many goroutines at once. Requests with an instant are passed
// on to the Store.
type Fallback struct {
	// Store counts for all instances.
	Store stint.Store
	// Local decides instead of the Store, and remembers the Store's last answers. nil: a
	// Memory with room for 1,000,000 keys.
	Local *stint.Memory
	// Deadline is how long a request waits for the Store, unless the request has a Deadline
	// of its own. If the request's context ends sooner, it waits nine tenths of the time
	// left, and a timeout then does not count as a failure. 0: DefaultDeadline.
	Deadline time.Duration
	// Breaker says when to stop asking the Store.
	Breaker Breaker
	// Instances is how many instances share the limits. 0: as many as Follow last counted,
	// and 1 before that.
	Instances int
	// MaxOwed bounds the bytes, including keys, that are kept to charge units admitted without the Store, and
	// to settle holds, when it answers again. Units that do not fit are never charged, and holds that do not
	// fit expire. 0: DefaultMaxOwed. Negative: nothing is kept.
	MaxOwed int
	// Called is called after every call of the Store for a request, with its duration and
	// its error. After an error, the request is decided without the Store. It is not called
	// if the request was malformed or its caller left. It must not block. If Called and
	// Breaker.Changed are both nil, failures are logged with slog.Default, each message at
	// most once in 10 s.
	Called func(took time.Duration, err error)

	once    sync.Once
	local   *stint.Memory
	start   time.Time
	counted atomic.Int64 // instances, by Follow
	parts   parts
	ledger  ledger
	spaces  sync.Pool // of *space

	holder stint.Holder // of the Store; nil: it has none

	settling atomic.Bool  // a timer runs, see settleLater
	repaying atomic.Bool  // the ledger's debts are being charged
	repayAt  atomic.Int64 // earliest next attempt, by start's clock

	keepsDeadline bool // the Store is a DeadlineKeeper

	watchers watchers   // in addition to Called
	log      *outageLog // nil: there is a Called or Breaker.Changed
}

func (f *Fallback) init() {
	f.once.Do(func() {
		f.local = f.Local
		if f.local == nil {
			f.local = new(stint.Memory)
		}
		if f.Called == nil && f.Breaker.Changed == nil {
			f.log = new(outageLog)
			f.Breaker.Changed = f.log.changed
		}
		f.ledger.most = f.MaxOwed
		f.start = time.Now()
		f.parts.init(f.Store, f.Breaker)
		f.keepsDeadline = keepsDeadline(f.Store)
		f.holder, _ = stint.As[stint.Holder](f.Store)
	})
}

// State returns the state of the breaker. A Partitioned Store has one breaker for each server;
// Closed, Open and HalfOpen then mean that all are in that state.
func (f *Fallback) State() BreakerState { return f.parts.state() }

// Close stops the probes. An open breaker stays open. It does not close the Store.
func (f *Fallback) Close() {
	f.init()
	f.parts.close()
}

// Live returns the number of instances among which the limits are divided.
func (f *Fallback) Live() int64 {
	if f.Instances > 0 {
		return int64(f.Instances)
	}
	return max(1, f.counted.Load())
}

// ConfirmedLive returns Live, but 0 while the Store or one of its servers is not asked, and
// before the first count of the instances. It is meant for Leases.Live.
func (f *Fallback) ConfirmedLive() int64 {
	if f.State() != Closed || f.Instances == 0 && f.counted.Load() == 0 {
		return 0
	}
	return f.Live()
}

// clock is the current instant for debts, µs since 1970.
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
	if f.holder == nil && internal.Holds(r) {
		return stint.Decision{}, errNoHolder
	}
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
		internal.SetLeastCost(f.local, f.Live()) // which keys give way to r's depends on it
		internal.Learn(f.local, r, &d, each, f.deadline(r.Deadline))
		return d, nil
	case isOwn(ctx, err):
		f.lose(r, err)
		return stint.Decision{}, err
	}
	f.lose(r, err)
	return f.without(r, ahead, out, err, isOwed(err))
}
