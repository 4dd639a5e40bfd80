package stint

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/counts"
	"github.com/stintdev/stint/internal/logline"
	"github.com/stintdev/stint/internal/pause"
	"github.com/stintdev/stint/internal/spelling"
)

// Limiter decides requests: it checks them and passes them to a Store. The zero Limiter
// counts in a Memory of its own. A Limiter may be used from many goroutines at once and
// must not be copied once used.
//
// Its errors wrap ErrRequest if the request was malformed; other errors come from the
// Store and mean that nothing could be decided. A denial is not an error, except for Wait
// and WaitN, which return only an error.
//
// A request whose context has ended is not decided, even if it takes nothing: nothing is charged, no
// violation is counted, and the error wraps the context's and fleet.ErrNotCharged. Reservations still
// end then (see Reservation.Settle). For Refund, Reset and Pardon it depends on the Store: call them
// with context.WithoutCancel if the caller may have left.
type Limiter struct {
	// Store keeps the counts. It must not be changed once the Limiter is in
	// use. nil: a Memory of its own.
	Store Store
	// Instance limits how many requests pass this Limiter in all, whatever their keys,
	// limits and costs. Each takes one unit, counted in this process, before the Store
	// is asked; if the Store refuses, the unit goes back, unless it is a place in the
	// queue of a LeakyBucket. The shortest Ask.MaxDelay of a request applies to it. A
	// refusal is ByInstance and has this Limit, as has the answer to each ask. Requests that
	// take nothing, and those with an instant, do not count. A refund does not return its
	// unit. An Instance that is InFlight limits how many requests with a Hold run at once:
	// each holds its unit until its Reservation is settled. Other requests hold nothing, and
	// are refused while no unit is left. It must not be changed once the Limiter is in use.
	// nil: none.
	Instance *Limit
	// Observe is called after each decision, before the method returns: by Allow, AllowN,
	// Peek, Take, Violate, each attempt of Wait and WaitN, and once for each request of
	// TakeBatch. r is the request; an AllowN of 0 and a Peek have Ask.Peek, and a Violate
	// has one Ask without a Limit. a is the answer, or Err if nothing could be decided;
	// Each is nil unless the caller provided it. Requests that are malformed are not
	// observed, and neither are Refund, Reset and Pardon.
	//
	// It runs in the caller's goroutine, so it is called from many at once, must return
	// soon, and must not call this Limiter. It must not change r and a, and must not keep
	// them or their slices: they are reused. Keys may be kept. It costs no allocation.
	// Observe must not be changed once the Limiter is in use. nil: none.
	Observe func(ctx context.Context, r *Request, a *Answer)
	// ObserveHold is called when a hold has ended, and after each charge: with each
	// HoldSettle, HoldRelease and HoldCharge of a Reservation, of Charge and of Holds, and
	// its answer. If c.Err is nil, c.Found says whether there was a hold to settle, and
	// c.Charged how many units were charged. A settlement that is kept for later is
	// observed when the Store has answered, or when it is given up; then c.Err wraps
	// ErrHoldLost. The rules for Observe hold here, too. It may be called from a goroutine
	// of the Limiter.
	ObserveHold func(ctx context.Context, c *HoldCall)
	// OnError says how to decide when the Store does not, for asks whose own OnError is zero.
	// OnErrorAllow: they are allowed, also if the Store has no fleet.Fallback around it. The
	// OnError of a caller such as a Guard or a httplimit.Middleware comes before it:
	// docs/reliability.md has the order. Package server does not use it: its rules have
	// on_store_error. It must not be changed once the Limiter is in use.
	OnError OnError

	allowed  logline.Line // by OnError
	memory   Memory
	instance Memory    // the count of Instance
	of       *Limiter  // has the count of Instance; nil: l
	calls    sync.Pool // of *call
	keeper   keeper
	line     line // callers that wait
	paused   pause.Pauses[string]
	unnamed  unnamed
}

// NewLimiter returns a Limiter over a Store. If the Store is Networked, calls fail and wait
// as it does.
func NewLimiter(s Store) *Limiter { return &Limiter{Store: s} }

// Counts is the Store that l counts in: its Store, or its own Memory if that is nil. Functions such
// as Violate and Refund do for several asks what methods of l do for one.
func (l *Limiter) Counts() Store { return l.store() }

func (l *Limiter) store() Store {
	if l.Store == nil {
		return &l.memory
	}
	return l.Store
}

// inMemory is the Store if it is a Memory, which decides most requests of one ask faster
// than it takes to make a Request; nil while an Instance, an Observe or a pause needs the
// Request.
func (l *Limiter) inMemory() *Memory {
	if l.Instance != nil || l.Observe != nil || l.pauses().Any() {
		return nil
	}
	if l.Store == nil {
		return &l.memory
	}
	m, _ := l.Store.(*Memory)
	return m
}

// call is a request on its way to a Store. It is reused, because values that pass through
// an interface are on the heap, and a call should not allocate.
type call struct {
	request Request
	one     [1]Ask
	asks    []Ask // in one if there is one
	out     []Decision
	answer  Answer // for Limiter.Observe
}

func (l *Limiter) call() *call {
	c, _ := l.calls.Get().(*call)
	if c == nil {
		c = new(call)
		c.asks = c.one[:0]
	}
	return c
}

func (l *Limiter) done(c *call) {
	clear(c.asks)
	clear(c.out)
	c.request, c.answer, c.asks, c.out = Request{}, Answer{}, c.asks[:0], c.out[:0]
	l.calls.Put(c)
}

// observed calls Observe with c's request and its answer.
func (l *Limiter) observed(ctx context.Context, c *call, d *Decision, each []Decision, err error) {
	if l.Observe != nil {
		c.answer = Answer{Decision: *d, Each: each, Err: err}
		l.Observe(ctx, &c.request, &c.answer)
	}
}

// Allow takes one unit for key under limit, if that is allowed.
func (l *Limiter) Allow(ctx context.Context, key string, limit *Limit) (d Decision, err error) {
	l.unnamed.look(key, limit)
	if m := l.inMemory(); m != nil && ctx.Err() == nil && m.takeOne(key, limit, 1, counts.OwnClock, &d) {
		return d, nil
	}
	err = l.ask(ctx, key, limit, 1, &d)
	return d, err
}

// AllowN takes n units for key under limit, if that is allowed: all of them or
// none. 0 units are a peek.
func (l *Limiter) AllowN(ctx context.Context, key string, limit *Limit, n int64) (d Decision, err error) {
	l.unnamed.look(key, limit)
	if m := l.inMemory(); m != nil && ctx.Err() == nil && m.takeOne(key, limit, n, counts.OwnClock, &d) {
		return d, nil
	}
	err = l.ask(ctx, key, limit, n, &d)
	return d, err
}

// hasEnded is the error of a request whose context has ended; nil: it has not.
func hasEnded(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stint: %w: %w", errNotCharged, err)
	}
	return nil
}

// ask is Take for a request of one ask.
func (l *Limiter) ask(ctx context.Context, key string, limit *Limit, n int64, d *Decision) (err error) {
	c := l.call()
	defer l.done(c)
	c.asks = append(c.asks, Ask{Key: key, Limit: limit.orDefault(), Cost: n, Peek: n == 0})
	c.request.Asks = c.asks
	if err = c.request.check(); err != nil {
		return err
	}
	withOnError(c.asks, l.onErrorOf(ctx))
	*d, err = l.decide(ctx, &c.request, nil)
	l.observed(ctx, c, d, nil, err)
	return err
}

// Peek returns the Remaining, Held and ResetAfter of key under limit. It takes nothing, so it is
// allowed even for an exhausted key: compare Remaining with what you need. For exceptions, and
// for requests that check some limits and spend under others, see Ask.Peek.
func (l *Limiter) Peek(ctx context.Context, key string, limit *Limit) (Decision, error) {
	return l.AllowN(ctx, key, limit, 0)
}

// Take decides a request of several asks, each with its own limit and key. If out is not
// nil, it must have a place for each ask, and receives its answer as described at Store.
func (l *Limiter) Take(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	if err := r.check(); err != nil {
		return Decision{}, err
	}
	if out != nil && len(out) != len(r.Asks) {
		return Decision{}, fmt.Errorf("stint: %w: room for %s on %s", ErrRequest, spelling.Several(len(out), "decision"), spelling.Several(len(r.Asks), "ask"))
	}
	for i := range r.Asks {
		l.unnamed.look(r.Asks[i].Key, r.Asks[i].Limit)
	}
	if m := l.inMemory(); m != nil && ctx.Err() == nil {
		d, err := m.Take(ctx, r, out)
		if err != nil {
			return l.orAllow(ctx, r, out, err)
		}
		orPaused(&d, out)
		return d, nil
	}
	return l.takeCopy(ctx, r, out)
}

// takeCopy decides a copy of r, so that r and out may lie on the caller's stack.
func (l *Limiter) takeCopy(ctx context.Context, r *Request, out []Decision) (d Decision, err error) {
	c := l.call()
	defer l.done(c)
	c.asks = append(c.asks, r.Asks...)
	withOnError(c.asks, l.onErrorOf(ctx))
	c.request.Asks, c.request.Deadline = c.asks, r.Deadline
	c.request.Hold, c.request.HoldFor, c.request.asOf = r.Hold, r.HoldFor, r.asOf
	if !r.At.IsZero() {
		c.request.At = time.UnixMicro(r.At.UnixMicro()) // without the pointer in r.At
	}
	if out == nil {
		d, err = l.decide(ctx, &c.request, nil)
		l.observed(ctx, c, &d, nil, err)
		return d, err
	}
	c.out = append(c.out, out...)
	d, err = l.decide(ctx, &c.request, c.out)
	copy(out, c.out)
	l.observed(ctx, c, &d, c.out, err)
	return d, err
}

// decide is Take for a request that has been checked.
func (l *Limiter) decide(ctx context.Context, r *Request, out []Decision) (d Decision, err error) {
	if err = hasEnded(ctx); err != nil {
		return d, err
	}
	if d, ok := l.refusePaused(r, out); ok {
		return d, nil
	}
	if l.Instance != nil {
		d, err = l.takeHere(ctx, r, out)
	} else {
		d, err = l.takeThere(ctx, r, out)
	}
	if err != nil {
		l.abandon(r, err)
		return l.orAllow(ctx, r, out, err)
	}
	orPaused(&d, out)
	return d, nil
}

// takeThere is Take by the Store, unless the limits alone decide.
func (l *Limiter) takeThere(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	if d, ok := decideHere(r, out); ok {
		return d, nil
	}
	return l.store().Take(ctx, r, out)
}

// TakeBatch decides independent requests, in one round trip if the Store can: answers[i]
// answers rs[i], with an Err if rs[i] is malformed. All must have the same At. It panics if
// there are fewer answers than requests.
func (l *Limiter) TakeBatch(ctx context.Context, rs []Request, answers []Answer) {
	answers = answers[:len(rs)]
	good := 0
	for i := range rs {
		answers[i].Decision = Decision{}
		answers[i].Err = checkEach(&rs[i], &rs[0], answers[i].Each)
		if answers[i].Err == nil && l.unpaused(ctx, &rs[i], &answers[i]) {
			good++
		}
	}
	switch {
	case good == 0:
	case good == len(rs):
		l.takeGood(ctx, rs, answers)
	default:
		l.takeSome(ctx, rs, answers, good)
	}
}

func checkEach(r, first *Request, each []Decision) error {
	if !r.At.Equal(first.At) {
		return fmt.Errorf("stint: %w: its instant differs from that of the first request", ErrRequest)
	}
	if each != nil && len(each) != len(r.Asks) {
		return fmt.Errorf("stint: %w: room for %s on %s", ErrRequest, spelling.Several(len(each), "decision"), spelling.Several(len(r.Asks), "ask"))
	}
	return r.check()
}

// unpaused reports whether no pause refuses r; else a is the refusal.
func (l *Limiter) unpaused(ctx context.Context, r *Request, a *Answer) bool {
	d, isPaused := l.refusePaused(r, a.Each)
	if isPaused {
		a.Decision = d
		if l.Observe != nil {
			l.Observe(ctx, r, a)
		}
	}
	return !isPaused
}

// takeGood is TakeBatch for requests that have been checked.
func (l *Limiter) takeGood(ctx context.Context, rs []Request, answers []Answer) {
	rs = eachWithOnError(rs, l.onErrorOf(ctx))
	switch err := hasEnded(ctx); {
	case err != nil:
		for i := range answers {
			answers[i].Err = err
		}
	case l.Instance != nil:
		l.takeEachHere(ctx, rs, answers)
	default:
		TakeBatch(ctx, l.store(), rs, answers)
	}
	for i := range rs {
		if a := &answers[i]; a.Err != nil {
			l.abandon(&rs[i], a.Err)
			a.Decision, a.Err = l.orAllow(ctx, &rs[i], a.Each, a.Err)
		}
		orPaused(&answers[i].Decision, answers[i].Each)
		if l.Observe != nil {
			l.Observe(ctx, &rs[i], &answers[i])
		}
	}
}

// takeSome leaves out the requests that are malformed or paused.
func (l *Limiter) takeSome(ctx context.Context, rs []Request, answers []Answer, good int) {
	goodRs, goodAnswers := make([]Request, 0, good), make([]Answer, 0, good)
	undecided := func(a *Answer) bool { return a.Err == nil && a.Outcome == 0 }
	for i := range rs {
		if undecided(&answers[i]) {
			goodRs, goodAnswers = append(goodRs, rs[i]), append(goodAnswers, answers[i])
		}
	}
	l.takeGood(ctx, goodRs, goodAnswers)
	for i := range rs {
		if undecided(&answers[i]) {
			answers[i], goodAnswers = goodAnswers[0], goodAnswers[1:]
		}
	}
}

// Refund returns n of the units that d took, say because the request was cancelled. d is
// the decision that allowed it, about one limit: for a request with several asks, refund
// the Decision of each. The units go back at once to where they were taken (Decision.By); a
// decision ByPolicy took none. No more becomes available than an unused key has. The error wraps
// ErrRequest if d is not Allowed, and ErrUnsupported if the Store cannot refund.
//
// Do not refund units of a LeakyBucket whose delays callers wait out: a unit is a place in
// the queue, later requests keep their places, and a new one would leave together with one
// of them. If nobody waits out the delays, refund as for any other limit.
func (l *Limiter) Refund(ctx context.Context, d Decision, n int64) error {
	if !d.Allowed {
		return fmt.Errorf("stint: %w: a request that was not allowed took nothing to refund", ErrRequest)
	}
	r := Request{Asks: []Ask{{Key: d.Key, Limit: d.Limit, Cost: n, Peek: n == 0, By: d.By}}}
	if err := r.check(); err != nil {
		return err
	}
	err := Refund(ctx, l.store(), &r)
	l.lineOf().changed(d.Key, d.Limit)
	return err
}

// Reset makes key as if unused under the given limits. Bans stay: see Pardon. The error
// wraps ErrUnsupported if the Store cannot do it.
func (l *Limiter) Reset(ctx context.Context, key string, limits ...*Limit) error {
	r := Request{Asks: make([]Ask, 0, len(limits))}
	for _, limit := range limits {
		r.Asks = append(r.Asks, Ask{Key: key, Limit: limit.orDefault()})
	}
	if err := r.check(); err != nil {
		return err
	}
	err := Reset(ctx, l.store(), &r)
	for i := range r.Asks {
		l.lineOf().changed(key, r.Asks[i].Limit)
	}
	return err
}

// Pardon forgets the violations of key under p and lifts its ban. found says whether there was
// anything to forget: if not, key or p may be the wrong one. After an error, found is false, but the
// key may have been pardoned. The error wraps ErrUnsupported if the Store lacks Inspector or
// Resetter.
func (l *Limiter) Pardon(ctx context.Context, key string, p *Penalty) (found bool, err error) {
	before, err := l.Record(ctx, key, p)
	if errors.Is(err, ErrRequest) || errors.Is(err, ErrUnsupported) {
		return false, err
	}
	// The Store may have failed at Record and be back now, and layers around it forget in any
	// case.
	if err = errors.Join(err, Reset(ctx, l.store(), &Request{Asks: []Ask{{Key: key, Penalty: p}}})); err != nil {
		return false, err
	}
	return before.Violations > 0 || before.Bans > 0, nil
}

// Violate counts a violation of key under p that the caller has found, as if a limit had
// refused. The Outcome of the Decision is Limited, Warned or Banned; if key is banned, now
// or already, BanLeft, RetryAfter and Penalty are those of the ban. Limit is nil, and
// Remaining, Held and ResetAfter are 0. If there is no room to remember the violation, the
// Outcome is Limited. The error wraps ErrUnsupported if the Store cannot count violations.
func (l *Limiter) Violate(ctx context.Context, key string, p *Penalty) (Decision, error) {
	if err := checkPunished(key, p); err != nil {
		return Decision{}, err
	}
	c := l.call()
	defer l.done(c)
	c.asks = append(c.asks, Ask{Key: key, Penalty: p})
	c.request.Asks = c.asks
	d, err := Violate(ctx, l.store(), &c.request)
	l.observed(ctx, c, &d, nil, err)
	return d, err
}

func checkPunished(key string, p *Penalty) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if p == nil || p.id == "" {
		return fmt.Errorf("stint: %w: no penalty (make one with NewPenalty)", ErrRequest)
	}
	return nil
}

// Record returns the violations and bans of key under p, and changes nothing. The error
// wraps ErrUnsupported if the Store cannot do it.
func (l *Limiter) Record(ctx context.Context, key string, p *Penalty) (Record, error) {
	if err := checkPunished(key, p); err != nil {
		return Record{}, err
	}
	if s, ok := As[Inspector](l.store()); ok {
		return s.Record(ctx, key, p)
	}
	return Record{}, unsupported("record")
}

// Banned yields every banned key with the penalty's name, in no order. It may miss a ban
// that is imposed or lifted meanwhile. The Limiter may be used meanwhile. An error comes
// last, with a zero Record; then there may be more bans. It wraps ErrUnsupported if the
// Store cannot list bans.
func (l *Limiter) Banned(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		s, ok := As[Inspector](l.store())
		if !ok {
			yield(Record{}, unsupported("banned"))
			return
		}
		stopped := false
		err := s.Banned(ctx, func(r Record) bool {
			stopped = !yield(r, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Record{}, err)
		}
	}
}
