package stint

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxLeases is how many keys a Leases serves ahead where its MaxKeys is 0.
const DefaultMaxLeases = 10_000

// Leases is a Store that has units of hot keys charged ahead by another one and
// serves them itself, without asking. It does so for requests of one ask, without a
// Penalty, under a Limit with a Lease. All others are passed on.
//
// Never more passes than the limit allows. A lease of k units is a charge of k, made
// together with a request of the same key, or ahead of one. What of it is served later
// than it was charged is what needs care, and differs by algorithm:
//
// A TokenBucket is made smaller by the share that may be leased (Limit.Lease). In any
// time, what passes is what the Store charges in that time, at most the smaller
// bucket and what comes back; and what was charged before and still lies in leases,
// at most the share. Together that is the limit, however old a lease is, whatever
// clocks say, and also after units were refunded or forgotten.
//
// A FixedWindow keeps its amount: a lease is served within the window in which it was
// charged. That ends no sooner than the ResetAfter that was told after the request was
// sent; a thousandth of that is kept as a margin for the clocks. If the key is reset
// meanwhile by another instance, the new start has up to the share more.
//
// An instance holds at most the share / (2 × Live) of a key. So all of them hold no
// more than the share as long as no more than twice as many live as Live says. What is
// still left when the next is charged counts as held. What follows from an instance
// that is not counted any more is over in 2 s, for no lease is served for longer, unless
// the next was charged in between.
//
// A key is hot if it is asked for about 40 times a second, or more. A lease is what
// this instance will ask for in a quarter of a second, and no more than a quarter of
// what the last answer said remains: so the last units of a limit are served one by
// one, and a key that is exhausted costs no second call.
//
// While a key is asked for, the next lease is charged in the background, as soon as what
// is left lasts for no more than twice the time that the last took to come, and a
// sixteenth of it: so hardly anybody waits for the Store. It is charged only where as
// much remains for every instance, and for 8, and the key is not exhausted. The Deadline
// of the request that set it off is its own; none takes more than a second.
//
// Of a bucket that is exhausted, units come back one by one, and all instances would ask
// for each. So where enough comes back for leases, an instance that was refused asks again
// after a tenth of a second, or as soon as half of the share has come back, for all
// that it needs and may hold, and refuses in between: it may refuse for as long what
// the Store would allow. Nothing is lost by that, for an exhausted bucket has room for
// what comes back.
//
// Of a Decision by a lease (ByLease), Remaining is what the Store said was left when the lease
// was charged, and what is left of the lease; ResetAfter is what is left of that told.
//
// What is not used is refunded: half a second after the last use, on Close, and all
// that is a second old. What an instance that is killed has leased comes back to a
// TokenBucket as anything that was used does. Of a FixedWindow it is lost until the window
// ends: at most the share / (2 × Live), each time that an instance is killed. What cannot be refunded, or only when the window of a FixedWindow
// is about to end, is void. A lease that the Store did not confirm is not served.
//
// Where limits with the same ID and other numbers are in use for one key, as when an
// amount is being changed, an instance holds units under one of them only; requests
// under another go to the Store until the first has been idle for a second or two.
// If these limits have the same Spec.Lease, no more passes than Spec.Name says of limits
// that share a count. If they have not, up to the larger share may pass in addition.
//
// Store and Live must be given; the fields must not be changed once it is in use. It
// must not be copied. It may be used from many goroutines at once. It has the powers
// of its Store, but is no DeadlineKeeper, for it may ask that twice.
type Leases struct {
	// Store decides.
	Store Store
	// Live is how many instances share the limits; 0 or less: nothing is leased
	// now. Fallback.Known is one.
	Live func() int64
	// MaxKeys is how many keys may have a lease at once; there is none for another
	// until one is idle. As many calls may be under way in the background. 0:
	// DefaultMaxLeases.
	MaxKeys int

	once    sync.Once
	seed    maphash.Seed
	start   time.Time
	table   cache[lease]
	heat    []atomic.Uint64
	closed  atomic.Bool
	mu      sync.Mutex // guards what follows, and the places of table
	sweeper *time.Timer
	sweeps  sync.WaitGroup

	charged, ended, returned, void atomic.Int64 // units
}

const (
	// leaseFor is how long a lease is to last.
	leaseFor = 250 * time.Millisecond
	// paceFor is how long is looked at, at least, to say how much is asked for.
	paceFor = 50 * time.Millisecond
	// leaseAge is how long one is served at most, and sweepEvery how often they are
	// looked at.
	leaseAge   = 2 * time.Second
	sweepEvery = 500 * time.Millisecond
	// leasePause is how long nothing is leased after it was refused, or not wanted.
	leasePause = 100 * time.Millisecond
	// shortestLease is the fewest units that are worth it.
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

// now is in ns.
func (l *Leases) now() int64 { return int64(time.Since(l.start)) }

func (l *Leases) hash(a *Ask) uint64 {
	return (maphash.String(l.seed, a.Key) ^ a.Limit.salt) * 0x9e3779b97f4a7c15
}

// canLease tells whether a lease may serve r.
func canLease(r *Request) bool {
	a := &r.Asks[0]
	return len(r.Asks) == 1 && a.Units() > 0 && a.Limit.lease > 0 && a.Penalty == nil && r.At.IsZero() && len(a.Key) <= longestRemembered
}

// isHot notes that something was asked for that no lease serves, and tells whether
// that happened often of late. Keys that fall on the same place add up, so that one
// may be taken for hot that is not, which costs nothing but the units it leases.
func (l *Leases) isHot(hash uint64, now int64) bool {
	const count = 1<<32 - 1
	h := &l.heat[hash>>32%heatRoom]
	tick := uint64(now/int64(heatEvery)) << 32
	was := h.Load()
	next := tick + 1
	if was&^count == tick {
		next = was + 1
	}
	h.CompareAndSwap(was, next) // one that is missed in a crowd does not matter
	return next&count >= hotAsks
}

// find is the lease of a's key under a's Limit.ID; nil: there is none. It may be of a
// limit with other numbers, see serves.
func (l *Leases) find(hash uint64, a *Ask) *lease {
	set := l.table.set(hash)
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == hash && e.key == a.Key && e.limit.id == a.Limit.id {
			return e
		}
	}
	return nil
}

// Take implements Store.
func (l *Leases) Take(ctx context.Context, r *Request, out []Decision) (Decision, error) {
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
		if hot && err == nil && d.Allowed && d.By == ByStore {
			l.open(hash, a, d.Remaining, now)
		}
		return d, err
	}
	if !e.serves(a.Limit) {
		return l.Store.Take(ctx, r, out)
	}
	var d Decision
	if l.serve(e, r, now, &d) {
		d.alone(out)
		return d, nil
	}
	e.asked.Add(a.Units())
	if e.refuse(a, now, &d) {
		d.alone(out)
		return d, nil
	}
	if e.busy.CompareAndSwap(false, true) {
		var err error
		k := l.want(e, a.Units(), now)
		if k > 0 {
			d, err = l.fillUp(ctx, e, r, out, k, now)
		}
		e.busy.Store(false)
		if err != nil || d.Allowed || k > 0 && d.By != ByStore {
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

// alone puts the decision of an only ask into out, which may be nil.
func (d *Decision) alone(out []Decision) {
	if out != nil {
		out[0] = *d
	}
}

// TakeBatch implements BatchTaker. It serves what leases hold, and has nothing charged
// along.
func (l *Leases) TakeBatch(ctx context.Context, rs []Request, answers []Answer) {
	l.init()
	now := l.now()
	var asked []int // places of what no lease serves
	for i := range rs {
		a := &answers[i]
		if canLease(&rs[i]) {
			ask := &rs[i].Asks[0]
			if e := l.find(l.hash(ask), ask); e != nil && e.serves(ask.Limit) {
				a.Decision = Decision{}
				if l.serve(e, &rs[i], now, &a.Decision) || e.refuse(ask, now, &a.Decision) {
					a.Err = nil
					a.Decision.alone(a.Each)
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
	some, theirs := make([]Request, len(asked)), make([]Answer, len(asked))
	for j, i := range asked {
		some[j], theirs[j] = rs[i], answers[i]
	}
	powers{l.Store}.takeBatch(ctx, some, theirs)
	for j, i := range asked {
		answers[i] = theirs[j]
	}
}

// Refund implements Refunder.
func (l *Leases) Refund(ctx context.Context, r *Request) error {
	err := powers{l.Store}.refund(ctx, r)
	l.init()
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit.lease > 0 {
			if e := l.find(l.hash(a), a); e != nil {
				e.waits.Store(nil)
			}
		}
	}
	return err
}

// Reset implements Resetter. What was leased in a fixed window before is void.
func (l *Leases) Reset(ctx context.Context, r *Request) error {
	err := powers{l.Store}.reset(ctx, r)
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit != nil {
			l.Forget(a.Key, a.Limit)
		}
	}
	return err
}

// Forget drops what is known of a key, as when it was reset without this Leases. What
// is leased of it in a fixed window is void; of a bucket it may stay.
func (l *Leases) Forget(key string, limits ...*Limit) {
	l.init()
	for _, limit := range limits {
		if limit.lease == 0 {
			continue
		}
		a := &Ask{Key: key, Limit: limit}
		e := l.find(l.hash(a), a)
		if e == nil {
			continue
		}
		e.waits.Store(nil)
		if limit.endsWithWindow() {
			e.resets.Add(1)
			l.end(e, e.grant.Load(), true)
		}
	}
}

// Violate implements Violator.
func (l *Leases) Violate(ctx context.Context, r *Request) (Decision, error) {
	return powers{l.Store}.violate(ctx, r)
}

// Record implements Recorder.
func (l *Leases) Record(ctx context.Context, key string, p *Penalty) (Record, error) {
	return powers{l.Store}.record(ctx, key, p)
}

// Inspect implements Inspector.
func (l *Leases) Inspect(ctx context.Context, key string, limits []*Limit) ([]Stored, error) {
	return powers{l.Store}.inspect(ctx, key, limits)
}

// Banned implements Recorder.
func (l *Leases) Banned(ctx context.Context, yield func(Record) bool) error {
	return powers{l.Store}.banned(ctx, yield)
}

// Listen implements Teller.
func (l *Leases) Listen(ctx context.Context, e Ear) error { return powers{l.Store}.listen(ctx, e) }
