package fleet

import (
	"context"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// DefaultMaxDenials is how many refusals a Denials remembers if its MaxKeys is 0.
const DefaultMaxDenials = 100_000

// Denials is a Store that remembers refusals of its Store, and refuses the same request without
// asking again, until the Store could answer otherwise. It never admits a request that its Store
// would refuse. It may refuse for longer than the Store, but never beyond the RetryAfter that it
// returned: after a refund or reset by another instance, and after the Store has lost its counts or
// its clock has changed. docs/decisions/0008-remembered-denials.md has each case. A running ban is
// remembered for every request under its penalty.
//
// It remembers only while its Store is a connected Notifier. Under a penalty it remembers only
// bans, not refusals that count as violations, because the Store has to count those. It does not
// remember Busy refusals, because holds may be settled at any time. It passes on requests with an
// instant, with a cost that never fits, with more than 16 asks, or with a key of more than 256
// bytes.
//
// Store must be given. The fields must not be changed once it is in use, and it must not be
// copied. It may be used from many goroutines at once.
type Denials struct {
	// Store decides.
	Store stint.Store
	// MaxKeys is how many refusals are remembered, and as many bans. When it is full, a new
	// one replaces one of eight old ones, which costs a call later. 0: DefaultMaxDenials.
	MaxKeys int

	once     sync.Once
	seed     maphash.Seed
	start    time.Time
	close    context.CancelFunc
	mu       sync.Mutex
	closed   bool
	epochs   atomic.Uint64 // epochs that have begun
	stripes  []stripe
	requests cache[denial]
	bans     cache[ban]
	answered [16]counter // by memory

	_     [64]byte      // the next fields are read by each request and hardly ever written
	epoch atomic.Uint64 // of all remembered refusals; 0: the Notifier is not connected, so there are none
	_     [64]byte
}

type stripe struct{ invalidated atomic.Uint64 }

// counter is padded to a cache line.
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
		var ctx context.Context
		ctx, d.close = context.WithCancel(context.Background())
		if n, ok := stint.As[Notifier](d.Store); ok {
			go func() {
				_ = n.Notify(ctx, Listener{Connected: d.connected, Invalidated: d.invalidated})
				d.connected(false)
			}()
		}
	})
}

// Close stops remembering. It does not close the Store.
func (d *Denials) Close() {
	d.init()
	d.close()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.connected(false)
}

func (d *Denials) now() int64 { return int64(time.Since(d.start)) }

func (d *Denials) connected(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !yes || d.closed {
		d.epoch.Store(0)
		return
	}
	d.epoch.Store(d.epochs.Add(1))
}

func (d *Denials) invalidated(key string) {
	if key == "" {
		d.ForgetAll()
		return
	}
	d.stripe(d.hash(key)).invalidated.Add(1)
}

// Forget drops the refusals and bans of a key. Call it after the key was refunded or reset without
// this Denials.
func (d *Denials) Forget(key string) {
	d.init()
	d.invalidated(key)
}

// ForgetAll drops everything that is remembered. Call it after limits have changed.
func (d *Denials) ForgetAll() {
	d.init()
	if now := d.epoch.Load(); now != 0 {
		d.epoch.CompareAndSwap(now, d.epochs.Add(1))
	}
}

// Remembered returns how many requests were answered without the Store.
func (d *Denials) Remembered() int64 {
	var n int64
	for i := range d.answered {
		n += d.answered[i].n.Load()
	}
	return n
}

// Connected reports whether the Store sends notifications of invalidations now. Only then
// are refusals remembered.
func (d *Denials) Connected() bool {
	d.init()
	return d.epoch.Load() != 0
}

func (d *Denials) remembered() { d.answered[rand.Uint32()%uint32(len(d.answered))].n.Add(1) }

func (d *Denials) hash(key string) uint64 { return maphash.String(d.seed, key) }

func (d *Denials) stripe(hash uint64) *stripe { return &d.stripes[hash&uint64(len(d.stripes)-1)] }

// moment is when a request was sent, with the invalidations until then.
type moment struct {
	at          int64
	epoch       uint64
	stripe      [mostRemembered]*stripe // of each ask's key
	invalidated [mostRemembered]uint64
}

// begin notes the moment; false: the answer cannot be remembered. Invalidations are read before
// the clock, and both before the request is sent.
func (d *Denials) begin(m *moment, r *stint.Request) bool {
	if m.epoch = d.epoch.Load(); m.epoch == 0 || len(r.Asks) > mostRemembered {
		return false
	}
	for i := range r.Asks {
		if len(r.Asks[i].Key) > longestRemembered {
			return false
		}
		m.stripe[i] = d.stripe(d.hash(r.Asks[i].Key))
		m.invalidated[i] = m.stripe[i].invalidated.Load()
	}
	m.at = d.now()
	return true
}

type mark struct {
	epoch       uint64
	stripe      *stripe
	invalidated uint64
}

func (m *moment) mark(i int) mark { return mark{m.epoch, m.stripe[i], m.invalidated[i]} }

func (m *mark) holds(epoch uint64) bool {
	return m.epoch == epoch && m.stripe.invalidated.Load() == m.invalidated
}

// Take implements stint.Store.
func (d *Denials) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return d.takeAhead(ctx, r, 0, out)
}

func (d *Denials) takeAhead(ctx context.Context, r *stint.Request, ahead int64, out []stint.Decision) (stint.Decision, error) {
	if !r.At.IsZero() {
		return takeAhead(ctx, d.Store, r, ahead, out)
	}
	d.init()
	if answer, ok := d.recall(r, out); ok {
		return answer, nil
	}
	var m moment
	if !d.begin(&m, r) {
		return takeAhead(ctx, d.Store, r, ahead, out)
	}
	each := out
	if each == nil && len(r.Asks) > 1 {
		each = make([]stint.Decision, len(r.Asks))
	}
	answer, err := takeAhead(ctx, d.Store, r, ahead, each)
	if err == nil {
		d.learn(&m, r, &answer, each)
	}
	return answer, err
}

// TakeBatch implements stint.BatchTaker.
func (d *Denials) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	if len(rs) == 0 || !rs[0].At.IsZero() {
		stint.TakeBatch(ctx, d.Store, rs, answers)
		return
	}
	d.init()
	var asked []int // indices of requests that are not remembered
	for i := range rs {
		a := &answers[i]
		var ok bool
		if a.Decision, ok = d.recall(&rs[i], a.Each); ok {
			a.Err = nil
			continue
		}
		if a.Each == nil && len(rs[i].Asks) > 1 {
			a.Each = make([]stint.Decision, len(rs[i].Asks))
		}
		asked = append(asked, i)
	}
	if len(asked) == 0 {
		return
	}
	moments := make([]moment, len(asked))
	for j, i := range asked {
		if !d.begin(&moments[j], &rs[i]) {
			moments[j].epoch = 0
		}
	}
	takeSome(asked, rs, answers, func(rs []stint.Request, answers []stint.Answer) { stint.TakeBatch(ctx, d.Store, rs, answers) })
	for j, i := range asked {
		if a := &answers[i]; a.Err == nil && moments[j].epoch != 0 {
			d.learn(&moments[j], &rs[i], &a.Decision, a.Each)
		}
	}
}

// Refund implements stint.Refunder.
func (d *Denials) Refund(ctx context.Context, r *stint.Request) error {
	err := stint.Refund(ctx, d.Store, r)
	d.forget(r)
	return err
}

// Reset implements stint.Resetter.
func (d *Denials) Reset(ctx context.Context, r *stint.Request) error {
	err := stint.Reset(ctx, d.Store, r)
	d.forget(r)
	return err
}

// forget must be called after the Store was called, even if that failed.
func (d *Denials) forget(r *stint.Request) {
	for i := range r.Asks {
		d.Forget(r.Asks[i].Key)
	}
}

// Violate implements stint.Violator. A remembered ban answers if the Store could not answer
// with another one.
func (d *Denials) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	if !r.At.IsZero() {
		return stint.Violate(ctx, d.Store, r)
	}
	d.init()
	if epoch := d.epoch.Load(); epoch != 0 && !mayFaceBans(r) {
		if b, ok := d.recallBan(r, epoch); ok {
			d.remembered()
			return b, nil
		}
	}
	var m moment
	begun := d.begin(&m, r)
	answer, err := stint.Violate(ctx, d.Store, r)
	if begun && err == nil && answer.By == stint.ByStore && answer.Outcome == stint.Banned {
		d.learnBan(&m, r, &answer)
	}
	return answer, err
}

// Unwrap returns the Store.
func (d *Denials) Unwrap() stint.Store { return d.Store }

// KeepsDeadline implements DeadlineKeeper. It reports whether the Store is one.
func (d *Denials) KeepsDeadline() bool { return keepsDeadline(d.Store) }

// left is the rest at now of a wait that was answered at came, both in ns, rounded up to µs as
// stores do.
func left(wait time.Duration, came, now int64) time.Duration {
	rest := wait - time.Duration(now-came)
	if rest <= 0 {
		return 0
	}
	return (rest + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

// leftOf is left for a wait that may be Never.
func leftOf(wait time.Duration, came, now int64) time.Duration {
	if wait == stint.Never {
		return stint.Never
	}
	return left(wait, came, now)
}

// stands is until when the answer to a request sent at an instant is valid: 1 µs less than the
// wait, because the store's clock may have been ahead of its reading.
func stands(sent int64, wait time.Duration) int64 {
	if wait > 1<<62 {
		wait = 1 << 62
	}
	return sent + int64(wait-time.Microsecond)
}
