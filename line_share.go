package stint

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Instances over one Store share the turns of a key in proportion to their lines. Four times per second,
// each adds the time that its callers have waited to a count in the Store, and so learns how many wait in
// all. Then it asks at random instants, by a Poisson process whose rate is its part of the fleet's rate:
// since each of these asks is as likely to find room as any other, the turns are divided like the asks.

const (
	// rivalsFor is how long after a refusal a line reports itself to the Store.
	rivalsFor = 10 * time.Second
	// reportEvery is the time between reports; four times as long if nobody else waits.
	reportEvery = 250 * time.Millisecond
	// asksPerTurn is how many asks the fleet makes in the time of one turn, which counts as longestTurn
	// at most. asksOfFew replaces it under a limit with a capacity below few: such a bucket is full
	// between two asks, and what would come back meanwhile is lost, so that its pace is slower by one in
	// asksOfFew.
	asksPerTurn = 3
	asksOfFew   = 8
	few         = 8
	longestTurn = 800 * time.Millisecond
	// unsure is about how long an answer takes.
	unsure = 20 * time.Millisecond
	// mostKept bounds how many keys without waiting callers here are remembered.
	mostKept = 1000
	// mostBehind bounds the asks that a line which is behind its process makes at once.
	mostBehind = 50 * time.Millisecond
)

// waits counts, per key and limit, the milliseconds that callers of all instances have waited in the last
// second.
var waits = MustLimit("stint waits: 1000000000000 per 1s sliding_log")

// shares is what a queue knows about other instances.
type shares struct {
	limit    *Limit
	until    time.Time // others may wait, too
	next     time.Time // when this line may ask again
	reported time.Time
	own      [5]reported // the last reports, newest first
	others   int64       // how many wait elsewhere, as far as known
}

// reported is a line's report to the Store.
type reported struct {
	at time.Time
	ms int64
}

// refused notes that the Store refused an ask: others may wait, too.
func (s *shares) refused(l *Limit, now time.Time) {
	if !now.Before(s.until) {
		*s = shares{reported: now}
	}
	s.limit, s.until = l, now.Add(rivalsFor)
}

// drawNext draws when the next in q may ask.
func (q *queue) drawNext(now time.Time) {
	s := &q.shares
	if s.others == 0 || !now.Before(s.until) {
		s.next = time.Time{}
		return
	}
	if behind := now.Add(-mostBehind); s.next.Before(behind) {
		s.next = behind
	}
	s.next = s.next.Add(q.pause())
}

// fallsDue notes that asking before an instant is useless. The rest of an exponential pause has the
// distribution of a new one.
func (q *queue) fallsDue(due, now time.Time) {
	if s := &q.shares; !s.next.IsZero() && s.next.Before(due) && due.After(now) {
		s.next = due.Add(q.pause())
	}
}

func (q *queue) pause() time.Duration {
	l := q.shares.limit
	turn := min(algo.Duration(l.counted.Plan.Period)/time.Duration(max(1, l.spec.Amount)), longestTurn)
	asks := asksPerTurn
	if l.Capacity() < few {
		asks = asksOfFew
	}
	mean := float64(turn) / float64(asks) * (1 + float64(q.shares.others)/float64(max(1, q.length)))
	return time.Duration(rand.ExpFloat64() * mean)
}

// keepOrDrop drops the empty queue q unless other instances may still wait for it. It also drops some
// outdated queues that were kept.
func (n *line) keepOrDrop(q *queue, now time.Time) {
	if n.kept > 0 {
		looked := 0
		for _, old := range n.queues { // in no order
			if old.spots == 0 && old != q && !now.Before(old.shares.until) {
				n.drop(old)
			}
			if looked++; looked == 4 {
				break
			}
		}
	}
	if !now.Before(q.shares.until) || n.kept >= mostKept {
		delete(n.queues, q.of)
		return
	}
	n.kept++
	n.places.Add(1)
}

// drop forgets a queue that was kept.
func (n *line) drop(q *queue) {
	n.kept--
	n.places.Add(-1)
	delete(n.queues, q.of)
}

// toReport is how many milliseconds the callers in s's queue have waited since the last report; 0: no
// report is due.
func (s *spot) toReport(now time.Time) int64 {
	sh := &s.queue.shares
	length := s.queue.length
	if s.stands == nil {
		length++
	}
	since, every := now.Sub(sh.reported), reportEvery-rand.N(reportEvery/4)
	if sh.others == 0 && sh.own[0].ms > 0 {
		every *= 4
	}
	if !now.Before(sh.until) || since < every {
		return 0
	}
	for _, r := range sh.own {
		if (now.Sub(r.at) - time.Second).Abs() < unsure {
			return 0 // whether that report still counts would be unknown
		}
	}
	if sh.reported = now; sh.own[0].ms == 0 {
		since = time.Second // as for later reports
	}
	ms := min(since, time.Second).Milliseconds() * length
	copy(sh.own[1:], sh.own[:])
	sh.own[0] = reported{now, ms}
	return ms
}

// learn notes the sum that all lines have reported in the last second.
func (s *shares) learn(all int64, now time.Time) {
	for _, r := range s.own {
		if now.Sub(r.at) < time.Second {
			all -= r.ms
		}
	}
	if s.others = 0; all > 0 {
		s.others = max(1, all/time.Second.Milliseconds())
	}
}

// report tells the Store how many wait in the queues of p, and learns how many wait
// elsewhere.
func (p *place) report(ctx context.Context, store Store) {
	if !p.shared {
		return
	}
	for i := range p.spots {
		s := &p.spots[i]
		if s.ask < 0 {
			continue
		}
		p.line.mu.Lock()
		ms := s.toReport(time.Now())
		p.line.mu.Unlock()
		if ms == 0 {
			continue
		}
		key := s.limit.id + "\x00" + s.queue.of.key
		d, err := store.Take(ctx, &Request{Asks: []Ask{{Key: key[:min(len(key), MaxKey)], Limit: waits, Cost: ms}}}, nil)
		p.line.mu.Lock()
		if err == nil && d.By == ByStore {
			s.queue.shares.learn(waits.Capacity()-d.Remaining, time.Now())
		} else {
			s.queue.shares.others = 0
		}
		p.line.mu.Unlock()
	}
}
