package fleet

import (
	"context"
	"time"

	"github.com/stintdev/stint"
)

const (
	refunding = time.Second
	// windowLeft is the least rest of a fixed window for a refund, so that the refund cannot fall
	// into the next window.
	windowLeft     = int64(500 * time.Millisecond)
	returnedAtOnce = 100
)

// sweep refunds leases that were not used since the last sweep, and old ones.
func (l *Leases) sweep() {
	l.mu.Lock()
	if l.closed.Load() {
		l.mu.Unlock()
		return
	}
	l.sweeps.Add(1)
	l.mu.Unlock()
	any := l.collect(func(g *lease, now int64) bool {
		have := g.left.Load()
		idle := have == g.seen || now-g.sent >= int64(leaseAge/2)
		g.seen = have
		return idle
	})
	l.sweeps.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweeper = nil; any && !l.closed.Load() {
		l.sweeper = time.AfterFunc(sweepEvery, l.sweep)
	}
}

// collect refunds the leases that may go and drops idle keys. It reports whether any key stays.
func (l *Leases) collect(mayGo func(*lease, int64) bool) (stays bool) {
	ctx, cancel := context.WithTimeout(context.Background(), refunding)
	defer cancel()
	var asks []stint.Ask
	seen := make(map[entryKey]bool) // keys and limits of asks
	for i := range l.table.slots {
		e := l.table.slots[i].Load()
		if e == nil {
			continue
		}
		now, g := l.now(), e.lease.Load()
		if g == nil && e.isIdle(now) {
			stays = !l.drop(i, e, now) || stays
			continue
		}
		stays = true
		if g == nil || !mayGo(g, now) {
			continue
		}
		void := g.window-now < windowLeft
		units := l.end(e, g, void)
		if void || units == 0 {
			continue
		}
		k := entryKey{e.key, e.limit.ID()}
		if len(asks) == returnedAtOnce || seen[k] {
			l.giveUp(ctx, asks)
			asks = asks[:0]
			clear(seen)
		}
		asks = append(asks, stint.Ask{Key: e.key, Limit: e.limit, Cost: units})
		seen[k] = true
	}
	l.giveUp(ctx, asks)
	return stays
}

func (l *Leases) drop(place int, e *hotKey, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table.slots[place].Load() != e || !e.isIdle(now) || !e.busy.CompareAndSwap(false, true) {
		return false
	}
	l.end(e, e.lease.Load(), true)
	l.table.slots[place].Store(nil)
	return true
}

// giveUp refunds units. If that fails they are void, because refunding twice would admit too much.
func (l *Leases) giveUp(ctx context.Context, asks []stint.Ask) {
	if len(asks) == 0 {
		return
	}
	var units int64
	for i := range asks {
		units += asks[i].Cost
	}
	if err := l.Refund(ctx, &stint.Request{Asks: asks}); err != nil {
		l.void.Add(units)
		return
	}
	l.returned.Add(units)
}

// Close refunds the units that are held or being charged in the background, waiting up to a
// second for each call, and leases nothing from then on. Units that are being charged
// together with a request become void. It does not close the Store, which must still work.
func (l *Leases) Close() {
	l.init()
	l.mu.Lock()
	was := l.closed.Swap(true)
	if l.sweeper != nil {
		l.sweeper.Stop()
	}
	l.mu.Unlock()
	if was {
		return
	}
	l.sweeps.Wait()
	l.collect(func(*lease, int64) bool { return true })
}

// LeasedUnits counts the units that a Leases charged ahead. Charged is the sum of the others.
type LeasedUnits struct {
	Charged  int64
	Served   int64
	Returned int64 // refunded to the Store
	Void     int64 // neither; they count like served ones
	Held     int64 // none of these yet
}

// Units returns the counts so far. While the Leases is in use, the numbers may be from slightly
// different instants.
func (l *Leases) Units() LeasedUnits {
	l.init()
	u := LeasedUnits{Charged: l.charged.Load(), Served: l.ended.Load(), Returned: l.returned.Load(), Void: l.void.Load()}
	for i := range l.table.slots {
		if e := l.table.slots[i].Load(); e != nil {
			if g := e.lease.Load(); g != nil {
				left := g.left.Load()
				u.Served += g.size - left
				u.Held += left
			}
		}
	}
	return u
}
