package stint

import (
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// Internal is for the packages of this module that keep counts or stand before those that
// do: redislimit and fleet. Its methods speak of types that no other module can import, and
// may change in any release.
func Internal() internals { return internals{} }

// internals has what those packages need of limits, asks, decisions and a Memory, so that
// none of it is a method which everybody sees. See docs/decisions/0041.
type internals struct{}

// Plan is a limit's arithmetic.
func (internals) Plan(l *Limit) *algo.Plan { return &l.counted.Plan }

// Salt is a hash of the limit's ID: equal for equal IDs, and different in each process.
func (internals) Salt(l *Limit) uint64 { return l.counted.Salt }

// PlanOf is the arithmetic of an ask's limit for that ask; see Ask.MaxDelay.
func (internals) PlanOf(a *Ask) *algo.Plan {
	return a.Limit.counted.Plan.WithDelay(a.Units(), a.MaxDelay)
}

// PenaltyPlan is a penalty's arithmetic.
func (internals) PenaltyPlan(p *Penalty) *algo.Penalty { return &p.counted.Plan }

// Decision is the answer to an ask that a verdict means.
func (internals) Decision(a *Ask, v *algo.Verdict) (d Decision) {
	d.set(a.Key, a.Limit, v)
	return d
}

// Banned is the answer of a ban under an ask's penalty that runs for left µs.
func (internals) Banned(a *Ask, left int64) Decision {
	ban := algo.Duration(left)
	return Decision{Outcome: Banned, Key: a.Key, RetryAfter: ban, BanLeft: ban, Penalty: a.Penalty}
}

// Punish makes d, a refusal, as grave as what came of it under p, if it was counted.
func (internals) Punish(d *Decision, p *Penalty, came algo.Punishment) { d.punish(p, came) }

// Punished is the place in r of an ask with the record that d, the answer to r, speaks of;
// -1: there is none, or it may be one of several.
func (internals) Punished(d *Decision, r *Request) int { return d.punished(r) }

// Record is a key's record under a penalty at an instant in µs.
func (internals) Record(key string, p *Penalty, r *algo.Record, now int64) Record {
	return recordOf(key, &p.counted, r, now)
}

// Now is the instant in µs since 1970 at which m would decide.
func (internals) Now(m *Memory) int64 { return m.open().Now() }

// SetLeastCost says that no request to m costs less, because each unit counts as several
// where several instances share a limit: a key with less left is exhausted then, and does
// not give way to others. 0: 1.
func (internals) SetLeastCost(m *Memory, cost int64) { m.open().SetLeastCost(cost) }

// Look is what m would answer to each ask of r by itself. It takes nothing and looks at no
// penalty. out has a place for each ask.
func (internals) Look(m *Memory, r *Request, out []Decision) {
	asks := r.counted(nil)
	m.open().Look(asks, r.instant())
	for i := range asks {
		out[i] = Internal().Decision(&r.Asks[i], &asks[i].Verdict)
	}
}

// Learn makes the counts of m agree with the answers of another Store to r, so that m can
// decide in its place: d is the answer to r, and each holds those to its asks. It keeps
// what it has room for.
func (internals) Learn(m *Memory, r *Request, d *Decision, each []Decision) {
	var few [fewAsks / 2]counts.Ask
	c, asks := m.open(), r.counted(few[:])
	if i := d.punished(r); i >= 0 {
		c.LearnRecord(&asks[i], d.punishment(), r.instant())
	}
	if d.Limit == nil {
		return // a running ban answered, or no limit was asked
	}
	for i := range asks {
		asks[i].Verdict.Remaining = each[i].Remaining
	}
	c.Learn(asks, d.Allowed, r.instant())
}
