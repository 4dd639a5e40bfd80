package stint

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstPoll is how long the first in a line waits before it asks again for units that others hold,
	// unless a hold of this Limiter ends before. The pause doubles, up to the RetryAfter of the refusal.
	firstPoll = 5 * time.Millisecond
	// fewAsking is how many may ask at once about a key without a known answer for which nobody waits.
	fewAsking = 8
	// mostAsking is how many waiting callers of a Limiter may ask a shared Store at once, so that a crowd
	// for one key does not delay requests for others.
	mostAsking = 64
	// leadOfDelays is the least time by which a request takes its place in a LeakyBucket before it may
	// leave: as long as an answer may take without the pace being lost. A caller that gives up while
	// delayed wastes no more of the pace than that.
	leadOfDelays = 25 * time.Millisecond
	// mostLate is how far in the past a Memory may decide for a caller whose turn had come.
	mostLate = 10 * time.Millisecond
)

// line has the waiting callers of a Limiter, by key and limit: first come, first served. Only the first
// asks the Store, when the last answer says that its request may fit, and as many behind it as fit by that
// answer.
//
// A request stands in the lines of all its limits that refused it, and of those in which others stood when
// its turn might have come. In each it stands before all that came later. It steps aside in a line where
// nobody is before it and whose limit allows it; otherwise a request that waits an hour for its user's
// limit would hold up a limit that all users share. But a limit that has refused it before keeps its place
// for as long as that limit itself made it wait, so that a request with several limits is not passed
// forever: its places under the limits with the longest waits are kept, and one limit after the other joins
// them.
//
// No request waits for one that came later, so there is no deadlock.
type line struct {
	places atomic.Int64 // places that stand or ask, plus queues kept without places
	alone  atomic.Int64 // callers that ask without a place

	mu      sync.Mutex
	kept    int // queues without places
	tickets uint64
	queues  map[entryKey]*queue
	budget  chan struct{} // has an element for each place that asks a shared Store
}

// place is the place of one caller in the lines.
type place struct {
	line   *line
	ticket uint64
	turn   chan struct{} // has an element after a change
	spots  []spot
	one    [2]spot
	shared bool // the Store is
	came   time.Time

	asking  bool
	busy    bool          // the last refusal was Busy
	pause   time.Duration // before it asks again if busy
	due     time.Time     // it does not ask before; zero: no bound
	checked bool          // that its turn comes before its deadline
	budget  bool          // it has an element in line.budget
}

// lineOf returns the line that l shares with Limiters over the same counts.
func (l *Limiter) lineOf() *line {
	if l.of != nil {
		return &l.of.line
	}
	return &l.line
}

// isEmpty reports whether nobody waits and no queue is kept because other instances may
// wait.
func (n *line) isEmpty() bool { return n.places.Load() == 0 }

// mayAskAlone reports whether a caller may ask without a place, which costs less, because nobody waits and
// few ask so: otherwise each of a crowd would ask and be refused. If it returns true, call asked
// afterwards.
func (n *line) mayAskAlone(shared bool) bool {
	if !n.isEmpty() {
		return false
	}
	most := int64(mostAsking)
	if shared {
		most = fewAsking
	}
	if n.alone.Add(1) <= most {
		return true
	}
	n.asked()
	return false
}

func (n *line) asked() { n.alone.Add(-1) }

// join makes a place for r behind all others.
func (n *line) join(l *Limiter, r *Request) *place {
	p := &place{line: n, shared: l.mayBeShared(), came: time.Now(), turn: make(chan struct{}, 1), pause: firstPoll}
	p.spots = p.one[:0]
	if count := len(r.Asks) + 1; count > len(p.one) {
		p.spots = make([]spot, 0, count) // they do not move
	}
	n.places.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queues == nil {
		n.queues = make(map[entryKey]*queue)
		n.budget = make(chan struct{}, mostAsking-fewAsking) // fewAsking is for callers without a place
	}
	n.tickets++
	p.ticket = n.tickets
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit != nil {
			p.add(spot{limit: a.Limit, units: a.Units(), ask: i}, a.Key)
		}
	}
	if l.Instance != nil {
		p.add(spot{limit: l.Instance, units: 1, ask: -1}, instanceKey)
	}
	return p
}

func (p *place) add(s spot, key string) {
	of := entryKey{key, s.limit.id}
	q := p.line.queues[of]
	if q == nil {
		q = &queue{of: of}
	} else if q.spots == 0 {
		p.line.drop(q)
	}
	p.line.queues[of] = q
	q.spots++
	s.place, s.queue = p, q
	p.spots = append(p.spots, s)
}

// leave gives up a place, which may be nil.
func (p *place) leave() {
	if p == nil || p.line == nil {
		return
	}
	n := p.line
	n.mu.Lock()
	defer n.mu.Unlock()
	p.endAsking()
	for i := range p.spots {
		s := &p.spots[i]
		s.aside()
		if s.queue.spots--; s.queue.spots > 0 {
			s.queue.wakeFirst()
		} else {
			n.keepOrDrop(s.queue, time.Now())
		}
	}
	p.line = nil
	n.places.Add(-1)
}

// changed lets the first in line for key under l ask, because there may be more room.
func (n *line) changed(key string, l *Limit) {
	if l == nil || n.isEmpty() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[entryKey{key, l.id}]
	if q == nil {
		return
	}
	q.seen = seen{}
	q.changes++
	q.wakeFirst()
}

// delay is the longest delay under a LeakyBucket that p, which may be nil, accepts.
func (p *place) delay() (d time.Duration) {
	if d = leadOfDelays; p == nil {
		return d
	}
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	for i := range p.spots {
		d = max(d, p.spots[i].queue.delay())
	}
	return d
}

// begin lets p ask if it may. Else it returns when p may ask; the zero Time: after others have gone.
func (p *place) begin(now time.Time) (at time.Time, ok bool) {
	at, free := now, true
	if p.due.After(at) && !p.outdated() {
		at = p.due
	}
	for i := range p.spots {
		s := &p.spots[i]
		if !s.mayPass() {
			s.stand()
			free = false
			continue
		}
		due := s.due(now)
		s.told = max(s.told, due.Sub(now))
		if due.After(at) {
			at = due
		}
	}
	switch {
	case !free:
		return time.Time{}, false
	case at.After(now):
		p.keepPlaces(at.Sub(now))
		return at, false
	}
	p.asking = true
	for i := range p.spots {
		s := &p.spots[i]
		s.aside()
		s.queue.drawNext(now)
		s.changes = s.queue.changes
		s.queue.asking++
		s.queue.length++
		s.before = s.queue.asked
		s.queue.asked += s.units
		s.queue.begun += s.units
		s.begun = s.queue.begun
		s.queue.room -= s.units
		s.queue.wakeFirst()
	}
	return now, true
}

// outdated reports whether p's refusal was Busy and some of those holds may have ended.
func (p *place) outdated() bool {
	return p.busy && slices.ContainsFunc(p.spots, func(s spot) bool { return s.changes != s.queue.changes })
}

// late is how long ago p, which asks now, could have asked: timers and goroutines run late.
func (p *place) late(now time.Time) (d time.Duration) {
	n := p.line
	n.mu.Lock()
	defer n.mu.Unlock()
	d = min(mostLate, now.Sub(later(p.came, p.due)))
	for i := range p.spots {
		q := p.spots[i].queue
		turn := q.seen.at.Add(q.seen.turn(p.spots[i].limit, p.spots[i].units, 0, q.delay()))
		d = min(d, now.Sub(later(turn, q.paused)))
	}
	return max(0, d)
}

// endAsking must be called with the line's mu locked.
func (p *place) endAsking() {
	if p.budget {
		<-p.line.budget
		p.budget = false
	}
	if !p.asking {
		return
	}
	p.asking = false
	for i := range p.spots {
		s := &p.spots[i]
		s.queue.asking--
		s.queue.length--
		s.queue.asked -= s.units
	}
}

// answered notes the answer to p's request, which was decided at an instant: d, and each for its
// asks, which may be nil if there is one ask. After a refusal, p joins the lines of the limits that
// refused.
func (p *place) answered(at time.Time, took time.Duration, d *Decision, each []Decision) {
	n := p.line
	n.mu.Lock()
	defer n.mu.Unlock()
	p.endAsking()
	var wait time.Duration
	p.busy = !d.Allowed
	for i := range p.spots {
		s := &p.spots[i]
		a := s.answer(d, each)
		if a == nil {
			if d.Allowed {
				s.queue.seen = seen{}
			}
			continue
		}
		s.queue.seen, s.queue.took = saw(a, s.units, at), took
		if s.changes != s.queue.changes {
			s.queue.seen = seen{}
		}
		// Requests sent meanwhile may be decided after this one, even if they were answered earlier.
		s.queue.room = s.queue.seen.room(s.queue.delay()) - s.before - (s.queue.begun - s.begun)
		if p.shared && !a.Allowed && a.By == ByStore && !a.Busy {
			s.queue.shares.refused(s.limit, time.Now())
		}
		if !a.Allowed {
			s.told = max(s.told, a.RetryAfter)
			if a.Busy {
				s.told = max(s.told, 2*a.RetryAfter) // no pause between two polls is longer
			}
			wait = max(wait, a.RetryAfter)
			p.busy = p.busy && a.Busy
		}
	}
	p.due = time.Time{}
	switch {
	case d.Allowed:
	case d.Limit == nil && d.Penalty == nil:
		wait, p.busy = d.RetryAfter, false
		p.pausedUntil(d.Key, time.Now().Add(wait), wait)
	case d.Outcome == Banned: // there is no line for bans
		wait, p.busy = d.RetryAfter, false
		p.due = at.Add(wait)
	case p.busy:
		pause := min(p.pause, wait)
		p.pause = min(2*p.pause, max(wait, firstPoll))
		p.due = at.Add(pause/2 + rand.N(pause+1))
	}
	if !d.Allowed && wait > 0 {
		p.keepPlaces(wait)
	}
	for i := range p.spots {
		p.spots[i].queue.wakeFirst()
	}
}

func (p *place) pausedUntil(key string, end time.Time, wait time.Duration) {
	for i := range p.spots {
		if s := &p.spots[i]; s.queue.of.key == key {
			s.queue.paused, s.told = end, max(s.told, wait)
		}
	}
}

// keepPlaces makes p, which must wait for so long, stand in the lines of limits that have made it wait at
// least as long, and step aside in the others.
func (p *place) keepPlaces(wait time.Duration) {
	for i := range p.spots {
		s := &p.spots[i]
		if s.told >= wait {
			s.stand()
		} else if s.stands != nil {
			s.aside()
			s.queue.wakeFirst()
		}
	}
}

// await waits until p may ask, or ctx is done. It returns a *RefusedError at once if p's turn comes after
// ctx's deadline.
func (p *place) await(ctx context.Context) error {
	for {
		at, ok, err := p.tryBegin(ctx)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if err := p.pauseUntil(ctx, at); err != nil {
			return err
		}
	}
	if !p.shared {
		return nil
	}
	select {
	case p.line.budget <- struct{}{}:
		p.budget = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *place) tryBegin(ctx context.Context) (at time.Time, ok bool, err error) {
	n, now := p.line, time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok = p.begin(now); ok {
		return at, true, nil
	}
	if deadline, has := ctx.Deadline(); has {
		err = p.inTime(now, at, deadline)
	}
	return at, false, err
}

// pauseUntil waits until an instant or a change, whichever is first; zero: until a change.
func (p *place) pauseUntil(ctx context.Context, at time.Time) error {
	var due <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-p.turn:
	case <-due:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// inTime returns a *RefusedError if p cannot leave before a deadline: it stands first and may ask at an
// instant, or it has just joined behind others.
func (p *place) inTime(now, at, deadline time.Time) error {
	first := !at.IsZero()
	if !first && p.checked {
		return nil
	}
	p.checked = true
	for i := range p.spots {
		s := &p.spots[i]
		q := s.queue
		var ahead int64
		switch {
		case first:
		case s.stands != nil && s.stands.Next() == nil:
			ahead = q.units - s.units
		default:
			continue
		}
		turn := q.paused
		if s.limit.spec.Algorithm != InFlight {
			turn = later(turn, q.seen.at.Add(q.seen.turn(s.limit, s.units, ahead, 0)))
		}
		if turn.After(deadline) {
			d := Decision{Outcome: Limited, Limit: s.limit, Key: q.of.key, Remaining: q.seen.remaining, RetryAfter: turn.Sub(now)}
			if d.ResetAfter = max(d.RetryAfter, q.seen.reset-now.Sub(q.seen.at)); s.limit.delays() {
				d.RetryAfter -= min(d.RetryAfter-1, leadOfDelays) // a delayed request gets its place before
			}
			return &RefusedError{deadline: true, Decision: d}
		}
	}
	return nil
}
