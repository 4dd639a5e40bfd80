package fleet

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// parts are the servers of a Fallback's Store, each with its own breaker.
type parts struct {
	store Partitioned   // nil: there is only one server
	one   storePart     // for keys without another known part
	more  sync.Map      // of *storePart by name
	whole atomic.Uint32 // BreakerState of all together

	closed atomic.Bool

	mu     sync.Mutex // locked while notify runs
	notify func(to BreakerState, why error)
}

type storePart struct {
	breaker
	name     string
	settings Breaker
}

func (p *parts) init(store stint.Store, b Breaker) {
	p.store, _ = stint.As[Partitioned](store)
	p.notify = b.Changed
	p.one.settings = b
	p.one.settings.Changed = func(_ BreakerState, why error) { p.changed(&p.one, why) }
}

func (p *parts) of(l *stint.Limit, key string) *storePart {
	if p.store == nil {
		return &p.one
	}
	name := p.store.Partition(l, key)
	if name == "" {
		return &p.one
	}
	q, ok := p.more.Load(name)
	if !ok {
		fresh := &storePart{name: name, settings: p.one.settings}
		fresh.settings.Changed = func(_ BreakerState, why error) { p.changed(fresh, why) }
		q, _ = p.more.LoadOrStore(name, fresh)
		if p.closed.Load() {
			q.(*storePart).close()
		}
	}
	return q.(*storePart)
}

func (p *parts) state() BreakerState { return BreakerState(p.whole.Load()) }

// failing returns a part of some asks that is not asked; nil: all parts are asked.
func (p *parts) failing(asks []stint.Ask) *storePart {
	if p.state() == Closed {
		return nil
	}
	for i := range asks {
		if q := p.of(asks[i].Limit, asks[i].Key); !q.isClosed() {
			return q
		}
	}
	return nil
}

// each calls f for each part that has some of the asks, with the first of these.
func (p *parts) each(asks []stint.Ask, f func(q *storePart, a *stint.Ask)) {
	if p.store == nil {
		f(&p.one, &asks[0])
		return
	}
	var few [4]*storePart
	seen := few[:0]
next:
	for i := range asks {
		q := p.of(asks[i].Limit, asks[i].Key)
		for _, s := range seen {
			if s == q {
				continue next
			}
		}
		seen = append(seen, q)
		f(q, &asks[i])
	}
}

func (p *parts) changed(q *storePart, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n [HalfOpen + 1]int
	var names []string
	if p.store != nil {
		names = p.store.Partitions()
	}
	for _, name := range names {
		state := Closed // also for a part that was not asked yet
		if r, ok := p.more.Load(name); ok {
			state = BreakerState(r.(*storePart).state.Load())
		}
		n[state]++
	}
	if one := BreakerState(p.one.state.Load()); one != Closed || len(names) == 0 {
		n[one]++
	}
	to := Closed
	switch {
	case n[Open]+n[HalfOpen] == 0:
	case n[Closed] > 0:
		to = PartlyOpen
	case n[HalfOpen] > 0:
		to = HalfOpen
	default:
		to = Open
	}
	if BreakerState(p.whole.Swap(uint32(to))) == to {
		return
	}
	if p.notify != nil {
		if why != nil && q.name != "" {
			why = fmt.Errorf("%s: %w", q.name, why)
		}
		p.notify(to, why)
	}
}

func (p *parts) close() {
	p.closed.Store(true)
	p.one.close()
	p.more.Range(func(_, q any) bool {
		q.(*storePart).close()
		return true
	})
}

func (f *Fallback) failed(q *storePart, a *stint.Ask, began, ended time.Duration, why error) {
	if !q.failure(&q.settings, began, ended) {
		return
	}
	key, limit := strings.Clone(a.Key), a.Limit
	probe := func(ctx context.Context, patience time.Duration) error { return f.probe(ctx, limit, key, patience) }
	q.doubt(&q.settings, why, probe, func() {
		f.repayAt.Store(0)
		f.repaySoon(time.Since(f.start))
	})
}
