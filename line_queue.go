package stint

import (
	"container/list"
	"time"
)

// queue is the line for a key under a limit. It exists while somebody stands in it or asks about it,
// and for a while after that if other instances may wait.
type queue struct {
	of       entryKey
	spots    int       // places, standing or not
	standing list.List // of *spot, by ticket
	units    int64     // of spots that stand
	length   int64     // spots that stand or ask
	asking   int
	asked    int64 // units of spots that ask
	begun    int64 // units ever asked for
	room     int64 // units that fit by the last answer, less those asked for since
	seen     seen
	took     time.Duration // the last answer
	paused   time.Time     // the key is paused until then
	shares   shares
	changes  int // by this Limiter, that make earlier answers outdated
}

// spot is a place's part in one queue.
type spot struct {
	place   *place
	queue   *queue
	limit   *Limit
	units   int64
	ask     int           // in the request; -1: the unit of Limiter.Instance
	told    time.Duration // the longest RetryAfter of its limit
	changes int           // queue.changes when it asked
	before  int64         // units that others were asking for when it asked
	begun   int64         // queue.begun when it asked, with its own units
	stands  *list.Element // in the queue; nil: it does not stand
}

// stand puts s into its queue, behind all that came before.
func (s *spot) stand() {
	if s.stands != nil {
		return
	}
	q := s.queue
	q.units += s.units
	q.length++
	before := q.standing.Back()
	for before != nil && before.Value.(*spot).place.ticket > s.place.ticket {
		before = before.Prev()
	}
	if before == nil {
		s.stands = q.standing.PushFront(s)
	} else {
		s.stands = q.standing.InsertAfter(s, before)
	}
}

// aside takes s out of its queue.
func (s *spot) aside() {
	if s.stands == nil {
		return
	}
	q := s.queue
	q.standing.Remove(s.stands)
	q.units -= s.units
	q.length--
	s.stands = nil
}

// first is the first place that stands; nil: none.
func (q *queue) first() *place {
	if e := q.standing.Front(); e != nil {
		return e.Value.(*spot).place
	}
	return nil
}

// wakeFirst makes the first check whether it may ask.
func (q *queue) wakeFirst() {
	first := q.first()
	if first == nil {
		return
	}
	select {
	case first.turn <- struct{}{}:
	default:
	}
}

// delay is the longest delay that waiting callers accept under a LeakyBucket; see Limiter.WaitN. To keep
// the pace, a place must be taken at least as long before it is due as an answer takes.
func (q *queue) delay() time.Duration { return min(max(leadOfDelays, 2*q.took), time.Second) }

// mayPass reports whether the others in its queue let s ask.
func (s *spot) mayPass() bool {
	q := s.queue
	first := q.first()
	switch {
	case first != nil && first.ticket < s.place.ticket:
		return false
	case q.asking == 0:
		return true
	case q.seen.limit == nil:
		return s.stands == nil && q.asking < fewAsking
	}
	return q.room >= s.units
}

// due is when its limit and other instances let s ask.
func (s *spot) due(now time.Time) (at time.Time) {
	q := s.queue
	if q.asking == 0 {
		at = q.seen.at.Add(q.seen.turn(s.limit, s.units, 0, q.delay()))
		q.fallsDue(at, now)
	}
	return later(at, later(q.shares.next, q.paused))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// answer is the answer to the ask of s; nil: there is none.
func (s *spot) answer(d *Decision, each []Decision) *Decision {
	switch {
	case (d.By == ByInstance) != (s.ask < 0), d.Limit == nil && !d.Allowed:
		return nil
	case s.ask < 0 || each == nil:
		return d
	}
	return &each[s.ask]
}
