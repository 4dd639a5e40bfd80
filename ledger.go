package stint

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// ledger is what a Fallback has spent without its Store and is to charge there.
type ledger struct {
	mu    sync.Mutex
	spent map[entryKey]*spending
	owes  atomic.Bool // spent may not be empty
}

type spending struct {
	limit *Limit
	units int64
	last  int64 // the instant of the newest of them, µs since 1970
}

// mostSpendings bounds a ledger. What does not fit is not charged later.
const mostSpendings = 100_000

// note adds what an ask has spent at the instant now.
func (l *ledger) note(a *Ask, now int64) {
	if a.Cost == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := entryKey{a.Key, a.Limit.id}
	s := l.spent[k]
	if s == nil {
		if len(l.spent) >= mostSpendings {
			return
		}
		if l.spent == nil {
			l.spent = map[entryKey]*spending{}
		}
		s = &spending{}
		l.spent[entryKey{kept(a.Key), k.id}] = s
	}
	if s.limit != nil && s.isOver(now) {
		s.units = 0
	}
	l.owes.Store(true)
	s.limit, s.last = a.Limit, now
	s.units = min(s.units+a.Cost, a.Limit.plan.Capacity)
}

// giveBack takes from what was noted.
func (l *ledger) giveBack(a *Ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := entryKey{a.Key, a.Limit.id}
	if s := l.spent[k]; s != nil {
		if s.units -= a.Cost; s.units <= 0 {
			delete(l.spent, k)
		}
	}
}

// forget drops what a key has spent under a limit.
func (l *ledger) forget(key string, limit *Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.spent, entryKey{key, limit.id})
}

// isOver tells whether nothing of s counts any more at now. Of a bucket, what was
// spent a period ago has run out.
func (s *spending) isOver(now int64) bool {
	p := &s.limit.plan
	if p.Kind == algo.FixedWindow {
		return now/p.Period > s.last/p.Period
	}
	return now-s.last >= p.Period
}

// repayTimeout bounds the charging of a batch, and repayBatch is its size.
const (
	repayTimeout = time.Second
	repayBatch   = 100
)

// repaySoon charges what calls that never left this instance have spent, at most
// once a second. What was spent while the breaker was open is charged before it
// closes.
func (f *Fallback) repaySoon(second int64) {
	if f.ledger.owes.Load() && f.repaid.Swap(second) != second {
		go f.repay(context.Background())
	}
}

// repay charges the Store with what was spent without it. Nothing is sent twice:
// what is not answered may have been charged.
func (f *Fallback) repay(ctx context.Context) {
	f.ledger.mu.Lock()
	spent := f.ledger.spent
	f.ledger.spent = nil
	f.ledger.owes.Store(false)
	f.ledger.mu.Unlock()
	f.local.init()
	now := f.local.clock()
	asks := make([]Ask, 0, repayBatch)
	for k, s := range spent {
		if s.isOver(now) {
			continue
		}
		asks = append(asks, Ask{Key: k.key, Limit: s.limit, Cost: s.units})
		if len(asks) == repayBatch {
			f.charge(ctx, asks)
			asks = asks[:0]
		}
	}
	f.charge(ctx, asks)
}

// charge charges each ask by itself: with its cost or, where the limit has less
// left, with that. Between an answer and the next try another instance may charge
// what it has spent; so it is tried until nothing is left, each time with less.
func (f *Fallback) charge(ctx context.Context, asks []Ask) {
	ctx, cancel := context.WithTimeout(ctx, repayTimeout)
	defer cancel()
	for len(asks) > 0 && ctx.Err() == nil {
		var less []Ask
		for i, a := range f.takeEach(ctx, asks) {
			if a.Err == nil && !a.Allowed && a.Remaining > 0 && a.Remaining < asks[i].Cost {
				ask := asks[i]
				ask.Cost = a.Remaining
				less = append(less, ask)
			}
		}
		asks = less
	}
}

// takeEach asks the Store, each ask by itself.
func (f *Fallback) takeEach(ctx context.Context, asks []Ask) []Answer {
	rs, answers := make([]Request, len(asks)), make([]Answer, len(asks))
	for i := range asks {
		rs[i].Asks = asks[i : i+1]
	}
	powers{f.Store}.takeEach(ctx, rs, answers)
	return answers
}
