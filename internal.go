package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// Internal is for the packages of this module, such as redislimit and fleet. Others cannot make its
// argument.
func Internal(friend.Of) internals { return internals{} }

// internals has what the packages of this module need and users do not, so that the public
// API is smaller. See docs/decisions/0041 and 0042.
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

// Decision is the answer to an ask, made of a verdict.
func (internals) Decision(a *Ask, v *algo.Verdict) (d Decision) {
	d.set(a.Key, a.Limit, v)
	return d
}

// Banned is the answer of a ban under an ask's penalty that runs for left µs.
func (internals) Banned(a *Ask, left int64) Decision {
	ban := algo.Duration(left)
	return Decision{Outcome: Banned, Key: a.Key, RetryAfter: ban, BanLeft: ban, Penalty: a.Penalty}
}

// Blamed is the answer to asks of which each refuses or not, where a violation of by's key counted
// under its penalty; see Decision.Penalty. It is not punished yet. It has no Limit if none of them
// led to a violation.
func (internals) Blamed(asks []Ask, each []Decision, by *Ask) Decision {
	return blamed(asks, each, by)
}

// Punish adds to d, a refusal, what followed under p, if the violation was counted.
func (internals) Punish(d *Decision, p *Penalty, came algo.Punishment) { d.punish(p, came) }

// Punished is the index in r of the first ask whose record d, the answer to r, is about; -1 if
// there is none.
func (internals) Punished(d *Decision, r *Request) int { return d.punished(r) }

// Sentence is what one violation more would lead to for a key with this record under p.
func (internals) Sentence(p *Penalty, r *Record) algo.Punishment {
	plan := &p.counted.Plan
	const now = 1
	return plan.Punish(&algo.Record{Last: now, Violations: r.Violations, Until: now, Bans: r.Bans, Forget: plan.Forget}, now, 1)
}

// Record is a key's record under a penalty at an instant in µs.
func (internals) Record(key string, p *Penalty, r *algo.Record, now int64) Record {
	return recordOf(key, &p.counted, r, now)
}

// Leased is how many units of l all instances together may have charged ahead, as Spec.Lease
// says; 0: none.
func (internals) Leased(l *Limit) int64 { return l.lease }

// SetUnits makes a take n units, and peek where n is 0.
func (internals) SetUnits(a *Ask, n int64) { a.Cost, a.Peek = n, n == 0 }

// Holds tells whether r, if it is allowed, holds units by one of its asks: see HoldsBy.
func (internals) Holds(r *Request) bool {
	return r.Hold != HoldID{} && slices.ContainsFunc(r.Asks, func(a Ask) bool { return a.holds() })
}

// HoldsBy tells whether a makes a record if its request has a Hold and is allowed.
func (internals) HoldsBy(a *Ask) bool { return a.holds() }

// Check returns an error that wraps ErrRequest if r breaks a rule stated with Request and
// Ask.
func (internals) Check(r *Request) error { return r.check() }

// IsShared tells whether a decision by s was counted by the Store that counts for all.
func (internals) IsShared(s Source) bool { return s == ByStore || s == ByLease }

// ErrNotCharged is fleet.ErrNotCharged, which this package looks for and does not export.
func (internals) ErrNotCharged() error { return errNotCharged }

// OrDefault is l, or the limit that a nil Limit is.
func (internals) OrDefault(l *Limit) *Limit { return l.orDefault() }

// WithFallback returns a Limiter that answers in time whatever the network does: where
// l's Store is Networked, another one over the same counts, those of Instance among
// them; else l itself.
func (internals) WithFallback(l *Limiter) *Limiter {
	s, ok := l.Store.(Networked)
	if !ok {
		return l
	}
	return &Limiter{Store: s.WithFallback(), Instance: l.Instance, Observe: l.Observe, ObserveHold: l.ObserveHold, OnError: l.OnError, of: l}
}

// Keep returns the Reservation of a request with a Hold that l.Take decided, as Limiter.Reserve
// does of one that it decides: d is the answer, and each holds those to its asks. nil: r was
// refused.
func (internals) Keep(l *Limiter, r *Request, each []Decision, d *Decision) *Reservation {
	return l.reservation(r, each, d)
}

// TakeOrWait takes r as Limiter.TakeWait does; with refuse it does not wait, also for no delay, and a
// refusal is a *RefusedError. It holds the units of limits that are held. The Reservation is nil if
// nothing is.
func (internals) TakeOrWait(ctx context.Context, l *Limiter, r *Request, refuse bool) (held *Reservation, err error) {
	hold := slices.ContainsFunc(r.Asks, func(a Ask) bool { return a.Limit.IsHeld() })
	if !refuse {
		return l.waitFor(ctx, r, hold, nil)
	}
	held, d, err := l.take(ctx, r.Asks, hold)
	if err == nil && !d.Allowed {
		err = &RefusedError{Decision: d}
	}
	return held, err
}

// TakeOne takes a unit of key under limit. shape: it is refused if its Delay would be longer than
// maxDelay. An error names the limit.
func (internals) TakeOne(ctx context.Context, l *Limiter, key string, limit *Limit, shape bool, maxDelay time.Duration) (d Decision, err error) {
	if shape {
		d, err = l.Take(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit, MaxDelay: maxDelay}}}, nil)
	} else {
		d, err = l.Allow(ctx, key, limit)
	}
	if err != nil {
		return Decision{}, fmt.Errorf("limit %s: %w", limit, err)
	}
	return d, nil
}

// RefuseDelayed turns d, which is allowed after a Delay longer than longest, into a refusal by the limit
// with that delay. each are the decisions that d is made of.
func (internals) RefuseDelayed(d *Decision, each []Decision, longest time.Duration) {
	delay := d.Delay
	for i := range each {
		if e := &each[i]; e.Limit != nil && e.Delay == delay {
			*d = *e
			break
		}
	}
	d.Allowed, d.Outcome, d.RetryAfter, d.Delay = false, Limited, delay-max(0, longest), 0
}

// Refused returns the decision and the message of the *RefusedError that err is or wraps. A call that was
// allowed and cannot wait out its delay is refused with it.
func (internals) Refused(err error) (d Decision, message string, ok bool) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return Decision{}, "", false
	}
	d = refused.Decision
	if d.Allowed {
		internals{}.RefuseDelayed(&d, nil, 0)
	}
	return d, refused.Message, true
}

// BanRan reports whether d, a refusal by a ban, is due to one that ran already, and did not begin with it.
func (internals) BanRan(d *Decision) bool {
	return d.Outcome == Banned && (d.Violations == 0 || d.Remembered)
}

// JoinKey makes one key of n parts. It is empty if all of them are.
func (internals) JoinKey(n int, part func(i int) string) string {
	var b []byte
	empty := true
	for i := range n {
		text := part(i)
		empty = empty && text == ""
		// The length comes first: without a separator, a client can forge none.
		b = strconv.AppendInt(b, int64(len(text)), 10)
		b = append(b, ':')
		b = append(b, text...)
	}
	if empty {
		return ""
	}
	return string(b)
}

// Counted returns the key that a call with key k counts under, and "" if it counts nowhere.
func (internals) Counted(a Anonymous, k string) (string, error) { return a.key(k) }

// WarnUnnamed logs for a package that limit has no name, if others may count in l's Store.
func (internals) WarnUnnamed(pkg string, l *Limiter, limit *Limit) {
	if limit.spec.Name == "" && l.mayBeShared() {
		slog.Default().Warn(pkg+": a limit without a name shares its counts with all unnamed limits of the same algorithm and period in the store: give it a name",
			"limit", limit.Terms(), "better", "NAME: "+limit.Terms())
	}
}

// SetMaxOwed bounds the bytes of settlements that l keeps until its Store answers. Call it before l
// is used.
func (internals) SetMaxOwed(l *Limiter, bytes int64) { l.keeper.most = int(bytes) }

// OnLost has f called, in place of a line of the log, when a settlement that l made in the background
// was lost: with a limit of the request, and why. It may be called from many goroutines, and must
// return soon. Call OnLost before l is used.
func (internals) OnLost(l *Limiter, f func(*Limit, error)) { l.keeper.onLost = f }

// Owes reports whether l keeps settlements that its Store has not answered.
func (internals) Owes(l *Limiter) bool {
	k := &l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes > 0
}

// UnderAMinute reports whether the period of l is less than a minute. Limits of the calendar, those that
// are in flight, and nil have none.
func (internals) UnderAMinute(l *Limit) bool {
	return l != nil && l.spec.Period > 0 && l.spec.Period < time.Minute
}

// Probe asks s for a decision and returns why it made none; nil: it decides. It takes a
// unit of key, under a limit of its own: a server that is a replica, or full, still
// answers requests that take nothing. l, which may be nil, and key say which server is asked.
func (internals) Probe(ctx context.Context, s Store, l *Limit, key string) error {
	limit := probing
	if (internals{}).UnderAMinute(l) {
		limit = probingSeconds
	}
	_, err := s.Take(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit}}}, nil)
	return err
}

// The limits of probes, which must not find them exhausted. Their name keeps their counts apart from
// those of callers.
var (
	probing        = MustLimit("stint probe: 1000000 per 1m")
	probingSeconds = MustLimit("stint probe: 1000000 per 1s")
)

// DryRun fills out with what s would answer now to each ask of r if it came alone. It
// takes nothing and counts no violation. Penalties play no part: see Record. out must have
// a place for each ask. The errors are those of Limiter.Take.
func (internals) DryRun(ctx context.Context, s Store, r *Request, out []Decision) error {
	if err := r.check(); err != nil {
		return err
	}
	if len(out) != len(r.Asks) {
		return fmt.Errorf("stint: %w: room for %s on %s", ErrRequest, spelling.Several(len(out), "decision"), spelling.Several(len(r.Asks), "ask"))
	}
	dry := *r
	dry.Asks = make([]Ask, 0, len(r.Asks)+1)
	for _, a := range r.Asks {
		if a.Limit == nil {
			return fmt.Errorf("stint: %w: key %q has no limit: a dry run needs one", ErrRequest, limittext.Clip(a.Key))
		}
		a.Penalty = nil
		dry.Asks = append(dry.Asks, a)
	}
	// One that is always refused, under the same key, so that a Cluster asks one node.
	dry.Asks = append(dry.Asks, Ask{Key: r.Asks[0].Key, Limit: refusing, Cost: refusing.Capacity() + 1})
	all := make([]Decision, len(dry.Asks))
	_, err := s.Take(ctx, &dry, all)
	copy(out, all)
	return err
}

// refusing is the limit of the ask that keeps a DryRun from taking anything.
var refusing = MustLimit("stint dry run: 1 per 1s")

// Now is the instant in µs since 1970 at which m would decide.
func (internals) Now(m *Memory) int64 { return m.open().Now() }

// RoomOfHolds is how many records of holds were made in m, those that ran out and were not dropped
// yet among them, and how many there may be.
func (internals) RoomOfHolds(m *Memory) (made, most int64) { return m.open().Holds() }

// SetLeastCost says that no request to m costs less, because each unit counts as several
// where several instances share a limit: a key with less left is exhausted then, and does
// not give way to others. 0: 1.
func (internals) SetLeastCost(m *Memory, cost int64) { m.open().SetLeastCost(cost) }

// Learn makes the counts of m agree with the answers of another Store to r, so that m can
// decide in its place: d is the answer to r, and each holds those to its asks. late is how long ago
// the Store may have decided. It keeps what it has room for. It makes Delays longer that may overlap
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

// Placed says that until t, in µs since 1970, places in queues may be taken that m gave in place of
// another Store. It must be said before m gives one.
func (internals) Placed(m *Memory, t int64) { m.open().Placed(t) }

// LearnHold makes the counts of m agree with the answer of another Store to c, as Learn does.
func (internals) LearnHold(m *Memory, c *HoldCall) {
	call := c.counted()
	call.Found, call.Released, call.Charged = c.Found, c.Released, c.Charged
	call.Verdict.Remaining, call.Verdict.Held = c.Remaining, c.Held
	m.open().LearnHold(&call, counts.OwnClock)
}
