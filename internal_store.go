package stint

import (
	"slices"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// Plan is a limit's arithmetic.
func (internals) Plan(l *Limit) *algo.Plan { return &l.counted.Plan }

// PlanOf is the arithmetic of an ask's limit, with its MaxDelay.
func (internals) PlanOf(a *Ask) *algo.Plan {
	return a.Limit.counted.Plan.WithDelay(a.Units(), a.MaxDelay)
}

// PenaltyPlan is a penalty's arithmetic.
func (internals) PenaltyPlan(p *Penalty) *algo.Penalty { return &p.counted.Plan }

// Salt is a hash of the limit's ID: equal for equal IDs, and different in each process.
func (internals) Salt(l *Limit) uint64 { return l.counted.Salt }

// Leased is how many units of l all instances together may have charged ahead, as Spec.Lease
// says; 0: none.
func (internals) Leased(l *Limit) int64 { return l.lease }

// Decision is the answer to an ask, from a verdict.
func (internals) Decision(a *Ask, v *algo.Verdict) (d Decision) {
	d.set(a.Key, a.Limit, v)
	return d
}

// Banned is the refusal by a ban under an ask's penalty with left µs to go.
func (internals) Banned(a *Ask, left int64) Decision {
	ban := algo.Duration(left)
	return Decision{Outcome: Banned, Key: a.Key, RetryAfter: ban, BanLeft: ban, Penalty: a.Penalty}
}

// Blamed is the answer to asks after a violation of by's key was counted under its penalty; see
// Decision.Penalty. It is not punished yet. It has no Limit if no refusal led to the violation.
func (internals) Blamed(asks []Ask, each []Decision, by *Ask) Decision {
	return blamed(asks, each, by)
}

// Punish adds the consequence of a counted violation under p to d, which is a refusal.
func (internals) Punish(d *Decision, p *Penalty, came algo.Punishment) { d.punish(p, came) }

// Punished is the index of the first ask in r with the key and penalty of d, the answer to r;
// -1: none.
func (internals) Punished(d *Decision, r *Request) int { return d.punished(r) }

// Record is a key's record under a penalty at an instant in µs.
func (internals) Record(key string, p *Penalty, r *algo.Record, now int64) Record {
	return recordOf(key, &p.counted, r, now)
}

// Holds reports whether r, once allowed, holds units by one of its asks: see HoldsBy.
func (internals) Holds(r *Request) bool {
	return r.Hold != HoldID{} && slices.ContainsFunc(r.Asks, func(a Ask) bool { return a.holds() })
}

// HoldsBy reports whether a makes a record if its request has a Hold and is allowed.
func (internals) HoldsBy(a *Ask) bool { return a.holds() }

// SetUnits makes a take n units, or peek if n is 0.
func (internals) SetUnits(a *Ask, n int64) { a.Cost, a.Peek = n, n == 0 }

// ErrNotCharged is fleet.ErrNotCharged, which this package looks for and does not export.
func (internals) ErrNotCharged() error { return errNotCharged }

// Now is the instant in µs since 1970 at which m would decide.
func (internals) Now(m *Memory) int64 { return m.open().Now() }

// SetLeastCost sets the least cost of requests to m; it is above 1 if instances share a
// limit, because each unit then counts as several. A key with less left is exhausted and
// does not give way to others. 0: 1.
func (internals) SetLeastCost(m *Memory, cost int64) { m.open().SetLeastCost(cost) }

// Learn makes the counts of m agree with the answers of another Store to r, so that m can decide in
// its place: d is the answer to r, and each has the answers to its asks. late is how long ago the
// Store may have decided. It keeps as much as it has room for. It lengthens Delays that may overlap
// places in the queue of a LeakyBucket which m gave; see Placed.
func (internals) Learn(m *Memory, r *Request, d *Decision, each []Decision, late time.Duration) {
	var few [fewAsks / 2]counts.Ask
	c, asks := m.open(), r.counted(few[:])
	if i := d.punished(r); i >= 0 {
		c.LearnRecord(&asks[i], d.punishment(), r.instant())
	}
	if d.Limit == nil {
		return // a running ban answered, or no limit was asked
	}
	for i := range asks {
		v := &asks[i].Verdict
		v.Remaining, v.Held, v.Delay = each[i].Remaining, each[i].Held, each[i].Delay.Microseconds()
	}
	c.Learn(asks, r.holding(), d.Allowed, late.Microseconds(), r.instant())
	for i := range asks {
		if delay := algo.Duration(asks[i].Verdict.Delay); delay > each[i].Delay {
			each[i].Delay, d.Delay = delay, max(d.Delay, delay)
		}
	}
}

// Placed says that places in queues which m gave in place of another Store may be taken until t, in
// µs since 1970. Call it before m gives one.
func (internals) Placed(m *Memory, t int64) { m.open().Placed(t) }

// LearnHold makes the counts of m agree with the answer of another Store to c, as Learn does.
func (internals) LearnHold(m *Memory, c *HoldCall) {
	call := c.counted()
	call.Found, call.Released, call.Charged = c.Found, c.Released, c.Charged
	call.Verdict.Remaining, call.Verdict.Held = c.Remaining, c.Held
	m.open().LearnHold(&call, counts.OwnClock)
}

// MemoryFor returns a Memory for one decision of a Store that keeps its counts elsewhere: empty,
// unbounded, and with a clock that starts at now, in µs.
func (internals) MemoryFor(now int64) *Memory {
	m := new(Memory)
	m.counts.OpenFor(now)
	return m
}

// Put stores k for key under l in m, which has nothing for them; see Kept.
func (internals) Put(m *Memory, key string, l *Limit, k *counts.Kept) {
	m.counts.Put(key, &l.counted, k)
}

// Kept returns what m keeps for key under l. It is valid until m is used again.
func (internals) Kept(m *Memory, key string, l *Limit) counts.Kept {
	return m.counts.Kept(key, &l.counted)
}

// PutRecord stores r as the record of key under p in m, which has none.
func (internals) PutRecord(m *Memory, key string, p *Penalty, r *algo.Record) {
	m.counts.PutRecord(key, &p.counted, r)
}

// KeptRecord returns m's record of key under p, zero if there is none.
func (internals) KeptRecord(m *Memory, key string, p *Penalty) algo.Record {
	r, _ := m.counts.Record(key, &p.counted)
	return r
}
