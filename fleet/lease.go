package fleet

import (
	"context"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

type hotKey struct {
	hash  uint64
	key   string
	limit *stint.Limit

	lease     atomic.Pointer[lease] // nil: none
	busy      atomic.Bool           // a refill is under way; stays true after eviction
	moving    atomic.Bool           // while the rest of one grant is added to the next
	resets    atomic.Int64          // of the key, through this instance
	asked     atomic.Int64          // units asked for since mark, besides those of the lease
	mark      atomic.Int64          // ns
	pace      float64               // units per ns before mark; only for the goroutine that set busy
	pause     atomic.Int64          // nothing is leased before, ns
	remaining atomic.Int64          // by the Store's last answer
	waits     atomic.Pointer[wait]  // nil: the bucket is not exhausted
}

type lease struct {
	sent      int64 // ns
	came      int64 // when the answer did, ns
	window    int64 // end of a FixedWindow's window, ns
	until     int64 // not served after this, ns
	remaining int64 // Remaining by the Store's answer
	reset     time.Duration
	size      int64
	low       int64 // below this rest, the next lease is charged
	seen      int64 // units at the last sweep; only for the sweeper

	_    [56]byte // the fields above are read by each request and never written
	left atomic.Int64
	next atomic.Bool // whether to charge the next lease was decided
	_    [52]byte
}

// serves reports whether e may serve requests under l, which has the same ID: all leases under an
// ID must fit into one share.
func (e *hotKey) serves(l *stint.Limit) bool {
	return e.limit == l || internal.Leased(e.limit) == internal.Leased(l) && *planOf(e.limit) == *planOf(l)
}

func (l *Leases) serve(e *hotKey, r *stint.Request, now int64, d *stint.Decision) bool {
	a, g := &r.Asks[0], e.lease.Load()
	units := a.Units()
	for g != nil && now < g.until {
		have := g.left.Load()
		if have < units {
			break
		}
		if g.left.CompareAndSwap(have, have-units) {
			*d = stint.Decision{
				Allowed: true, Outcome: stint.Allowed, Limit: a.Limit, Key: a.Key,
				Remaining: g.remaining + have - units, ResetAfter: left(g.reset, g.came, now), By: stint.ByLease,
			}
			if have < g.low+2*units { // another request would leave less
				l.ahead(e, g, r.Deadline, now)
			}
			return true
		}
	}
	return l.again(e, g, r, now, d)
}

// again serves r from the lease that replaced g, which does not serve it.
func (l *Leases) again(e *hotKey, g *lease, r *stint.Request, now int64, d *stint.Decision) bool {
	for e.moving.Load() {
		runtime.Gosched()
	}
	return e.lease.Load() != g && l.serve(e, r, now, d)
}

func (g *lease) drain() int64 {
	for {
		have := g.left.Load()
		if have == 0 || g.left.CompareAndSwap(have, 0) {
			return have
		}
	}
}

func (l *Leases) open(hash uint64, a *stint.Ask, remaining, now int64) {
	e := &hotKey{hash: hash, key: strings.Clone(a.Key), limit: a.Limit}
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
		// Busy forever, so that an evicted key leases nothing any more.
		if old == nil || old.isIdle(now) && old.busy.CompareAndSwap(false, true) {
			if old != nil {
				l.end(old, old.lease.Load(), true)
			}
			set[i].Store(e)
			if l.sweeper == nil {
				l.sweeper = time.AfterFunc(sweepEvery, l.sweep)
			}
			return
		}
	}
}

// isIdle reports whether e may be evicted.
func (e *hotKey) isIdle(now int64) bool {
	return e.lease.Load() == nil && now-e.mark.Load() > int64(2*sweepEvery)
}

// paceOf is how many units are asked for per ns, over at least paceFor.
func (e *hotKey) paceOf(asked, since int64) float64 {
	of := max(since, int64(paceFor))
	return (float64(asked) + e.pace*float64(of-since)) / float64(of)
}

// want is how many units to lease together with a request of n units; with n 0, without a request.
// 0: none. The caller has set e.busy.
func (l *Leases) want(e *hotKey, n, now int64) int64 {
	if now < e.pause.Load() && e.waits.Load() == nil || l.closed.Load() {
		return 0
	}
	live := l.Live()
	if live <= 0 {
		return 0
	}
	var held, used int64
	if g := e.lease.Load(); g != nil {
		held = g.left.Load()
		used = g.size - held
		if now >= g.window {
			held = 0
		}
	}
	since := now - e.mark.Load()
	asked := e.asked.Load() + used
	need := e.paceOf(asked, since) * float64(leaseFor)
	part := part(e.limit, live) - held
	if n == 0 { // one more, instead of the request
		if k := int64(min(need+1, float64(part))); need >= shortestLease && k >= shortestLease && k <= e.remaining.Load()/max(8, live) {
			return k
		}
		return 0 // a request may lease some
	}
	most := min(part, (e.remaining.Load()-n)/4)
	if e.waits.Load() != nil {
		most = part // the answer will say how many there are
	}
	k := int64(min(need, float64(max(most, 0))))
	if k >= shortestLease {
		return k
	}
	if since > int64(sweepEvery) { // old requests say nothing about now
		e.asked.Store(0)
		e.mark.Store(now)
		e.pace = 0
	}
	if need < shortestLease || most < shortestLease && e.remaining.Load() > 4*shortestLease+n {
		e.pause.Store(now + int64(leasePause))
	}
	return 0
}

// fillUp asks for r's units and for up to k more. The caller has set e.busy.
func (l *Leases) fillUp(ctx context.Context, e *hotKey, r *stint.Request, out []stint.Decision, k, now int64) (stint.Decision, error) {
	d, err := l.fill(ctx, e, r, out, k, now)
	if less := d.Remaining - r.Asks[0].Units(); err == nil && d.By == stint.ByStore && d.Outcome == stint.Limited && less >= shortestLease && less < k {
		return l.fill(ctx, e, r, out, less, now)
	}
	return d, err
}

func (l *Leases) fill(ctx context.Context, e *hotKey, r *stint.Request, out []stint.Decision, k, sent int64) (stint.Decision, error) {
	more := stint.Request{Asks: []stint.Ask{r.Asks[0]}, Deadline: r.Deadline}
	internal.SetUnits(&more.Asks[0], r.Asks[0].Units()+k)
	resets := e.resets.Load()
	d, err := takeAhead(ctx, l.Store, &more, k, out)
	if err != nil || !d.Allowed || d.By != stint.ByStore {
		e.pause.Store(sent + int64(leasePause))
		if err == nil && d.By == stint.ByStore {
			e.remaining.Store(d.Remaining)
		}
		return d, err
	}
	l.charged.Add(k)
	g := &lease{sent: sent, came: l.now(), window: math.MaxInt64, remaining: d.Remaining, reset: d.ResetAfter, size: k, seen: math.MinInt64}
	if endsWithWindow(e.limit) {
		g.window = sent + int64(d.ResetAfter-d.ResetAfter/1000-time.Microsecond)
	}
	e.remaining.Store(d.Remaining)
	if w := e.waits.Load(); w != nil {
		if d.Remaining < more.Asks[0].Units() {
			d := stint.Decision{Remaining: d.Remaining, ResetAfter: d.ResetAfter} // as if it had been refused
			l.wait(e, r.Asks[0].Units(), &d, sent)
		} else {
			e.waits.Store(nil)
		}
	}
	live := l.Live()
	e.moving.Store(true)
	if old := e.lease.Load(); old != nil {
		if over := l.end(e, old, g.came >= old.window); g.came < old.window { // else its units are void
			g.size += over
			g.window = min(g.window, old.window)
		}
	}
	g.until = min(g.window, sent+int64(leaseAge))
	e.pace = e.paceOf(e.asked.Swap(0), g.came-e.mark.Swap(g.came))
	g.low = e.lowMark(g, live)
	g.left.Store(g.size)
	e.lease.Store(g)
	e.moving.Store(false)
	if d.Remaining += g.size; out != nil {
		out[0].Remaining = d.Remaining
	}
	// Close waits for units that are charged without a request, and refunds them.
	if e.resets.Load() != resets || l.closed.Load() && r.Asks[0].Units() > 0 {
		l.end(e, g, true)
	}
	return d, nil
}

// end empties g, which may be nil, and returns its units; void: they are lost.
func (l *Leases) end(e *hotKey, g *lease, void bool) (units int64) {
	if g == nil || !e.lease.CompareAndSwap(g, nil) {
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
