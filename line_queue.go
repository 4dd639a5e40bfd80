package stint

import "time"

// queue is the line for a key under a limit. It is there while somebody stands in it or asks about it.
type queue struct {
	of          entryKey
	spots       int // of places, standing or not
	isKept      bool
	first, last *spot
	standing    int64 // units of those who stand
	length      int64 // how many stand or ask
	asking      int
	asked       int64 // units of those who ask
	room        int64 // units that the last answer has room for, less those asked for since
	seen        seen
	took        time.Duration // the last answer
	paused      time.Time     // until then all requests for the key are refused
	shares      shares
	changes     int // by this Limiter, after which an answer may be out of date
}

// spot is a place in one queue. next and prev are by ticket.
type spot struct {
	place      *place
	queue      *queue
	limit      *Limit
	units      int64
	ask        int           // in the request; -1: the unit of Limiter.Instance
	told       time.Duration // the longest RetryAfter of its limit
	changes    int           // of the queue, when it asked
	stands     bool
	next, prev *spot
}

// stand puts s into its queue, behind all that came before.
func (s *spot) stand() {
	if s.stands {
		return
	}
	q := s.queue
	s.stands = true
	q.standing += s.units
	q.length++
	s.prev = q.last
	for s.prev != nil && s.prev.place.ticket > s.place.ticket {
		s.prev = s.prev.prev
	}
	if s.prev != nil {
		s.next, s.prev.next = s.prev.next, s
	} else {
		s.next, q.first = q.first, s
	}
	if s.next != nil {
		s.next.prev = s
	} else {
		q.last = s
	}
}

// aside takes s out of its queue.
func (s *spot) aside() {
	if !s.stands {
		return
	}
	q := s.queue
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		q.last = s.prev
	}
	q.standing -= s.units
	q.length--
	s.stands, s.next, s.prev = false, nil, nil
}

// wakeFirst has the first look whether it may ask.
func (q *queue) wakeFirst() {
	if q.first == nil {
		return
	}
	select {
	case q.first.place.turn <- struct{}{}:
	default:
	}
}

// delay is the longest that those who wait under a LeakyBucket accept; see Limiter.WaitN. A place must be
// taken before it is due by at least as long as an answer takes, so that the pace is kept.
func (q *queue) delay() time.Duration { return min(max(leadOfDelays, 2*q.took), time.Second) }

// mayPass reports whether s may ask as far as those in its queue are concerned.
func (s *spot) mayPass() bool {
	q := s.queue
	switch {
	case q.first != nil && q.first.place.ticket < s.place.ticket:
		return false
	case q.asking == 0:
		return true
	case q.seen.limit == nil:
		return !s.stands && q.asking < fewAsking
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
