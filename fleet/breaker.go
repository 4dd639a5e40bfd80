package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker configures the circuit breaker of a Fallback: when to stop asking the Store, and
// when to ask it again. The zero Breaker has good defaults. It must not be changed once in
// use.
//
// While the breaker is closed, every request asks the Store. After several calls have failed in a
// row, the Fallback sends its own probe. If the probe fails too, the breaker opens: no request asks
// the Store, only probes do, at growing intervals. The first probe that is answered in time makes
// the breaker half open; a few in a row close it.
//
// Concurrent failures count as one: a failure counts only if its call began after the last
// counted failure was noticed. A request that was not sent in time (ErrNotCharged with
// context.DeadlineExceeded), for example because too many waited before it, counts only if the
// Store has answered nothing since it began. So when the Store stops answering, the breaker opens
// after about Failures + 1 deadlines. A shorter stall does not open it, however many calls it
// delays.
type Breaker struct {
	// Failures is how many calls must fail in a row before the Store is probed. If the
	// probe fails too, the breaker opens. 0: 5. Negative: it never opens.
	Failures int
	// Percent also causes a probe: if this share of at least 20 calls in a second failed,
	// and Failures of them began one after another, even with answers in between. 0: 50.
	// Negative, or over 100: only failures in a row cause a probe.
	Percent int
	// Slow makes an answer that takes at least this long count as a failure. The answer is
	// still used. 0: only a missed deadline counts.
	Slow time.Duration
	// Wait is the time before the first probe of an open breaker. It doubles with every
	// probe that fails, up to MaxWait. Each wait is up to a fifth shorter or longer at
	// random, so that instances do not probe at the same time. 0: 100 ms, and 5 s.
	Wait, MaxWait time.Duration
	// Probes is how many probes in a row must be answered within the Deadline and Slow to
	// close the breaker. They are a tenth of Wait apart. 0: 3.
	Probes int
	// Changed is called at each change of state, from one goroutine at a time. why is the
	// error that opened the breaker, else nil. For a Partitioned Store, it is the state of all
	// servers together. Changed must not block. nil: nothing is called; see Fallback.Called.
	Changed func(to BreakerState, why error)
}

// BreakerState is the state of a Breaker.
type BreakerState uint32

const (
	Closed     BreakerState = iota // the Store is asked
	Open                           // the Store is not asked
	HalfOpen                       // only probes ask the Store, and it answers
	PartlyOpen                     // some of a Partitioned Store's servers are not asked
)

// String is "closed", "open", "half-open" or "partly open".
func (s BreakerState) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	case PartlyOpen:
		return "partly open"
	}
	return "unknown"
}

const (
	breakerFailures = 5
	breakerPercent  = 50
	breakerLeast    = 20 // calls in a second, for a percentage to mean anything
	breakerWait     = 100 * time.Millisecond
	breakerMaxWait  = 5 * time.Second
	breakerProbes   = 3
)

// breaker is the state of a Breaker. All times are by one clock that starts at 0.
type breaker struct {
	state   atomic.Uint32
	noticed atomic.Int64 // time of the last counted failure, ns
	heard   atomic.Int64 // time of the last answer in time to a request or to a charge of debts, ns
	inARow  atomic.Int64 // counted failures
	second  atomic.Int64 // the second of the next three fields
	calls   atomic.Int64
	failed  atomic.Int64
	apart   atomic.Int64 // counted failures
	probing atomic.Bool  // a probe is under way
	opening sync.Mutex
	ending  context.CancelFunc // ends the probes; nil: none is running
	closed  bool               // permanently
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (b *breaker) isClosed() bool { return BreakerState(b.state.Load()) == Closed }

func (b *breaker) answered(now time.Duration) {
	if b.inARow.Load() != 0 {
		b.inARow.Store(0)
	}
	b.startSecond(now)
	b.calls.Add(1)
	b.heard.Store(int64(now))
}

// failure notes a failed call, and reports whether to probe the store. Of concurrent calls, one
// counts: see Breaker.
func (b *breaker) failure(c *Breaker, began, ended time.Duration) (doubtful bool) {
	b.startSecond(ended)
	calls, failed := b.calls.Add(1), b.failed.Add(1)
	last := b.noticed.Load()
	if c.Failures < 0 || int64(began) < last || !b.noticed.CompareAndSwap(last, int64(ended)) {
		return false
	}
	inARow, apart := b.inARow.Add(1), b.apart.Add(1)
	least, percent := int64(or(c.Failures, breakerFailures)), int64(or(c.Percent, breakerPercent))
	return inARow >= least || apart >= least &&
		percent > 0 && calls >= breakerLeast && failed*100 >= percent*calls
}

// startSecond starts the counts of a second. Calls that race with it count in either second.
func (b *breaker) startSecond(now time.Duration) {
	second := int64(now/time.Second) + 1
	if was := b.second.Load(); was != second && b.second.CompareAndSwap(was, second) {
		b.forgive()
	}
}

func (b *breaker) forgive() {
	b.calls.Store(0)
	b.failed.Store(0)
	b.apart.Store(0)
}

// doubt probes the store, opens the breaker if that fails, and then probes until it closes.
func (b *breaker) doubt(c *Breaker, why error, probe prober, closed func()) {
	b.opening.Lock()
	defer b.opening.Unlock()
	if b.closed || b.ending != nil {
		return
	}
	var ctx context.Context
	ctx, b.ending = context.WithCancel(context.Background())
	go func() {
		if err := b.probe(ctx, probe, 0); err != nil {
			b.turn(ctx, c, Closed, Open, why)
			b.recover(ctx, c, probe)
		}
		if b.believe(ctx) {
			closed()
		}
	}()
}

// believe closes the breaker, unless ctx is done.
func (b *breaker) believe(ctx context.Context) bool {
	b.opening.Lock()
	defer b.opening.Unlock()
	if ctx.Err() != nil {
		return false
	}
	b.inARow.Store(0)
	b.forgive()
	b.ending()
	b.ending = nil
	return true
}

func (b *breaker) change(c *Breaker, to BreakerState, why error) {
	b.state.Store(uint32(to))
	if c.Changed != nil {
		c.Changed(to, why)
	}
}

// prober asks the store and waits as long as a request would, or for patience if that is longer.
type prober func(ctx context.Context, patience time.Duration) error

// probePatience is the least wait of a probe of an open breaker: a late answer ends a stall, too.
const probePatience = 100 * time.Millisecond

func (b *breaker) probe(ctx context.Context, probe prober, patience time.Duration) error {
	b.probing.Store(true)
	defer b.probing.Store(false)
	return probe(ctx, patience)
}

// yield lets probes go first: a thousand goroutines that decide without the store, and so never
// wait, could delay a probe's answer for seconds.
func (b *breaker) yield() {
	if b.probing.Load() || BreakerState(b.state.Load()) == HalfOpen {
		runtime.Gosched()
	}
}

// errLate is the error of a probe whose answer came too late for a request.
var errLate = errors.New("stint: the store answers too late")

func (b *breaker) recover(ctx context.Context, c *Breaker, probe prober) {
	least := or(c.Wait, breakerWait)
	wait, next := least, least
	answers, again := 0, false
	for {
		if !pause(ctx, jittered(next)) {
			return
		}
		err := b.probe(ctx, probe, probePatience)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLate) && !again: // as at the end of a stall
			again, next = true, 0
		case err != nil:
			answers, again = 0, false
			wait = min(2*wait, or(c.MaxWait, breakerMaxWait))
			next = wait
			b.turn(ctx, c, HalfOpen, Open, err)
		default:
			again = false
			wait, next = least, least/10
			b.turn(ctx, c, Open, HalfOpen, nil)
			if answers++; answers >= or(c.Probes, breakerProbes) {
				b.turn(ctx, c, HalfOpen, Closed, nil)
				return
			}
		}
	}
}

func (b *breaker) turn(ctx context.Context, c *Breaker, from, to BreakerState, why error) {
	b.opening.Lock()
	defer b.opening.Unlock()
	if ctx.Err() == nil && BreakerState(b.state.Load()) == from {
		b.change(c, to, why)
	}
}

// close ends probes. The breaker stays as it is.
func (b *breaker) close() {
	b.opening.Lock()
	defer b.opening.Unlock()
	b.closed = true
	if b.ending != nil {
		b.ending()
	}
}

// jittered is d, up to a fifth shorter or longer.
func jittered(d time.Duration) time.Duration {
	return d - d/5 + jitter(2*d/5+1)
}

// jitter is a random time below most. Tests replace it.
var jitter = rand.N[time.Duration]

// pause waits, and returns false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
