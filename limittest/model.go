package limittest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Model is a slow and simple Store, the reference for others. It remembers every request
// that it admitted while the count lives, and computes answers from this history in exact
// fractions, following the contract word by word. It shares no arithmetic with package
// stint. It implements stint.BatchTaker, stint.Refunder, stint.Resetter, stint.Violator,
// stint.Inspector and stint.Holder.
//
// The zero Model is empty and ready. It may be used from many goroutines at once. Its clock
// is time.Now. It never drops a count by itself.
type Model struct {
	mu      sync.Mutex
	counts  map[countID]*history
	holds   map[countID]map[stint.HoldID]*modelHold
	records map[recordID][]violation
	specs   map[recordID]stint.PenaltySpec // of the last violation
}

// countID is what limits must have in common to share a count.
type countID struct {
	key, name string
	algorithm stint.Algorithm
	period    time.Duration
	calendar  stint.Calendar
	buckets   int64
}

func countOf(a *stint.Ask) countID {
	if a.Limit == nil {
		return countID{key: a.Key} // no limit has this
	}
	s := a.Limit.Spec()
	if isExtreme(a.Limit) {
		return countID{key: a.Key, name: a.Limit.ID()} // nothing is ever counted there
	}
	return countID{a.Key, s.Name, s.Algorithm, s.Period, s.Calendar, subWindows(&s)}
}

func costOf(a *stint.Ask) int64 {
	switch {
	case a.Peek, a.Limit == nil, a.Limit.IsUnlimited():
		return 0
	case a.Cost == 0:
		return 1
	}
	return a.Cost
}

func (m *Model) look(a *stint.Ask, at int64) look {
	h := m.counts[countOf(a)]
	if h == nil || m.strands(a, at) {
		h = new(history)
	}
	l := look{terms: termsOf(a.Limit), h: h, now: max(at, h.last), asks: costOf(a)}
	if a.Limit.IsHeld() {
		l.held = m.heldAt(countOf(a), at)
	}
	return l
}

// strands reports whether the clock is more than a period and a second behind a charge, which then
// does not count.
func (m *Model) strands(a *stint.Ask, at int64) bool {
	h, l := m.counts[countOf(a)], termsOf(a.Limit)
	period := l.period
	if l.calendar != nil {
		start, end := l.window(at)
		period = end - start
	}
	return h != nil && h.last > at+max(period, second)
}

// Take implements stint.Store.
func (m *Model) Take(_ context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := instant(r)
	if d, banned := m.running(r, now); banned {
		for i := range r.Asks { // when the limits would allow
			a := &r.Asks[i]
			if a.Limit == nil {
				continue
			}
			if l := m.lookFor(r, a, now); !l.allows(a) {
				retry, _ := l.retry(a)
				d.RetryAfter = max(d.RetryAfter, retry)
			}
		}
		return d, nil
	}
	each := make([]stint.Decision, len(r.Asks))
	allowed := true
	for i := range r.Asks {
		a := &r.Asks[i]
		if each[i].Allowed = true; a.Limit != nil {
			l := m.lookFor(r, a, now)
			each[i].Allowed = l.allows(a)
		}
		allowed = allowed && each[i].Allowed
	}
	for i := range r.Asks {
		each[i] = m.settle(r, &r.Asks[i], now, allowed, each[i].Allowed)
	}
	copy(out, each)
	d := strictest(each)
	if !allowed {
		m.punish(r, each, now, &d)
	}
	return d, nil
}

// settle charges a, or makes its hold, if r as a whole is allowed, and answers it.
func (m *Model) settle(r *stint.Request, a *stint.Ask, now int64, allowed, fits bool) stint.Decision {
	if a.Limit == nil {
		return stint.Decision{Allowed: true, Outcome: stint.Allowed, Key: a.Key}
	}
	l := m.lookFor(r, a, now)
	d := stint.Decision{Allowed: fits, Outcome: stint.Allowed, Limit: a.Limit, Key: a.Key}
	if !fits {
		d.Outcome = stint.Limited
		d.RetryAfter, d.Busy = l.retry(a)
	}
	if allowed && l.algorithm == stint.LeakyBucket {
		d.Delay = l.delay()
	}
	if allowed && costOf(a) > 0 {
		if charges(r, a) {
			m.charge(a, &l, costOf(a))
		}
		if makesRecord(r, a) {
			m.hold(r, a, now)
		}
		if a.Penalty != nil && m.standing(recordOf(a), a.Penalty.Spec(), now) == nil {
			delete(m.records, recordOf(a)) // even if the clock gets there again
		}
		l = m.look(a, now)
	}
	d.Remaining, d.Held = l.remaining(), l.units
	d.ResetAfter = duration(l.reset())
	return d
}

func (m *Model) charge(a *stint.Ask, l *look, n int64) {
	l.h.charge(l.terms, l.now, n)
	if m.counts == nil {
		m.counts = make(map[countID]*history)
	}
	m.counts[countOf(a)] = l.h
}

// strictest is the denial with the longest wait, else the answer with the least remaining; the
// first of equals, and those without a limit last.
func strictest(each []stint.Decision) stint.Decision {
	d := slices.MinFunc(each, func(a, b stint.Decision) int {
		if by := cmp.Compare(order(&a), order(&b)); by != 0 || a.Allowed {
			return cmp.Or(by, cmp.Compare(a.Remaining, b.Remaining))
		}
		return cmp.Compare(b.RetryAfter, a.RetryAfter)
	})
	for i := range each {
		d.Delay = max(d.Delay, each[i].Delay)
	}
	return d
}

func order(d *stint.Decision) int {
	switch {
	case d.Limit == nil:
		return 2
	case d.Allowed:
		return 1
	}
	return 0
}

// TakeBatch implements stint.BatchTaker.
func (m *Model) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = m.Take(ctx, &rs[i], answers[i].Each)
	}
}

// Refund implements stint.Refunder. A count that becomes unused by it is forgotten,
// including the instant of its last charge.
func (m *Model) Refund(_ context.Context, r *stint.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := instant(r)
	for i := range r.Asks {
		a := &r.Asks[i]
		l := m.look(a, now)
		if l.used().Sign() == 0 {
			continue
		}
		if l.h.refund(l.terms, l.now, costOf(a)); l.used().Sign() == 0 {
			delete(m.counts, countOf(a))
		}
	}
	return nil
}

// Reset implements stint.Resetter.
func (m *Model) Reset(_ context.Context, r *stint.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit != nil {
			delete(m.counts, countOf(a))
		}
		if a.Penalty != nil {
			delete(m.records, recordOf(a))
		}
	}
	return nil
}

// Record implements stint.Inspector.
func (m *Model) Record(_ context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record(recordID{key, p.Spec().Name}, p.Spec(), time.Now().UnixMicro()), nil
}

func (m *Model) record(id recordID, p stint.PenaltySpec, now int64) stint.Record {
	vs := m.standing(id, p, now)
	if len(vs) > 0 {
		now = max(now, vs[len(vs)-1].at)
	}
	return stint.Record{Key: id.key, Penalty: id.name, Violations: counted(vs, forget(&p), now),
		Bans: bansBefore(vs, forget(&p), now), BanLeft: banLeft(vs, now)}
}

// Banned implements stint.Inspector. No running ban is forgotten, whatever its penalty.
func (m *Model) Banned(ctx context.Context, yield func(stint.Record) bool) error {
	m.mu.Lock()
	now := time.Now().UnixMicro()
	var all []stint.Record
	for id := range m.records {
		if r := m.record(id, m.specs[id], now); r.BanLeft > 0 {
			all = append(all, r)
		}
	}
	m.mu.Unlock()
	for _, r := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !yield(r) {
			return nil
		}
	}
	return ctx.Err()
}

// Inspect implements stint.Inspector.
func (m *Model) Inspect(_ context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()
	all := make([]stint.Stored, len(limits))
	for i, limit := range limits {
		if l := m.look(&stint.Ask{Key: key, Limit: limit}, now); l.used().Sign() > 0 {
			all[i] = stint.Stored{Held: true, Idle: duration(max(0, now-l.h.last)), Expires: duration(l.reset())}
		}
	}
	return all, nil
}

func instant(r *stint.Request) int64 {
	if r.At.IsZero() {
		return time.Now().UnixMicro()
	}
	return r.At.UnixMicro()
}
