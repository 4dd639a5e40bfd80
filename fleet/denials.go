package stint

import (
	"context"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxDenials is how many refusals a Denials remembers where its MaxKeys is 0.
const DefaultMaxDenials = 100_000

// Denials is a Store that remembers what another one refused, and refuses the same
// again, without asking, until the other would say otherwise: a refusal with a
// RetryAfter of r, of a request that was sent at t, stands until t + r by this
// machine's monotonic clock, whatever the clock of the other says, since it was
// decided at t or later and what others take meanwhile only makes it last. The same
// request is one of the same keys, limits, costs, MaxDelays and penalties. A ban that runs is
// remembered, too, for every request that faces its penalty; but where the limits of a
// request, or a ban of another penalty of its own, may refuse for longer, the Store is
// asked once for each, to tell how long.
//
// It admits nothing that its Store would not. It refuses what its Store would admit
// only in these cases: for the time that a message takes, after another instance has
// refunded or forgotten something; where the Store has lost counts without a word
// (a FLUSHALL) or its clock has jumped; by as much as the clocks run apart while a
// refusal stands; and of a bucket that was charged under other numbers by the same ID,
// which may run dry sooner than the RetryAfter says. None lasts for longer than the
// RetryAfter.
//
// So it remembers only what it would hear the end of: its Store must be a Teller
// that hears. While that does not, or where it is none, every request is passed on,
// and so is a request with an instant, one of more than 16 asks, one with a cost
// that never fits, and one with a key of more than 256 bytes.
//
// Of a refusal that is remembered, RetryAfter and BanLeft are what is left of those
// that were told, counted from when they came: so who waits as long is not sent away
// again, unless something else came, and waits for too long by no more than that call
// took. Remaining is that of the last look; of an ask that was refused it is
// below the cost. ResetAfter is what is left of that of the last look, at least. The
// numbers of asks that would have allowed are those of the last look, too. A request
// that several asks refuse is looked at again when the first of them would allow.
//
// Violations: see denials_violations.go. Those that are remembered are counted in the
// Store in batches.
//
// Store must be given; the fields must not be changed once it is in use. It must not
// be copied. It may be used from many goroutines at once. It has the powers of its
// Store.
type Denials struct {
	// Store decides.
	Store Store
	// MaxKeys is how many refusals are remembered, as many bans, and as many keys
	// whose violations are counted. Beyond, a newcomer takes the place of one
	// among eight, which costs a call and nothing else. 0: DefaultMaxDenials.
	MaxKeys int

	once     sync.Once
	seed     maphash.Seed
	start    time.Time
	close    context.CancelFunc
	mu       sync.Mutex
	closed   bool
	epochs   atomic.Uint64 // so many have begun
	stripes  []stripe
	requests cache[denial]
	bans     cache[ban]
	tallies  cache[tally]
	answered [16]counter // by memory
	batches  batches

	_     [64]byte      // what follows is read by each request and hardly ever written
	epoch atomic.Uint64 // what is remembered is of this one; 0: nothing is, for it does not hear
	_     [64]byte
}

// stripe counts what was undone of the keys that fall on it.
type stripe struct{ undone atomic.Uint64 }

// counter is a part of a count that many cores add to.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

const (
	mostRemembered    = 16  // asks of a request
	longestRemembered = 256 // key, in bytes
)

func (d *Denials) init() {
	d.once.Do(func() {
		room := or(d.MaxKeys, DefaultMaxDenials)
		d.seed = maphash.MakeSeed()
		d.start = time.Now()
		d.stripes = make([]stripe, 1<<bits.Len(uint(max(room/4, 1))))
		d.requests.make(room)
		d.bans.make(room)
		d.tallies.make(room)
		var ctx context.Context
		ctx, d.close = context.WithCancel(context.Background())
		if _, ok := d.Store.(Teller); ok {
			go func() {
				_ = powers{d.Store}.listen(ctx, Ear{Hears: d.hears, Undone: d.undone})
				d.hears(false)
			}()
		}
	})
}

// Close stops remembering, and counts the violations that are not yet. It does not
// close the Store.
func (d *Denials) Close() {
	d.init()
	d.close()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.hears(false)
	d.commitAll()
}

// now is in ns.
func (d *Denials) now() int64 { return int64(time.Since(d.start)) }

func (d *Denials) hears(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !yes || d.closed {
		d.epoch.Store(0)
		return
	}
	d.epoch.Store(d.epochs.Add(1))
}

func (d *Denials) undone(key string) {
	if key == "" {
		d.ForgetAll()
		return
	}
	d.stripe(d.hash(key)).undone.Add(1)
}

// Forget drops what is remembered of a key, as when something of it was undone
// without this Denials.
func (d *Denials) Forget(key string) {
	d.init()
	d.undone(key)
}

// ForgetAll drops all that is remembered, as when limits have changed.
func (d *Denials) ForgetAll() {
	d.init()
	if now := d.epoch.Load(); now != 0 {
		d.epoch.CompareAndSwap(now, d.epochs.Add(1))
	}
}

// Remembered is how many requests were answered without the Store.
func (d *Denials) Remembered() int64 {
	var n int64
	for i := range d.answered {
		n += d.answered[i].n.Load()
	}
	return n
}

// Hears tells whether something can be remembered now.
func (d *Denials) Hears() bool {
	d.init()
	return d.epoch.Load() != 0
}

func (d *Denials) remembered() { d.answered[rand.Uint32()%uint32(len(d.answered))].n.Add(1) }

func (d *Denials) hash(key string) uint64 { return maphash.String(d.seed, key) }

func (d *Denials) stripe(hash uint64) *stripe { return &d.stripes[hash&uint64(len(d.stripes)-1)] }

// moment is when a request was sent, and what had been undone by then.
type moment struct {
	at     int64
	epoch  uint64
	stripe [mostRemembered]*stripe // of each ask's key
	undone [mostRemembered]uint64
}

// begin notes the moment; false: what is answered cannot be remembered. What was
// heard is noted before the clock, and both before the request is sent.
func (d *Denials) begin(m *moment, r *Request) bool {
	if m.epoch = d.epoch.Load(); m.epoch == 0 || len(r.Asks) > mostRemembered {
		return false
	}
	for i := range r.Asks {
		if len(r.Asks[i].Key) > longestRemembered {
			return false
		}
		m.stripe[i] = d.stripe(d.hash(r.Asks[i].Key))
		m.undone[i] = m.stripe[i].undone.Load()
	}
	m.at = d.now()
	return true
}

// mark is what has to be as it was for something remembered to hold.
type mark struct {
	epoch  uint64
	stripe *stripe
	undone uint64
}

func (m *moment) mark(i int) mark { return mark{m.epoch, m.stripe[i], m.undone[i]} }

func (m *mark) holds(epoch uint64) bool {
	return m.epoch == epoch && m.stripe.undone.Load() == m.undone
}

// Take implements Store.
func (d *Denials) Take(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	if !r.At.IsZero() {
		return d.Store.Take(ctx, r, out)
	}
	d.init()
	if answer, ok := d.recall(r, out); ok {
		return answer, nil
	}
	var m moment
	if !d.begin(&m, r) {
		return d.Store.Take(ctx, r, out)
	}
	each := out
	if each == nil && len(r.Asks) > 1 {
		each = make([]Decision, len(r.Asks))
	}
	answer, err := d.Store.Take(ctx, r, each)
	if err == nil {
		d.learn(&m, r, &answer, each)
	}
	return answer, err
}

// TakeBatch implements BatchTaker.
func (d *Denials) TakeBatch(ctx context.Context, rs []Request, answers []Answer) {
	if len(rs) == 0 || !rs[0].At.IsZero() {
		powers{d.Store}.takeBatch(ctx, rs, answers)
		return
	}
	d.init()
	var asked []int // places of what is not remembered
	for i := range rs {
		a := &answers[i]
		var ok bool
		if a.Decision, ok = d.recall(&rs[i], a.Each); ok {
			a.Err = nil
			continue
		}
		if a.Each == nil && len(rs[i].Asks) > 1 {
			a.Each = make([]Decision, len(rs[i].Asks))
		}
		asked = append(asked, i)
	}
	if len(asked) == 0 {
		return
	}
	moments := make([]moment, len(asked))
	some, theirs := make([]Request, len(asked)), make([]Answer, len(asked))
	for j, i := range asked {
		some[j], theirs[j] = rs[i], answers[i]
		if !d.begin(&moments[j], &some[j]) {
			moments[j].epoch = 0
		}
	}
	powers{d.Store}.takeBatch(ctx, some, theirs)
	for j, i := range asked {
		answers[i] = theirs[j]
		if a := &answers[i]; a.Err == nil && moments[j].epoch != 0 {
			d.learn(&moments[j], &rs[i], &a.Decision, a.Each)
		}
	}
}

// Refund implements Refunder.
func (d *Denials) Refund(ctx context.Context, r *Request) error {
	err := powers{d.Store}.refund(ctx, r)
	d.forget(r)
	return err
}

// Reset implements Resetter.
func (d *Denials) Reset(ctx context.Context, r *Request) error {
	err := powers{d.Store}.reset(ctx, r)
	d.forget(r)
	return err
}

// forget drops what is remembered of r's keys, once the Store has acted, which it may
// have done also where it failed.
func (d *Denials) forget(r *Request) {
	for i := range r.Asks {
		d.Forget(r.Asks[i].Key)
	}
}

// Record implements Recorder.
func (d *Denials) Record(ctx context.Context, key string, p *Penalty) (Record, error) {
	return powers{d.Store}.record(ctx, key, p)
}

// Inspect implements Inspector.
func (d *Denials) Inspect(ctx context.Context, key string, limits []*Limit) ([]Stored, error) {
	return powers{d.Store}.inspect(ctx, key, limits)
}

// Banned implements Recorder.
func (d *Denials) Banned(ctx context.Context, yield func(Record) bool) error {
	return powers{d.Store}.banned(ctx, yield)
}

// KeepsDeadline implements DeadlineKeeper: it is if its Store is.
func (d *Denials) KeepsDeadline() bool { return powers{d.Store}.punctual() }

// Listen implements Teller.
func (d *Denials) Listen(ctx context.Context, e Ear) error { return powers{d.Store}.listen(ctx, e) }

// sameLimit tells whether a refusal under a is one under b.
func sameLimit(a, b *Limit) bool {
	return a == b || a != nil && b != nil && a.id == b.id && a.plan == b.plan
}

func samePenalty(a, b *Penalty) bool {
	return a == b || a != nil && b != nil && a.id == b.id && a.plan == b.plan
}

// left is what is left at now of a wait that was told at an instant, both in ns;
// rounded up to µs, as stores tell it.
func left(wait time.Duration, told, now int64) time.Duration {
	rest := wait - time.Duration(now-told)
	if rest <= 0 {
		return 0
	}
	return (rest + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

// leftOf is left, of a wait that may be Never.
func leftOf(wait time.Duration, told, now int64) time.Duration {
	if wait == Never {
		return Never
	}
	return left(wait, told, now)
}

// stands is until when what was told with a wait holds, of a request sent at an
// instant: a µs sooner than the wait is over, for the store's clock may have been
// that much ahead of what it reads.
func stands(sent int64, wait time.Duration) int64 {
	if wait > 1<<62 {
		wait = 1 << 62
	}
	return sent + int64(wait-time.Microsecond)
}

// kept is a copy of a key, which may be a piece of something large.
func kept(key string) string { return strings.Clone(key) }
