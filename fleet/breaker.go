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

// Breaker says when a Fallback stops asking its Store and how it finds out that the
// Store decides again. The zero Breaker is good; it must not be changed once in
// use.
//
// While it is closed, every request asks the Store. When calls fail, one after another,
// the Store is probed, by nobody's request, and if the probe fails, too, the breaker
// opens: no request asks the Store, which costs no connection, and a store in trouble
// is left alone. It is then probed at intervals that grow; with the first answer that
// comes in time it is half open, and after a few in a row closed again.
//
// Calls that are under way at the same time fail as one: a failure counts only if its
// call began after the last one that counts was noticed. So callers wait in vain for a
// store that does not answer for one Deadline more than Failures says; and a stall that
// is over before does not open the breaker, however many callers it had.
type Breaker struct {
	// Failures is how many calls must fail one after another, so that the store is
	// probed, and if that fails, too, it opens. 0: 5. Negative: it never opens.
	Failures int
	// Percent is how many of a second's calls must fail, of at least 20, for the
	// same, if Failures of them were one after another, whatever was answered
	// between. 0: 50. Negative, or over 100: it does not.
	Percent int
	// Slow is the time from which on an answer counts as a failure, though it is
	// used. 0: only what misses the deadline does.
	Slow time.Duration
	// Wait is the time until the first probe; with every probe that fails it
	// doubles, up to MaxWait. Each is up to a fifth shorter or longer, so that a
	// fleet does not probe in step. 0: 100 ms, and 5 s.
	Wait, MaxWait time.Duration
	// Probes is how many must be answered in a row, within the Deadline and Slow. They
	// come a tenth of Wait apart. 0: 3.
	Probes int
	// Changed is called at each change of state, by one goroutine at a time; why
	// is the error that opened it, else nil. Of a Store that is Partitioned, it is called with the
	// state of all parts together. It must not block. nil: nobody is; see
	// Fallback.Called.
	Changed func(to BreakerState, why error)
}

// BreakerState is the state of a Breaker.
type BreakerState uint32

const (
	Closed     BreakerState = iota // the Store is asked
	Open                           // the Store is not asked
	HalfOpen                       // only probes ask the Store, and it answers
	PartlyOpen                     // some of the Store's servers are not asked, of a Store that is Partitioned
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

// breaker is a Breaker at work. Times are of one clock that begins with 0.
type breaker struct {
	state   atomic.Uint32
	noticed atomic.Int64 // when the last failure that counts was, ns
	inARow  atomic.Int64 // failures that count
	second  atomic.Int64 // the one that the next three are of
	calls   atomic.Int64
	failed  atomic.Int64
	apart   atomic.Int64 // failures that count
	probing atomic.Bool  // a probe is under way
	opening sync.Mutex
	ending  context.CancelFunc // ends the probes; nil: none run
	closed  bool               // for good
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
}

// failure notes a call that failed, and reports whether the store is to be doubted. Of calls
// under way at the same time, one counts: see Breaker.
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

// startSecond starts the counts of a second. Calls that race with it count in either.
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

// believe ends the doubt, unless ctx is done.
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

// prober asks the store and waits as long as a request would, or patience if that is longer.
type prober func(ctx context.Context, patience time.Duration) error

// probePatience is the least wait of a probe of an open breaker: a late answer ends a stall, too.
const probePatience = 100 * time.Millisecond

func (b *breaker) probe(ctx context.Context, probe prober, patience time.Duration) error {
	b.probing.Store(true)
	defer b.probing.Store(false)
	return probe(ctx, patience)
}

// yield lets probes go first: a thousand goroutines that decide without the store, and so never
// wait, could hold up a probe's answer for seconds.
func (b *breaker) yield() {
	if b.probing.Load() || BreakerState(b.state.Load()) == HalfOpen {
		runtime.Gosched()
	}
}

// errLate is that of an answer to a probe for which no request would have waited.
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
	return d - d/5 + rand.N(2*d/5+1)
}

// pause waits, and reports whether ctx let it.
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
