package stint

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// lease is what is known of a hot key under a limit.
type lease struct {
	hash  uint64
	key   string
	limit *Limit

	grant     atomic.Pointer[grant] // nil: nothing is held
	busy      atomic.Bool           // somebody is asking for more, or thinks of it; for good, once another has its place
	moving    atomic.Bool           // for the moment in which what is left goes from one grant to the next
	resets    atomic.Int64          // of the key, through this instance
	asked     atomic.Int64          // units, since mark: what the grant does not know of
	mark      atomic.Int64          // ns
	pace      float64               // units in a ns, before mark; of whoever is busy
	pause     atomic.Int64          // until when nothing is leased, ns
	remaining atomic.Int64          // as the Store said last
	waits     atomic.Pointer[wait]  // nil: the bucket is not exhausted
}

// grant is units that were charged together.
type grant struct {
	sent      int64 // ns
	told      int64 // ns
	window    int64 // when the window of a FixedWindow ends, ns
	until     int64 // when they are served no more, ns
	remaining int64 // what the Store said was left
	reset     time.Duration
	size      int64
	low       int64 // when less is left, the next is charged ahead
	seen      int64 // what was left when it was last swept; the sweeper's

	_    [56]byte // what is above is read by each request, and never written
	left atomic.Int64
	next atomic.Bool // the next was thought of
	_    [52]byte
}

// serves tells whether what is held under e may be served under l, which has the ID of
// e's limit. An instance has no more than one lease for an ID: all that is held under
// it must fit into one share.
func (e *lease) serves(l *Limit) bool {
	return e.limit == l || e.limit.lease == l.lease && e.limit.plan == l.plan
}

// endsWithWindow tells whether a lease of l ends with the window it was charged in.
func (l *Limit) endsWithWindow() bool { return l.plan.Kind == algo.FixedWindow }

// part is how many units one of so many instances may hold.
func (l *Limit) part(live int64) int64 { return l.lease / 2 / max(live, 1) }

// serve decides r by what e holds.
func (l *Leases) serve(e *lease, r *Request, now int64, d *Decision) bool {
	a, g := &r.Asks[0], e.grant.Load()
	units := a.Units()
	for g != nil && now < g.until {
		have := g.left.Load()
		if have < units {
			break
		}
		if g.left.CompareAndSwap(have, have-units) {
			*d = Decision{
				Allowed: true, Outcome: Allowed, Limit: a.Limit, Key: a.Key,
				Remaining: g.remaining + have - units, ResetAfter: left(g.reset, g.told, now), By: ByLease,
			}
			if have < g.low+2*units { // another would leave less
				l.ahead(e, g, r.Deadline, now)
			}
			return true
		}
	}
	return l.again(e, g, r, now, d)
}

// again serves r by what has come in place of g, which does not serve it.
func (l *Leases) again(e *lease, g *grant, r *Request, now int64, d *Decision) bool {
	for e.moving.Load() {
		runtime.Gosched()
	}
	return e.grant.Load() != g && l.serve(e, r, now, d)
}

// drain takes all that is held.
func (g *grant) drain() int64 {
	for {
		have := g.left.Load()
		if have == 0 || g.left.CompareAndSwap(have, 0) {
			return have
		}
	}
}

// open begins to look after a key that was found hot, if there is room.
func (l *Leases) open(hash uint64, a *Ask, remaining, now int64) {
	e := &lease{hash: hash, key: kept(a.Key), limit: a.Limit}
	e.asked.Store(hotAsks)
	e.mark.Store(now - int64(heatEvery))
	e.remaining.Store(remaining)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() || l.find(hash, a) != nil {
		return
	}
	set := l.table.set(hash)
	for i := range set {
		old := set[i].Load()
		// Busy for good, so that nothing is leased any more where nobody would look.
		if old == nil || old.isIdle(now) && old.busy.CompareAndSwap(false, true) {
			if old != nil {
				l.end(old, old.grant.Load(), true)
			}
			set[i].Store(e)
			if l.sweeper == nil {
				l.sweeper = time.AfterFunc(sweepEvery, l.sweep)
			}
			return
		}
	}
}

// isIdle tells whether e may go. What somebody has leased in this very moment is void.
func (e *lease) isIdle(now int64) bool {
	return e.grant.Load() == nil && now-e.mark.Load() > int64(2*sweepEvery)
}

// paceOf is how many units are asked for in a ns, of late: asked in the ns since mark,
// and if that is short, as before.
func (e *lease) paceOf(asked, since int64) float64 {
	of := max(since, int64(paceFor))
	return (float64(asked) + e.pace*float64(of-since)) / float64(of)
}

// want is how many units are to be leased with a request of n, or, of 0, without one,
// where plenty remains; 0: none. e is busy.
func (l *Leases) want(e *lease, n, now int64) int64 {
	if now < e.pause.Load() && e.waits.Load() == nil || l.closed.Load() {
		return 0
	}
	live := l.Live()
	if live <= 0 {
		return 0
	}
	var held, used int64
	if g := e.grant.Load(); g != nil {
		held = g.left.Load()
		used = g.size - held
		if now >= g.window {
			held = 0
		}
	}
	since := now - e.mark.Load()
	asked := e.asked.Load() + used
	need := e.paceOf(asked, since) * float64(leaseFor)
	part := e.limit.part(live) - held
	if n == 0 { // one more, in place of the request
		if k := int64(min(need+1, float64(part))); need >= shortestLease && k >= shortestLease && k <= e.remaining.Load()/max(8, live) {
			return k
		}
		return 0 // a request may bring some along
	}
	most := min(part, (e.remaining.Load()-n)/4)
	if e.waits.Load() != nil {
		most = part // what there is will be told
	}
	k := int64(min(need, float64(max(most, 0))))
	if k >= shortestLease {
		return k
	}
	if since > int64(sweepEvery) { // what was asked long ago tells nothing of now
		e.asked.Store(0)
		e.mark.Store(now)
		e.pace = 0
	}
	if need < shortestLease || most < shortestLease && e.remaining.Load() > 4*shortestLease+n {
		e.pause.Store(now + int64(leasePause))
	}
	return 0
}

// fillUp asks for what r wants and for k units more, or for as many as there are. If
// that is refused, or decided by somebody else, who then decides about r alone, nothing
// is held of it. It was wanted at now. e is busy.
func (l *Leases) fillUp(ctx context.Context, e *lease, r *Request, out []Decision, k, now int64) (Decision, error) {
	d, err := l.fill(ctx, e, r, out, k, now)
	if less := d.Remaining - r.Asks[0].Units(); err == nil && d.By == ByStore && d.Outcome == Limited && less >= shortestLease && less < k {
		return l.fill(ctx, e, r, out, less, now)
	}
	return d, err
}

func (l *Leases) fill(ctx context.Context, e *lease, r *Request, out []Decision, k, sent int64) (Decision, error) {
	more := Request{Asks: []Ask{r.Asks[0]}, Deadline: r.Deadline}
	more.Asks[0].SetUnits(r.Asks[0].Units() + k)
	more.Asks[0].ahead = k
	resets := e.resets.Load()
	d, err := l.Store.Take(ctx, &more, out)
	if err != nil || !d.Allowed || d.By != ByStore {
		e.pause.Store(sent + int64(leasePause))
		if err == nil && d.By == ByStore {
			e.remaining.Store(d.Remaining)
		}
		return d, err
	}
	l.charged.Add(k)
	g := &grant{sent: sent, told: l.now(), window: math.MaxInt64, remaining: d.Remaining, reset: d.ResetAfter, size: k, seen: math.MinInt64}
	if e.limit.endsWithWindow() {
		g.window = sent + int64(d.ResetAfter-d.ResetAfter/1000-time.Microsecond)
	}
	e.remaining.Store(d.Remaining)
	if w := e.waits.Load(); w != nil {
		if d.Remaining < more.Asks[0].Units() {
			d := Decision{Remaining: d.Remaining, ResetAfter: d.ResetAfter} // as if it had been refused
			l.wait(e, r.Asks[0].Units(), &d, sent)
		} else {
			e.waits.Store(nil)
		}
	}
	live := l.Live()
	e.moving.Store(true)
	if old := e.grant.Load(); old != nil {
		if over := l.end(e, old, g.told >= old.window); g.told < old.window { // else it is void
			g.size += over
			g.window = min(g.window, old.window)
		}
	}
	g.until = min(g.window, sent+int64(leaseAge))
	e.pace = e.paceOf(e.asked.Swap(0), g.told-e.mark.Swap(g.told))
	g.low = e.lowMark(g, live)
	g.left.Store(g.size)
	e.grant.Store(g)
	e.moving.Store(false)
	if d.Remaining += g.size; out != nil {
		out[0].Remaining = d.Remaining
	}
	// Close waits for what is charged ahead of any request, and gives it back.
	if e.resets.Load() != resets || l.closed.Load() && r.Asks[0].Units() > 0 {
		l.end(e, g, true)
	}
	return d, nil
}

// end takes from e what it holds as g, which may be nil, and returns it; void: it is
// lost.
func (l *Leases) end(e *lease, g *grant, void bool) (units int64) {
	if g == nil || !e.grant.CompareAndSwap(g, nil) {
		return 0
	}
	units = g.drain()
	l.ended.Add(g.size - units)
	e.asked.Add(g.size - units)
	if void {
		l.void.Add(units)
	}
	return units
}
