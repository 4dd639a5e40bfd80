package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// OnError says what becomes of an ask that the Store cannot decide, where a
// Fallback is around it. The zero OnError is OnErrorLocal.
type OnError uint8

// If you add one, name it in String and package rules' documentation.
const (
	OnErrorLocal OnError = iota // this instance decides by its share of the limit
	OnErrorAllow                // it is allowed
	OnErrorDeny                 // nothing is decided: Take returns the error
)

var onErrorNames = [...]string{"local", "allow", "deny"}

// String is "local", "allow" or "deny".
func (o OnError) String() string {
	if int(o) < len(onErrorNames) {
		return onErrorNames[o]
	}
	return "unknown"
}

// ParseOnError is the inverse of String.
func ParseOnError(text string) (OnError, error) {
	i := slices.Index(onErrorNames[:], text)
	if i < 0 {
		return 0, fmt.Errorf("%q: must be one of %s", clip(text), strings.Join(onErrorNames[:], ", "))
	}
	return OnError(i), nil
}

// Source is who decided. The zero Source is the Store that counts for all.
type Source uint8

const (
	ByStore    Source = iota
	ByLocal           // this instance alone; see Fallback
	ByPolicy          // nobody: OnErrorAllow
	ByLease           // this instance, by units that the Store had charged ahead; see Leases
	ByInstance        // this instance, which refuses for its own sake; see Limiter.Instance
)

// Counted tells whether it was counted by the Store that counts for all.
func (s Source) Counted() bool { return s == ByStore || s == ByLease }

// String is "store", "local", "policy", "lease" or "instance".
func (s Source) String() string {
	switch s {
	case ByStore:
		return "store"
	case ByLocal:
		return "local"
	case ByPolicy:
		return "policy"
	case ByLease:
		return "lease"
	case ByInstance:
		return "instance"
	}
	return "unknown"
}

// DefaultDeadline is how long a Fallback waits for its Store where its Deadline is
// 0.
const DefaultDeadline = 25 * time.Millisecond

// Fallback is a Store that decides by another one as long as that answers in time,
// and without it as long as it does not: so every request has an answer by the
// deadline, whatever the other does. Only what asks with OnErrorDeny gets an error
// instead, what comes with a context that is done, and, where Local is full of
// exhausted keys, a key that it does not know (ErrFull).
//
// Without the other, an ask with OnErrorLocal is decided by this instance's share
// of the limit: each unit counts as many times as there are instances. It starts
// from what the last answers to this instance left, so an outage hands nobody a
// fresh limit: while all instances are without the Store, they admit of a key that
// all know no more than was left at those answers, and where some still ask it, or
// ask it again, at most the others' shares on top. Keys that this instance has not
// asked about, and those that did not fit into Local, start unused, and so all
// together may admit the limit once more; docs/reliability.md has each case. A
// limit of fewer units than there are instances still lets one unit pass at each.
// What of that is still in use when the Store is back is charged to it, up to its
// limits: of a key before the Store is asked about it, and of all others beside other
// requests. It counts from then on, so of logs and sliding windows for up to a period
// longer than it would have.
//
// Several requests at once (TakeBatch) go to the Store in parts of 64 asks, each with the
// Deadline. After a part that was not answered the Store is not asked about the rest.
//
// Where Local is full of keys that are exhausted or banned, a newcomer with
// OnErrorLocal gets an error that wraps ErrFull: to let it pass would hand a fresh
// limit to whoever invents keys, and to forget another would hand one to that.
//
// A call that failed may have been charged there, unless its error wraps ErrNotCharged;
// what this instance decided in its stead is then charged here alone: nothing is
// charged twice in one place, and nothing is sent again. So what calls that failed
// admitted comes on top: while the breaker is closed that is less than half of all, and
// nothing of a key of which the last answer said that nothing is left.
//
// Store must be given; the fields must not be changed once it is in use. It must
// not be copied. It may be used from many goroutines at once. It has the powers of
// its Store. Requests with an instant go to the Store alone. Where the Store is
// DeadlineKeeper, its Take gets the caller's context and the time to wait as the Request's
// Deadline; else a context of its own.
type Fallback struct {
	// Store counts for all instances.
	Store Store
	// Local decides in its stead, and remembers its last answers. nil: one of
	// DefaultMaxKeys.
	Local *Memory
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
	// later. 0: DefaultMaxOwed.
	MaxOwed int
	// Called is told of every call of the Store for a request: how long it took,
	// and its error, after which the request is decided without it. Requests that
	// were malformed, or whose callers left, are not told. It must not block. nil:
	// nobody is told; but where Breaker.Changed is nil, too, what goes wrong is
	// logged with slog.Default, each line at most once in 10 s.
	Called func(took time.Duration, err error)

	once    sync.Once
	local   *Memory
	start   time.Time
	counted atomic.Int64 // instances, by Follow
	parts   parts
	ledger  ledger
	spaces  sync.Pool // of *space

	repaying atomic.Bool  // what the ledger holds is being charged
	repayAt  atomic.Int64 // by start's clock, when that may be tried again

	punctual bool // the Store is
}

func (f *Fallback) init() {
	f.once.Do(func() {
		f.local = f.Local
		if f.local == nil {
			f.local = new(Memory)
		}
		if f.Called == nil && f.Breaker.Changed == nil {
			log := new(outageLog)
			f.Called, f.Breaker.Changed = log.called, log.changed
		}
		f.ledger.most = f.MaxOwed
		f.start = time.Now()
		f.parts.init(f.Store, f.Breaker)
		f.punctual = powers{f.Store}.punctual()
	})
}

// State is the breaker's. A Store that is Parted has one for each part: Closed, Open and
// HalfOpen are then the state of all.
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

// Known is Live, for Leases: 0 while the Store, or a part of it, is not asked, and until the instances
// have been counted for the first time.
func (f *Fallback) Known() int64 {
	if f.State() != Closed || f.Instances == 0 && f.counted.Load() == 0 {
		return 0
	}
	return f.Live()
}

// Take implements Store.
func (f *Fallback) Take(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	if !r.At.IsZero() {
		return f.Store.Take(ctx, r, out)
	}
	f.init()
	if p := f.parts.failing(r.Asks); p != nil {
		p.yield()
		return f.without(r, out, errOpen, true)
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
		f.local.sharedBy(f.Live()) // for what gives way to r's keys
		f.local.learn(r, &d, each)
		return d, nil
	case isOwn(ctx, err):
		return Decision{}, err
	}
	return f.without(r, out, err, errors.Is(err, ErrNotCharged))
}

var errOpen = errors.New("it is not asked, for it has failed")

// without decides by the asks' OnError. unsent tells that the store was not asked, or
// has said that it did nothing, so that what is spent here is certainly not charged there.
func (f *Fallback) without(r *Request, out []Decision, why error, unsent bool) (Decision, error) {
	live := f.Live()
	f.local.sharedBy(live)
	each := out
	if each == nil {
		each = make([]Decision, len(r.Asks))
	}
	local := Request{Asks: make([]Ask, 0, len(r.Asks))}
	for i := range r.Asks {
		a := &r.Asks[i]
		switch a.OnError {
		case OnErrorDeny:
			return Decision{}, fmt.Errorf("stint: %q denies where the store does not decide: %w", a.name(), why)
		case OnErrorLocal:
			scaled := *a
			if a.Limit != nil {
				scaled.SetUnits(a.Limit.scale(a.Units()-a.ahead, live))
			}
			local.Asks = append(local.Asks, scaled)
		default:
			each[i] = Decision{Allowed: true, Outcome: Allowed, Limit: a.Limit, Key: a.Key, By: ByPolicy}
			if a.Limit != nil {
				each[i].Remaining = a.Limit.Capacity()
			}
		}
	}
	if len(local.Asks) == 0 {
		return Strictest(each), nil
	}
	answers := make([]Decision, len(local.Asks))
	d, err := f.local.Take(context.Background(), &local, answers)
	if err != nil {
		return Decision{}, errors.Join(why, err)
	}
	d.share(live)
	if d.Outcome == Banned && d.Limit == nil {
		return d, nil
	}
	for i, j := 0, 0; i < len(r.Asks); i++ {
		if r.Asks[i].OnError != OnErrorLocal {
			continue
		}
		each[i] = answers[j]
		each[i].share(live)
		if d.Allowed && unsent && r.Asks[i].Units() > 0 {
			spent := r.Asks[i]
			spent.SetUnits(spent.Units() - spent.ahead)
			f.owe(&spent, &answers[j], local.Asks[j].Units(), live)
		}
		j++
	}
	return d, nil
}

// name is that of a's limit, or of its penalty where it has none.
func (a *Ask) name() string {
	if a.Limit == nil {
		return a.Penalty.spec.Name
	}
	return a.Limit.spec.Name
}

// owe notes that an ask was allowed here that the Store knows nothing of. scaled is its
// cost as it was counted here, and d the answer.
func (f *Fallback) owe(a *Ask, d *Decision, scaled, live int64) {
	now := f.local.clock()
	f.ledger.note(a, now, now+runsDry(&a.Limit.plan, d.ResetAfter.Microseconds(), scaled), live)
}

// share turns the answer to a cost that was multiplied into that to the cost.
func (d *Decision) share(live int64) {
	d.Remaining /= live
	d.By = ByLocal
}

// scale is a cost as one of live instances counts it alone: so many times as much,
// but not so much that what would fit at all never does.
func (l *Limit) scale(cost, live int64) int64 {
	capacity := l.plan.Capacity
	if cost > capacity || live == 1 {
		return cost
	}
	if cost > capacity/live {
		return capacity
	}
	return cost * live
}
