package stint

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker says when a Fallback stops asking its Store and how it finds out that the
// Store decides again. The zero Breaker is good; it must not be changed once in
// use.
//
// While it is closed, every request asks the Store. When it opens, none does: that
// costs no connection, and a store in trouble is left alone. Then it is probed, by
// nobody's request, at intervals that grow; with the first answer it is half open,
// and after a few in a row, and once what was spent meanwhile is charged, closed
// again.
type Breaker struct {
	// Failures is how many calls must fail one after another to open it. 0: 5.
	// Negative: it never opens.
	Failures int
	// Percent opens it, too, when so many of a second's calls failed, of at least
	// 20. 0: 50. Negative, or over 100: it does not.
	Percent int
	// Slow is the time from which on an answer counts as a failure, though it is
	// used. 0: only what misses the deadline does.
	Slow time.Duration
	// Wait is the time until the first probe; with every probe that fails it
	// doubles, up to MaxWait. Each is up to a fifth shorter or longer, so that a
	// fleet does not probe in step. 0: 100 ms, and 5 s.
	Wait, MaxWait time.Duration
	// Probes is how many must be answered in a row. 0: 3.
	Probes int
	// Changed is told of each change of state, from one goroutine at a time; why
	// is the error that opened it, else nil. It must not block. nil: nobody is; see
	// Fallback.Called.
	Changed func(to BreakerState, why error)
}

// BreakerState is the state of a Breaker.
type BreakerState uint32

const (
	Closed   BreakerState = iota // the Store is asked
	Open                         // the Store is not asked
	HalfOpen                     // only probes ask the Store, and it answers
)

// String is "closed", "open" or "half-open".
func (s BreakerState) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
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

// breaker is a Breaker at work.
type breaker struct {
	state   atomic.Uint32
	inARow  atomic.Int64 // failures
	second  atomic.Int64 // the one that calls and failed are of
	calls   atomic.Int64
	failed  atomic.Int64
	opening sync.Mutex
	closing context.CancelFunc // ends the probes; nil: none run
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

// answered notes a call that brought an answer, and tells whether it is to open.
// now is any clock in seconds.
func (b *breaker) answered(now int64) {
	if b.inARow.Load() != 0 {
		b.inARow.Store(0)
	}
	b.tally(now)
	b.calls.Add(1)
}

// failure notes a call that failed, and tells whether that opens the breaker.
func (b *breaker) failure(c *Breaker, now int64) bool {
	b.tally(now)
	calls, failed := b.calls.Add(1), b.failed.Add(1)
	inARow := b.inARow.Add(1)
	if c.Failures < 0 {
		return false
	}
	percent := int64(or(c.Percent, breakerPercent))
	return inARow >= int64(or(c.Failures, breakerFailures)) ||
		percent > 0 && calls >= breakerLeast && failed*100 >= percent*calls
}

// tally starts the counts of a second. Calls that race with that are counted in the
// one or the other, which does not matter.
func (b *breaker) tally(now int64) {
	if was := b.second.Load(); was != now && b.second.CompareAndSwap(was, now) {
		b.calls.Store(0)
		b.failed.Store(0)
	}
}

// open opens the breaker, unless it is, and has it closed by probes.
func (b *breaker) open(c *Breaker, why error, probe func(context.Context) error, repay func(context.Context)) {
	b.opening.Lock()
	defer b.opening.Unlock()
	if b.closed || !b.isClosed() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.closing = cancel
	b.change(c, Open, why)
	go b.probe(ctx, c, probe, repay)
}

func (b *breaker) change(c *Breaker, to BreakerState, why error) {
	b.state.Store(uint32(to))
	if c.Changed != nil {
		c.Changed(to, why)
	}
}

// probe asks now and then, and closes the breaker once it is answered.
func (b *breaker) probe(ctx context.Context, c *Breaker, probe func(context.Context) error, repay func(context.Context)) {
	least := or(c.Wait, breakerWait)
	wait, answers := least, 0
	for {
		if !pause(ctx, jittered(wait)) {
			return
		}
		err := probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			answers, wait = 0, min(2*wait, or(c.MaxWait, breakerMaxWait))
			b.turn(ctx, c, HalfOpen, Open, err)
			continue
		}
		wait = least
		b.turn(ctx, c, Open, HalfOpen, nil)
		if answers++; answers < or(c.Probes, breakerProbes) {
			continue
		}
		repay(ctx)
		b.inARow.Store(0)
		b.second.Store(0)
		b.turn(ctx, c, HalfOpen, Closed, nil)
		repay(ctx) // what was spent while the rest was repaid
		return
	}
}

// turn changes from one state to another, if it is in that one and probes run.
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
	if b.closing != nil {
		b.closing()
	}
}

// jittered is d, up to a fifth shorter or longer.
func jittered(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}

// pause waits, and tells whether ctx let it.
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
