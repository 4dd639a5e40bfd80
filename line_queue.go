package stint

import (
	"container/list"
	"time"
)

// queue is the line for a key under a limit. It is there while somebody stands in it or asks about it.
type queue struct {
	of       entryKey
	spots    int       // of places, standing or not
	standing list.List // of *spot, by ticket
	units    int64     // of those who stand
	length   int64     // how many stand or ask
	asking   int
	asked    int64 // units of those who ask
	begun    int64 // units of all that have asked
	room     int64 // units that the last answer has room for, less those asked for since
	seen     seen
	took     time.Duration // the last answer
	paused   time.Time     // until then all requests for the key are refused
	shares   shares
	changes  int // by this Limiter, after which an answer may be out of date
}

// spot is a place in one queue.
type spot struct {
	place   *place
	queue   *queue
	limit   *Limit
	units   int64
	ask     int           // in the request; -1: the unit of Limiter.Instance
	told    time.Duration // the longest RetryAfter of its limit
	changes int           // of the queue, when it asked
	before  int64         // units that others were asking for then
	begun   int64         // units that had been asked for then, its own among them
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

// first is the place of who stands first; nil: nobody stands.
func (q *queue) first() *place {
	if e := q.standing.Front(); e != nil {
		return e.Value.(*spot).place
	}
	return nil
}

// wakeFirst has the first look whether it may ask.
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

// delay is the longest that those who wait under a LeakyBucket accept; see Limiter.WaitN. A place must be
// taken before it is due by at least as long as an answer takes, so that the pace is kept.
func (q *queue) delay() time.Duration { return min(max(leadOfDelays, 2*q.took), time.Second) }

// mayPass reports whether s may ask as far as those in its queue are concerned.
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

// due is when s may ask, as far as its limit and other instances are concerned.
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

// answer is that to the ask of s, of those to a request; nil: there is none.
func (s *spot) answer(d *Decision, each []Decision) *Decision {
	switch {
	case (d.By == ByInstance) != (s.ask < 0), d.Limit == nil && !d.Allowed:
		return nil
	case s.ask < 0 || each == nil:
		return d
	}
	return &each[s.ask]
}
