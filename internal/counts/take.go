package counts

import "github.com/stintdev/stint/internal/algo"

// step is the state of one ask between looking and settling.
type step struct {
	count
	view    algo.View
	asked   int64 // units that must fit
	take    int64 // units that are charged if the request is allowed
	hold    int64 // units that are held if the request is allowed
	crowded bool  // no room for another record
	charged bool  // charged, and its count must be added
	unused  int64 // the instant from which the count is unused
}

// fewAsks is how many asks are decided without allocating.
const fewAsks = 8

// Take decides asks: all are charged, or none. Those under held limits hold units, unless by is nil.
// It gives each its Verdict, and makes d, which must be zero, the answer to all.
func (m *Memory) Take(asks []Ask, by *Holding, at int64, d *Answer) error {
	if len(asks) > 1 && m.takeFew(asks, at) {
		d.strictest(asks)
		return nil
	}
	var few [fewAsks]uint64
	defer m.unlock(m.lock(asks, few[:0]))
	return m.take(asks, by, m.at(at), at == OwnClock, d)
}

// take is Take with the shards locked. own says that now is by the Memory's own clock.
func (m *Memory) take(asks []Ask, by *Holding, now int64, own bool, d *Answer) error {
	ban, stale := m.ban(asks, now)
	if ban.By != None {
		m.lookAt(asks, by, now, own)
		*d = Answer{Of: None, Wait: longestWait(asks), Punishment: ban}
		return nil
	}
	var steps []step
	switch n := len(asks); { // on the stack, and no more of it than needed
	case n == 1:
		var one [1]step
		steps = one[:]
	case n <= fewAsks:
		var few [fewAsks]step
		steps = few[:n]
	default:
		steps = make([]step, n)
	}
	allowed := true
	for i := range steps {
		a, s := &asks[i], &steps[i]
		if a.Limit == nil {
			continue
		}
		if !m.lookBeside(a.Key, a.Limit, &s.count, steps[:i]) {
			release(steps[:i])
			d.Of = i
			return ErrTwice
		}
		s.look(a, by, now, own)
		allowed = a.plan().Fits(&s.view, s.asked) && allowed
	}
	if allowed && (!placeHolds(steps, now, own) || !m.place(steps, now, own)) {
		release(steps)
		return ErrFull
	}
	if allowed && by != nil {
		holdAll(asks, steps, by, now, own)
	}
	settle(asks, steps, allowed)
	d.strictest(asks)
	if !allowed {
		if d.Punishment = m.punish(asks, now, own); d.Punishment.By != None {
			d.blame(asks)
		}
	} else if stale {
		m.dropStale(asks, now)
	}
	return nil
}

// look views the count of an ask, and what the ask would do to it.
func (s *step) look(a *Ask, by *Holding, now int64, own bool) {
	s.view = a.Limit.Plan.Look(s.state(), now)
	s.asked, s.take = a.Cost, a.Cost
	if a.Limit.Plan.Held() {
		s.lookHeld(a, by, now, own)
	}
}

func release(steps []step) {
	for i := range steps {
		steps[i].release()
	}
}

// longestWait is the longest wait of refused asks, in µs, or algo.Never.
func longestWait(asks []Ask) (wait int64) {
	for i := range asks {
		if retry := asks[i].Verdict.Retry; uint64(retry) > uint64(wait) { // Never is the longest
			wait = retry
		}
	}
	return wait
}

// place finds room for the new counts about to be charged: for all, or for none, and then evicts
// nothing.
func (m *Memory) place(steps []step, now int64, own bool) bool {
	missing := false
	for i := range steps {
		if e := steps[i].entry; e != nil {
			e.pinned = true
		}
		missing = missing || steps[i].isMissing()
	}
	placed := !missing || m.placeMissing(steps, now, own)
	for i := range steps {
		if e := steps[i].entry; e != nil {
			e.pinned = false
		}
	}
	return placed
}

// isMissing reports whether a count must be added if the request is allowed.
func (s *step) isMissing() bool { return s.take > 0 && !s.found() }

func (m *Memory) placeMissing(steps []step, now int64, own bool) bool {
	var victims []victim
	full := false
	for i := range steps {
		s := steps[i].shard
		if !steps[i].isMissing() {
			continue
		}
		s.sweep(now, own)
		if s.counts()+s.reserved < s.room {
			s.reserved++
			continue
		}
		v := s.victim(now, m.least.Load(), false)
		if full = !v.found(); full {
			break
		}
		v.shard = s
		victims = append(victims, v)
	}
	for i := range steps {
		if s := steps[i].shard; s != nil {
			s.reserved = 0
		}
	}
	for i := range victims {
		if full {
			victims[i].spare()
		} else {
			victims[i].shard.evict(&victims[i])
		}
	}
	return !full
}

// settle charges the counts or not, and gives verdicts. New counts come last: a table may grow for
// them, which needs all slots unlocked.
func settle(asks []Ask, steps []step, allowed bool) {
	for i := range steps {
		a, s := &asks[i], &steps[i]
		if a.Limit == nil {
			a.Verdict = algo.Verdict{Allowed: true}
			continue
		}
		if allowed && s.take > 0 {
			s.prepare(a.Limit, &s.view)
		}
		s.decide(a, allowed)
		if !allowed || s.take == 0 {
			s.release()
			continue
		}
		s.unused = s.view.Now + a.Verdict.Reset
		s.charged = !s.count.charged(a.Limit, s.unused)
	}
	for i := range steps {
		if s := &steps[i]; s.charged {
			s.add(asks[i].Limit, s.unused)
		}
	}
}
