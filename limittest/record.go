package limittest

import (
	"math/big"
	"time"

	"github.com/stintdev/stint"
)

// recordID identifies a record: penalties with the same key and name share one.
type recordID struct{ key, name string }

func recordOf(a *stint.Ask) recordID { return recordID{a.Key, a.Penalty.Spec().Name} }

// violation is one of a key's violations, all of which the Model remembers.
type violation struct {
	at    int64 // µs
	seen  int64 // its effective instant: at, or later if the clock is far behind
	until int64 // the end of the ban that it led to; 0: it led to none
	// forget is ForgetAfter of the violation's penalty, µs: a store may drop the record after that.
	forget int64
}

func (m *Model) running(r *stint.Request, now int64) (d stint.Decision, banned bool) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil {
			continue
		}
		if left := banLeft(m.standing(recordOf(a), a.Penalty.Spec(), now), now); left > d.BanLeft {
			d = stint.Decision{Outcome: stint.Banned, Key: a.Key, RetryAfter: left, BanLeft: left, Penalty: a.Penalty}
		}
	}
	return d, d.BanLeft > 0
}

// standing returns the violations of a record at now: none if the record is further ahead than its
// ban is long (without a ban, than violations are remembered) and than a second.
func (m *Model) standing(id recordID, p stint.PenaltySpec, now int64) []violation {
	vs := m.records[id]
	if len(vs) == 0 {
		return nil
	}
	last := vs[len(vs)-1]
	lasts := forget(&p)
	if last.until > 0 {
		lasts = last.until - last.at
	}
	if last.at-now > max(lasts, second) {
		return nil
	}
	return vs
}

func banLeft(vs []violation, now int64) time.Duration {
	if len(vs) == 0 {
		return 0
	}
	last := vs[len(vs)-1] // none is counted while a ban runs
	return duration(max(0, last.until-max(now, last.at)))
}

// punish counts one violation for each key and penalty that refused, and gives the answer the
// gravest outcome.
func (m *Model) punish(r *stint.Request, each []stint.Decision, now int64, d *stint.Decision) {
	punished, wait := make(map[recordID]bool), d.RetryAfter
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil || punished[recordOf(a)] || !refused(r, each, a) {
			continue
		}
		punished[recordOf(a)] = true
		s := m.violate(recordOf(a), a.Penalty.Spec(), now)
		s.left = banLeft(m.records[recordOf(a)], now)
		if !s.tell(d, a) {
			continue
		}
		var refusals []stint.Decision // of the named key
		for j := range r.Asks {
			if b := &r.Asks[j]; !each[j].Allowed && !each[j].Busy && b.Penalty != nil && recordOf(b) == recordOf(a) {
				refusals = append(refusals, each[j])
			}
		}
		d.Key = a.Key
		named := strictest(refusals)
		d.Limit, d.Remaining, d.Held, d.Busy, d.ResetAfter = named.Limit, named.Remaining, named.Held, named.Busy, named.ResetAfter
		d.RetryAfter = max(wait, s.left)
	}
}

func refused(r *stint.Request, each []stint.Decision, a *stint.Ask) bool {
	for i := range r.Asks {
		if b := &r.Asks[i]; !each[i].Allowed && !each[i].Busy && b.Penalty != nil && recordOf(b) == recordOf(a) {
			return true
		}
	}
	return false
}

// sentence is the consequence of a violation.
type sentence struct {
	outcome    stint.Outcome
	violations int64 // that count, with this one; for a ban, those that led to it
	left       time.Duration
}

// tell puts s into d, unless d has one at least as grave, and reports whether it did.
func (s sentence) tell(d *stint.Decision, a *stint.Ask) bool {
	if d.Violations > 0 && (s.outcome < d.Outcome || s.outcome == d.Outcome && s.left <= d.BanLeft) {
		return false
	}
	d.Outcome, d.Penalty, d.Violations, d.BanLeft = s.outcome, a.Penalty, s.violations, s.left
	d.RetryAfter = max(d.RetryAfter, s.left)
	return true
}

func (m *Model) violate(id recordID, p stint.PenaltySpec, now int64) sentence {
	vs := m.standing(id, p, now)
	clock := now
	if len(vs) > 0 {
		now = max(now, vs[len(vs)-1].at)
	}
	v := violation{at: now, seen: now, forget: forget(&p)}
	s := sentence{outcome: stint.Limited, violations: counted(vs, forget(&p), now) + 1}
	switch n := s.violations; {
	case p.BanAfter > 0 && n >= p.BanAfter:
		s.outcome, s.violations = stint.Banned, p.BanAfter
		long := term(&p, bansBefore(vs, forget(&p), now))
		if now-clock > max(long, second) { // it would not count
			v.at = clock
		}
		v.until = v.at + long
	case p.WarnAfter > 0 && n >= p.WarnAfter:
		s.outcome = stint.Warned
	}
	if m.records == nil {
		m.records = make(map[recordID][]violation)
		m.specs = make(map[recordID]stint.PenaltySpec)
	}
	m.records[id] = append(vs, v)
	m.specs[id] = p
	return s
}

// counted is how many violations count at now: those since the last ban and the last time they were
// forgotten.
func counted(vs []violation, forget, now int64) int64 {
	var n int64
	for i, v := range vs {
		if i > 0 && v.seen-vs[i-1].at >= min(vs[i-1].forget, v.forget) {
			n = 0
		}
		if n++; v.until > 0 {
			n = 0
		}
	}
	if len(vs) == 0 {
		return 0
	}
	if last := vs[len(vs)-1]; now-last.at >= min(last.forget, forget) {
		return 0
	}
	return n
}

// bansBefore is how many bans count at now: those since they were last forgotten.
func bansBefore(vs []violation, forget, now int64) int64 {
	var n, until, lasts int64
	for _, v := range vs {
		if v.seen-until >= min(lasts, v.forget) {
			n = 0
		}
		if v.until > 0 {
			n, until = n+1, v.until
		}
		lasts = v.forget
	}
	if now-until >= min(lasts, forget) {
		return 0
	}
	return n
}

// mostBan is the longest ban if PenaltySpec.MaxBan is 0.
const mostBan = 100 * 365 * 24 * time.Hour

// term is how long a ban is, in µs: BanFor · Growth^bans, at most MaxBan.
func term(p *stint.PenaltySpec, bans int64) int64 {
	growth, most := max(1, p.Growth), p.MaxBan
	if most == 0 {
		most = mostBan
	}
	long := new(big.Int).Exp(big.NewInt(growth), big.NewInt(bans), nil)
	long.Mul(long, big.NewInt(p.BanFor.Microseconds()))
	if long.Cmp(big.NewInt(most.Microseconds())) > 0 {
		return most.Microseconds()
	}
	return long.Int64()
}

func forget(p *stint.PenaltySpec) int64 {
	if p.ForgetAfter == 0 {
		return time.Hour.Microseconds()
	}
	return p.ForgetAfter.Microseconds()
}
