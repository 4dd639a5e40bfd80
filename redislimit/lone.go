package redislimit

import "github.com/stintdev/stint"

// Who finds nobody to go with, and may wait forever, makes the call on its own
// goroutine. To start another, and to be woken by it, wakes threads, which costs
// more than all else that this package does for a request.

// takeAlone makes a call of q for one request that has no deadline, of a context that
// never ends. Those who come meanwhile find a call under way, as if a goroutine had made
// it.
func (s *Store) takeAlone(q *queue, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	defer s.over(q)
	f := flights.Get().(*flight)
	f.batch.at = r.At
	s.add(&f.batch, r.Asks)
	reply, err := s.send(&f.batch)
	f.batch.reset(err)
	flights.Put(f)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.read(reply, r.Asks, 0, out)
}

// over ends a call that its caller made, or leaves it to those who wait by now.
func (s *Store) over(q *queue) {
	m := &s.merger
	m.mu.Lock()
	goOn := q.first != nil && q.coming == 0
	if goOn {
		q.coming++
	} else {
		m.end(q)
	}
	m.mu.Unlock()
	if goOn {
		go q.run()
	}
}
