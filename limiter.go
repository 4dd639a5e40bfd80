package stint

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/counts"
)

// Limiter decides requests: it checks them and passes them to a Store. The zero Limiter
// counts in a Memory of its own. A Limiter may be used from many goroutines at once and
// must not be copied once used.
//
// Its errors wrap ErrRequest where the request was malformed; other errors come
// from the Store and mean that nothing could be decided. A denial is never an
// error, but for Wait, which has nothing else to return.
type Limiter struct {
	// Store keeps the counts. It must not be changed once the Limiter is in
	// use. nil: a Memory of its own.
	Store Store
	// Instance limits how many requests pass this Limiter in all, whatever their keys,
	// limits and costs: each takes one unit, counted in this process. It is asked before
	// the Store, and a request that the Store then refuses gives its unit back, but for a
	// place in the queue of a LeakyBucket. It goes by the shortest Ask.MaxDelay of a
	// request. A refusal is ByInstance and has this Limit, also for each ask. Requests that
	// take nothing, and those with an instant, do not count; a refund does not count
	// back. It must not be changed once the Limiter is in use. nil: none.
	Instance *Limit

	memory   Memory
	instance Memory    // the count of Instance
	of       *Limiter  // has the count of Instance; nil: l
	calls    sync.Pool // of *call
}

// NewLimiter is a Limiter over a Store. Over a Store that is Networked, it fails and
// waits as that does: see WithFallback.
func NewLimiter(s Store) *Limiter { return &Limiter{Store: s} }

// WithFallback returns a Limiter that answers in time whatever the network does: where
// l's Store is Networked, another one over the same counts, those of Instance among
// them; else l itself.
func (l *Limiter) WithFallback() *Limiter {
	s, ok := l.Store.(Networked)
	if !ok {
		return l
	}
	return &Limiter{Store: s.WithFallback(), Instance: l.Instance, of: l}
}

func (l *Limiter) store() Store {
	if l.Store == nil {
		return &l.memory
	}
	return l.Store
}

// inMemory is the Store if it is a Memory, which decides most requests of one ask in
// less time than it takes to make them.
func (l *Limiter) inMemory() *Memory {
	if l.Instance != nil {
		return nil
	}
	if l.Store == nil {
		return &l.memory
	}
	m, _ := l.Store.(*Memory)
	return m
}

// call is a request on its way to a Store, reused so that asking costs no allocation:
// what goes through an interface has to lie on the heap.
type call struct {
	request Request
	one     [1]Ask
	asks    []Ask // in one while there is no more
	out     []Decision
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
	c.request, c.asks, c.out = Request{}, c.asks[:0], c.out[:0]
	l.calls.Put(c)
}

// Allow takes one unit for key under limit, if that is allowed.
func (l *Limiter) Allow(ctx context.Context, key string, limit *Limit) (d Decision, err error) {
	if m := l.inMemory(); m != nil && m.takeOne(key, limit, 1, counts.OwnClock, &d) {
		return d, nil
	}
	err = l.ask(ctx, key, limit, 1, &d)
	return d, err
}

// AllowN takes n units for key under limit, if that is allowed: all of them or
// none. 0 units are a peek.
func (l *Limiter) AllowN(ctx context.Context, key string, limit *Limit, n int64) (d Decision, err error) {
	if m := l.inMemory(); m != nil && m.takeOne(key, limit, n, counts.OwnClock, &d) {
		return d, nil
	}
	err = l.ask(ctx, key, limit, n, &d)
	return d, err
}

// ask is Take for a request of one ask.
func (l *Limiter) ask(ctx context.Context, key string, limit *Limit, n int64, d *Decision) (err error) {
	c := l.call()
	defer l.done(c)
	c.asks = append(c.asks, Ask{Key: key, Limit: limit, Cost: n, Peek: n == 0})
	c.request.Asks = c.asks
	if err = c.request.Check(); err != nil {
		return err
	}
	*d, err = l.decide(ctx, &c.request, nil)
	return err
}

// Peek tells how key stands under limit and takes nothing: Remaining and
// ResetAfter are as Allow would find them. It is a request with Ask.Peek, which even
// an exhausted key allows.
func (l *Limiter) Peek(ctx context.Context, key string, limit *Limit) (Decision, error) {
	return l.AllowN(ctx, key, limit, 0)
}

// DryRun fills out with what each ask of r would be answered now if it came alone. It
// takes nothing and counts no violation. Penalties play no part: see Record. out must have
// a place for each ask. The errors are those of Take.
func (l *Limiter) DryRun(ctx context.Context, r *Request, out []Decision) error {
	if err := r.Check(); err != nil {
		return err
	}
	if len(out) != len(r.Asks) {
		return fmt.Errorf("stint: %w: room for %d decisions on %d asks", ErrRequest, len(out), len(r.Asks))
	}
	dry := *r
	dry.Asks = make([]Ask, 0, len(r.Asks)+1)
	for _, a := range r.Asks {
		if a.Limit == nil {
			return fmt.Errorf("stint: %w: no limit for key %q: a dry run asks limits", ErrRequest, clip(a.Key))
		}
		a.Penalty = nil
		dry.Asks = append(dry.Asks, a)
	}
	// One that is always refused, under the same key, so that a Cluster asks one node.
	dry.Asks = append(dry.Asks, Ask{Key: r.Asks[0].Key, Limit: refusing, Cost: refusing.Capacity() + 1})
	all := make([]Decision, len(dry.Asks))
	_, err := l.store().Take(ctx, &dry, all)
	copy(out, all)
	return err
}

// refusing is the limit of the ask that keeps a DryRun from taking anything.
var refusing = MustLimit("1 per 1s")

// Probe asks the Store for a decision and returns why it made none; nil: it decides. It
// takes a unit of key, under a limit of its own: a server that is a replica, or full, still
// answers requests that take nothing. In a Cluster, key says which node is asked.
func (l *Limiter) Probe(ctx context.Context, key string) error {
	_, err := l.store().Take(ctx, &Request{Asks: []Ask{{Key: key, Limit: probing}}}, nil)
	return err
}

// probing is the limit of probes, which must not find it exhausted.
var probing = MustLimit("1000000 per 1s")

// Take decides a request that may face several limits under several keys. Where
// out is not nil, it must have a place for each ask, and receives its answer as
// told with Store.
func (l *Limiter) Take(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	if err := r.Check(); err != nil {
		return Decision{}, err
	}
	if out != nil && len(out) != len(r.Asks) {
		return Decision{}, fmt.Errorf("stint: %w: room for %d decisions on %d asks", ErrRequest, len(out), len(r.Asks))
	}
	if m := l.inMemory(); m != nil {
		return m.Take(ctx, r, out)
	}
	return l.takeCopy(ctx, r, out)
}

// takeCopy decides a copy of r, so that r and out may lie on the caller's stack.
func (l *Limiter) takeCopy(ctx context.Context, r *Request, out []Decision) (d Decision, err error) {
	c := l.call()
	defer l.done(c)
	c.asks = append(c.asks, r.Asks...)
	c.request.Asks, c.request.Deadline = c.asks, r.Deadline
	if !r.At.IsZero() {
		c.request.At = time.UnixMicro(r.At.UnixMicro()) // without the pointer in r.At
	}
	if out == nil {
		return l.decide(ctx, &c.request, nil)
	}
	c.out = append(c.out, out...)
	d, err = l.decide(ctx, &c.request, c.out)
	copy(out, c.out)
	return d, err
}

// decide is Take for a request that has been checked.
func (l *Limiter) decide(ctx context.Context, r *Request, out []Decision) (Decision, error) {
	if l.Instance != nil {
		return l.takeHere(ctx, r, out)
	}
	return l.store().Take(ctx, r, out)
}

// TakeBatch decides requests that have nothing to do with each other, in one round
// trip where the Store can do that: answers[i] answers rs[i], and is an error
// where rs[i] is malformed. All must have the same At. It panics if there are
// fewer answers than requests.
func (l *Limiter) TakeBatch(ctx context.Context, rs []Request, answers []Answer) {
	answers = answers[:len(rs)]
	good := 0
	for i := range rs {
		answers[i].Decision = Decision{}
		answers[i].Err = checkEach(&rs[i], &rs[0], answers[i].Each)
		if answers[i].Err == nil {
			good++
		}
	}
	switch {
	case good == 0:
	case l.Instance != nil:
		l.takeEachHere(ctx, rs, answers)
	case good == len(rs):
		TakeBatch(ctx, l.store(), rs, answers)
	default:
		l.takeGood(ctx, rs, answers, good)
	}
}

func checkEach(r, first *Request, each []Decision) error {
	if !r.At.Equal(first.At) {
		return fmt.Errorf("stint: %w: its instant differs from that of the first", ErrRequest)
	}
	if each != nil && len(each) != len(r.Asks) {
		return fmt.Errorf("stint: %w: room for %d decisions on %d asks", ErrRequest, len(each), len(r.Asks))
	}
	return r.Check()
}

// takeGood leaves out the requests that are malformed.
func (l *Limiter) takeGood(ctx context.Context, rs []Request, answers []Answer, good int) {
	goodRs, goodAnswers := make([]Request, 0, good), make([]Answer, 0, good)
	for i := range rs {
		if answers[i].Err == nil {
			goodRs, goodAnswers = append(goodRs, rs[i]), append(goodAnswers, answers[i])
		}
	}
	TakeBatch(ctx, l.store(), goodRs, goodAnswers)
	for i := range rs {
		if answers[i].Err == nil {
			answers[i], goodAnswers = goodAnswers[0], goodAnswers[1:]
		}
	}
}

// Refund returns n of the units that d took, say because the request was cancelled.
// d is the decision that allowed it, about one limit: it says where the units were
// taken (Decision.By), and there they go, at once; where nothing was taken, for
// ByPolicy, nothing happens. No more becomes available than an unused key has. The
// error wraps ErrRequest if d allowed nothing, and ErrUnsupported where the Store
// cannot refund.
//
// Of a LeakyBucket whose delays callers wait out, give nothing back: a unit is a place
// in the queue, those behind keep theirs, and a newcomer would leave together with one
// of them. Where the bucket is only a meter, it is as any other.
func (l *Limiter) Refund(ctx context.Context, d Decision, n int64) error {
	if !d.Allowed {
		return fmt.Errorf("stint: %w: a request that was not allowed took nothing to refund", ErrRequest)
	}
	return l.RefundAll(ctx, &Request{Asks: []Ask{{Key: d.Key, Limit: d.Limit, Cost: n, Peek: n == 0, By: d.By}}}, nil)
}

// RefundAll is Refund for a request of any asks: each gets its Units back. each holds
// their answers, as Take has filled them in: all of them allowed, else the error wraps
// ErrRequest. Where it is nil, the units go by Ask.By,
// whose zero value is the Store that counts for all: that is for those who correct a
// count by hand.
func (l *Limiter) RefundAll(ctx context.Context, r *Request, each []Decision) error {
	if err := r.Check(); err != nil {
		return err
	}
	if each != nil && len(each) != len(r.Asks) {
		return fmt.Errorf("stint: %w: %d decisions on %d asks", ErrRequest, len(each), len(r.Asks))
	}
	charged := *r
	charged.Asks = make([]Ask, 0, len(r.Asks))
	for i, a := range r.Asks {
		if each != nil {
			if !each[i].Allowed {
				return fmt.Errorf("stint: %w: a request that was not allowed took nothing to refund", ErrRequest)
			}
			a.By = each[i].By
		}
		if a.By != ByPolicy && a.Units() > 0 { // which charge nothing
			charged.Asks = append(charged.Asks, a)
		}
	}
	if len(charged.Asks) == 0 {
		return nil
	}
	return Refund(ctx, l.store(), &charged)
}

// Reset makes key as if unused under the limits named. Bans stay: see Pardon. The
// error wraps ErrUnsupported where the Store cannot do it.
func (l *Limiter) Reset(ctx context.Context, key string, limits ...*Limit) error {
	r := Request{Asks: make([]Ask, 0, len(limits))}
	for _, limit := range limits {
		r.Asks = append(r.Asks, Ask{Key: key, Limit: limit})
	}
	if err := r.Check(); err != nil {
		return err
	}
	return Reset(ctx, l.store(), &r)
}

// Pardon forgets the violations of key under a penalty and lifts its ban. The
// error wraps ErrUnsupported where the Store cannot do it.
func (l *Limiter) Pardon(ctx context.Context, key string, p *Penalty) error {
	if err := checkPunished(key, p); err != nil {
		return err
	}
	return Reset(ctx, l.store(), &Request{Asks: []Ask{{Key: key, Penalty: p}}})
}
