package stint

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/stintdev/stint/internal/algo"
)

// findRecord returns a key's record under a penalty, nil if there is none, and its
// shard.
func (m *Memory) findRecord(key string, p *Penalty) (*shard, *entry) {
	hash := m.hash(key)
	s := m.shardOf(hash)
	return s, s.index[printOf(hash, p.salt)]
}

// addRecord adds an unused record. The key is copied, for it may be a piece of
// something large; one that is long itself is hashed.
func (m *Memory) addRecord(s *shard, a *Ask) *entry {
	e := s.add(printOf(m.hash(a.Key), a.Penalty.salt))
	e.record = &punished{penalty: a.Penalty, key: strings.Clone(a.Key)}
	if len(a.Key) > longSubject {
		e.record.key, e.record.hashed = hashedKey(a.Key), true
	}
	return e
}

// longSubject is the length in bytes above which the key of a record is kept as a hash, in
// the form in which the Store over Redis keeps it: clients choose how long keys are.
const longSubject = 64

// bytesOfRecord is about what a record takes at most, with its place in the map.
const bytesOfRecord = 250

func hashedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "#" + base64.RawURLEncoding.EncodeToString(sum[:24])
}

// banned answers with the ban of r's keys that runs longest, if one does. stale
// tells whether a record is from a future that cannot be.
func (m *Memory) banned(r *Request, now int64) (d Decision, stale bool) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil {
			continue
		}
		if _, e := m.findRecord(a.Key, a.Penalty); e != nil {
			left := algo.Duration(a.Penalty.plan.BanLeft(&e.record.Record, now))
			stale = stale || a.Penalty.plan.Ahead(&e.record.Record, now)
			if left > d.BanLeft {
				d = Decision{Outcome: Banned, Key: a.Key, RetryAfter: left, BanLeft: left, Penalty: a.Penalty}
			}
		}
	}
	return d, stale
}

// awaitLimits makes d, the answer of a ban that runs, tell the wait for the limits of r
// where that is longer: who comes as soon as the ban is over must not be refused again.
func (m *Memory) awaitLimits(r *Request, now int64, d *Decision) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil {
			continue
		}
		var c count
		m.look(a, &c)
		v := a.Limit.plan.Look(c.state(), now)
		verdict := a.settle(c.state(), &v, false)
		c.release()
		var own Decision
		own.tell(a.Key, a.Limit, &verdict)
		d.RetryAfter = max(d.RetryAfter, own.RetryAfter)
	}
}

// dropStale forgets the records that lie too far ahead of now, of asks that were
// charged, so that no ban comes back when the clock has come to it again.
func (m *Memory) dropStale(r *Request, now int64) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil || a.Units() == 0 {
			continue
		}
		if s, e := m.findRecord(a.Key, a.Penalty); e != nil && a.Penalty.plan.Ahead(&e.record.Record, now) {
			s.remove(e)
		}
	}
}

// punish counts one violation for each key and penalty of an ask that refused.
func (m *Memory) punish(r *Request, steps []step, now int64, d *Decision) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty != nil && isFirst(r, i) && refused(r, steps, a) {
			m.violate(r, a, 1, now, d)
		}
	}
}

// isFirst tells whether ask i is the first with its key and penalty.
func isFirst(r *Request, i int) bool {
	for j := range i {
		if r.Asks[j].sharesRecord(&r.Asks[i]) {
			return false
		}
	}
	return true
}

// refused tells whether an ask with the key and penalty of a refused.
func refused(r *Request, steps []step, a *Ask) bool {
	for i := range steps {
		if !steps[i].fits && r.Asks[i].sharesRecord(a) {
			return true
		}
	}
	return false
}

// violate counts as many violations of a's key, and makes d as grave as what comes of
// them. It tells whether d now tells of these. Where there is no room to remember them
// but by forgetting what is in use, the request is refused all the same, and that is
// all.
func (m *Memory) violate(r *Request, a *Ask, times, now int64, d *Decision) bool {
	s, e := m.findRecord(a.Key, a.Penalty)
	if e == nil {
		m.sweep(s, r, now)
		if !s.makeRoom(now, m.least.Load(), true) {
			return false
		}
		e = m.addRecord(s, a)
	}
	p := &a.Penalty.plan
	e.record.penalty = a.Penalty
	sentence := p.ViolateTimes(&e.record.Record, now, times)
	e.unused = e.record.Clean()
	violations := e.record.Violations
	if sentence == algo.Banned {
		violations = p.Ban
	}
	return d.punish(a.Penalty, sentence, violations, algo.Duration(p.BanLeft(&e.record.Record, now)))
}

// lookAt is internals.Look.
func (m *Memory) lookAt(r *Request, out []Decision) {
	m.init()
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
	now := m.now(r)
	for i := range r.Asks {
		a := &r.Asks[i]
		var c count
		m.look(a, &c)
		v := a.Limit.plan.Look(c.state(), now)
		verdict := a.settle(c.state(), &v, false)
		c.release()
		out[i] = Internal().Decision(a, &verdict)
	}
}
