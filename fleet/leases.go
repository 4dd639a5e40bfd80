package fleet

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// DefaultMaxLeases is how many keys may have a lease if MaxKeys of a Leases is 0.
const DefaultMaxLeases = 10_000

// Leases is a Store that charges units of hot keys ahead in its Store and then answers requests
// from these units, without a call. It does so for requests of one ask without a Penalty, under a
// Limit with a Lease, and passes on all others. It never admits more than the limit allows, with
// one exception: if another instance resets a fixed window, up to the leased share more.
// docs/decisions/0009-leases.md says why.
//
// A key is hot from about 40 requests a second. A lease holds the units that were asked for
// in a quarter of a second, at most the leased share / (2 × Live); the next one is charged
// in the background. Unused units are refunded half a second after the last use, when the
// lease is a second old, and by Close. In a Decision by a lease (stint.ByLease), Remaining
// and ResetAfter are estimated from the last charge. An exhausted key may be refused for up
// to a tenth of a second longer than its Store would.
//
// Store and Live must be given. The fields must not be changed once it is in use, and it
// must not be copied. It may be used from many goroutines at once. It is not a DeadlineKeeper,
// because it may ask its Store twice.
type Leases struct {
	// Store decides, and counts for all instances.
	Store stint.Store
	// Live returns how many instances share the limits. If it is 0 or less, nothing is
	// leased. Fallback.ConfirmedLive is meant for it.
	Live func() int64
	// MaxKeys is how many keys may have a lease at once; another key gets one when one of
	// those is idle. It also bounds the calls in the background. 0: DefaultMaxLeases.
	MaxKeys int

	once    sync.Once
	seed    maphash.Seed
	start   time.Time
	table   cache[hotKey]
	heat    []atomic.Uint64
	closed  atomic.Bool
	mu      sync.Mutex // guards the fields below, and writes of table
	sweeper *time.Timer
	sweeps  sync.WaitGroup

	charged, ended, returned, void atomic.Int64 // units
}

const (
	leaseFor = 250 * time.Millisecond
	paceFor  = 50 * time.Millisecond
	// leaseAge is how long a lease serves at most, sweepEvery the time between sweeps.
	leaseAge   = 2 * time.Second
	sweepEvery = 500 * time.Millisecond
	// leasePause is how long nothing is leased after a refusal, or after none was wanted.
	leasePause    = 100 * time.Millisecond
	shortestLease = 2

	heatEvery = 250 * time.Millisecond
	hotAsks   = 10 // in that time
	heatRoom  = 1 << 12
)

func (l *Leases) init() {
	l.once.Do(func() {
		l.seed = maphash.MakeSeed()
		l.start = time.Now()
		l.table.make(or(l.MaxKeys, DefaultMaxLeases))
		l.heat = make([]atomic.Uint64, heatRoom)
	})
}

func (l *Leases) now() int64 { return int64(time.Since(l.start)) }

func (l *Leases) hash(a *stint.Ask) uint64 {
	return (maphash.String(l.seed, a.Key) ^ internal.Salt(a.Limit)) * 0x9e3779b97f4a7c15
}

func canLease(r *stint.Request) bool {
	a := &r.Asks[0]
	return len(r.Asks) == 1 && a.Units() > 0 && internal.Leased(a.Limit) > 0 && a.Penalty == nil && r.At.IsZero() && len(a.Key) <= longestRemembered
}

// isHot counts a request that no lease serves, and reports whether there are many. Keys share
// counters, so a cold key may pass for hot, which costs only leased units.
func (l *Leases) isHot(hash uint64, now int64) bool {
	const count = 1<<32 - 1
	h := &l.heat[hash>>32%heatRoom]
	tick := uint64(now/int64(heatEvery)) << 32
	was := h.Load()
	next := tick + 1
	if was&^count == tick {
		next = was + 1
	}
	h.CompareAndSwap(was, next) // missing one in a crowd does not matter
	return next&count >= hotAsks
}

// find returns the lease of a's key and Limit.ID, perhaps with other numbers (see serves); nil:
// none.
func (l *Leases) find(hash uint64, a *stint.Ask) *hotKey {
	set := l.table.set(hash)
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == hash && e.key == a.Key && e.limit.ID() == a.Limit.ID() {
			return e
		}
	}
	return nil
}

// Take implements stint.Store.
func (l *Leases) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if !canLease(r) {
		return l.Store.Take(ctx, r, out)
	}
	l.init()
	a := &r.Asks[0]
	hash, now := l.hash(a), l.now()
	e := l.find(hash, a)
	if e == nil {
		hot := l.isHot(hash, now) && l.Live() > 0 && !l.closed.Load()
		d, err := l.Store.Take(ctx, r, out)
		if hot && err == nil && d.Allowed && d.By == stint.ByStore {
			l.open(hash, a, d.Remaining, now)
		}
		return d, err
	}
	if !e.serves(a.Limit) {
		return l.Store.Take(ctx, r, out)
	}
	var d stint.Decision
	if l.serve(e, r, now, &d) {
		alone(&d, out)
		return d, nil
	}
	e.asked.Add(a.Units())
	if e.refuse(a, now, &d) {
		alone(&d, out)
		return d, nil
	}
	if e.busy.CompareAndSwap(false, true) {
		var err error
		k := l.want(e, a.Units(), now)
		if k > 0 {
			d, err = l.fillUp(ctx, e, r, out, k, now)
		}
		e.busy.Store(false)
		if err != nil || d.Allowed || k > 0 && d.By != stint.ByStore {
			return d, err
		}
	}
	d, err := l.Store.Take(ctx, r, out)
	if err == nil {
		e.remaining.Store(d.Remaining)
		l.wait(e, a.Units(), &d, now)
	}
	return d, err
}

// alone puts d, the decision of a single ask, into out, which may be nil.
func alone(d *stint.Decision, out []stint.Decision) {
	if out != nil {
		out[0] = *d
	}
}

// TakeBatch implements stint.BatchTaker. It answers from leases, but charges nothing ahead.
func (l *Leases) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	l.init()
	now := l.now()
	var asked []int // indices of requests that no lease serves
	for i := range rs {
		a := &answers[i]
		if canLease(&rs[i]) {
			ask := &rs[i].Asks[0]
			if e := l.find(l.hash(ask), ask); e != nil && e.serves(ask.Limit) {
				a.Decision = stint.Decision{}
				if l.serve(e, &rs[i], now, &a.Decision) || e.refuse(ask, now, &a.Decision) {
					a.Err = nil
					alone(&a.Decision, a.Each)
					continue
				}
			}
		}
		asked = append(asked, i)
	}
	switch len(asked) {
	case 0:
		return
	case 1:
		i := asked[0]
		answers[i].Decision, answers[i].Err = l.Take(ctx, &rs[i], answers[i].Each)
		return
	}
	takeSome(asked, rs, answers, func(rs []stint.Request, answers []stint.Answer) { stint.TakeBatch(ctx, l.Store, rs, answers) })
}

// Refund implements stint.Refunder.
func (l *Leases) Refund(ctx context.Context, r *stint.Request) error {
	err := stint.Refund(ctx, l.Store, r)
	l.init()
	for i := range r.Asks {
		if a := &r.Asks[i]; internal.Leased(a.Limit) > 0 {
			if e := l.find(l.hash(a), a); e != nil {
				e.waits.Store(nil)
			}
		}
	}
	return err
}

// Reset implements stint.Resetter. Units that were leased in a fixed window before are
// void.
func (l *Leases) Reset(ctx context.Context, r *stint.Request) error {
	err := stint.Reset(ctx, l.Store, r)
	l.Forget(r)
	return err
}

// Forget drops the leases of the keys of r under the limits of its asks. Call it after they
// were reset without this Leases. Units leased in a fixed window become void; a lease of a
// bucket may stay.
func (l *Leases) Forget(r *stint.Request) {
	l.init()
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil || internal.Leased(a.Limit) == 0 {
			continue
		}
		e := l.find(l.hash(a), a)
		if e == nil {
			continue
		}
		e.waits.Store(nil)
		if endsWithWindow(a.Limit) {
			e.resets.Add(1)
			l.end(e, e.lease.Load(), true)
		}
	}
}

// Unwrap returns the Store.
func (l *Leases) Unwrap() stint.Store { return l.Store }
