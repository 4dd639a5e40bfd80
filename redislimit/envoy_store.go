package redislimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// mixed is a request with some counts in Envoy's keys.
type mixed struct {
	at int64 // µs
	// own has the asks that are counted in Stint's keys, and one without a limit for each
	// penalty of the others. It may have no asks.
	own part
	// envoy has the other asks, and counts their counts.
	envoy  part
	counts envoyRequest
}

// mixedOf returns r as a mixed request; nil: r has no counts in Envoy's keys.
func (s *Store) mixedOf(r *stint.Request) *mixed {
	if s.envoy == nil {
		return nil
	}
	m := &mixed{at: envoyInstant(r.At)}
	m.own.request, m.envoy.request = *r, *r
	m.own.request.Asks, m.envoy.request.Asks = nil, nil
	m.counts.what = envoyTake
	for i, a := range r.Asks {
		p := &m.own
		if c, ok := s.envoyCount(a.Limit, a.Key, a.Units(), m.at); ok {
			p = &m.envoy
			m.counts.counts = append(m.counts.counts, c)
			if a.Penalty != nil {
				m.own.request.Asks = append(m.own.request.Asks, stint.Ask{Key: a.Key, Penalty: a.Penalty})
				m.own.places = append(m.own.places, i)
			}
		}
		p.request.Asks = append(p.request.Asks, a)
		p.places = append(p.places, i)
	}
	if len(m.counts.counts) == 0 {
		return nil
	}
	return m
}

// isAlone reports whether m has only counts in Envoy's keys.
func (m *mixed) isAlone() bool { return len(m.own.request.Asks) == 0 }

// takeMixed decides r, from which m was made. It first takes in Stint's keys, which have the bans,
// and then in Envoy's. If the latter refuse, it refunds the former.
func (s *Store) takeMixed(ctx context.Context, m *mixed, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if r.Deadline > 0 { // of all calls together
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, notSent(err)
	}
	own := &m.own
	var parts []*part
	if !m.isAlone() {
		own.each = make([]stint.Decision, len(own.request.Asks))
		own.decision, _, own.err = s.takeOwn(ctx, &own.request, own.each)
		if own.err != nil || own.decision.Outcome == stint.Banned && own.decision.Limit == nil {
			return own.decision, own.err
		}
		if !own.decision.Allowed {
			m.counts.what = envoyLook
		}
		parts = append(parts, own)
	}
	s.takeEnvoy(ctx, &m.counts)
	err := m.counts.err
	if err == nil {
		err = m.decide()
	}
	refunded := true
	if len(parts) > 0 && own.decision.Allowed && (err != nil || !m.counts.fits) {
		refunded = s.refundParts(ctx, parts)
	}
	if err == nil && !m.counts.fits {
		err = s.punish(ctx, &m.envoy, own)
	}
	if err != nil {
		if len(parts) > 0 && errors.Is(err, fleet.ErrNotCharged) && own.decision.Allowed {
			err = slotsError(ctx, []error{err}, refunded)
		}
		return stint.Decision{}, err
	}
	return join(r, append(parts, &m.envoy), out), nil
}

// decide makes decisions from the answer about Envoy's counts.
func (m *mixed) decide() error {
	p := &m.envoy
	p.each = make([]stint.Decision, len(p.request.Asks))
	charged := m.counts.fits && m.counts.what == envoyTake
	for i := range p.each {
		a := &p.request.Asks[i]
		view := algo.View{Now: m.at, Used: min(m.counts.used[i], algo.Exact)}
		within := kit.PlanOf(a)
		if charged && !within.Fits(&view, a.Units()) {
			return badReply("charged at %d used", view.Used)
		}
		v := within.SettleSmall(&view, a.Units(), charged)
		p.each[i] = kit.Decision(a, &v)
	}
	p.decision = stint.Strictest(p.each)
	return nil
}

// punish counts the violations of the refusing asks of p, except those that own has counted: a request
// counts one violation for each key and penalty.
func (s *Store) punish(ctx context.Context, p, own *part) error {
	violating := stint.Request{At: p.request.At}
	for i := range p.each {
		if a := &p.request.Asks[i]; p.violates(i) && !own.counted(a) {
			violating.Asks = append(violating.Asks, stint.Ask{Key: a.Key, Penalty: a.Penalty})
		}
	}
	if len(violating.Asks) == 0 {
		return nil
	}
	d, err := s.Violate(ctx, &violating)
	if err != nil {
		return err
	}
	p.decision.Key = d.Key
	p.decision.Outcome, p.decision.Penalty, p.decision.Violations, p.decision.BanLeft = d.Outcome, d.Penalty, d.Violations, d.BanLeft
	return nil
}

// violates reports whether the i-th ask refuses and that counts under its penalty.
func (p *part) violates(i int) bool {
	d := &p.each[i]
	return !d.Allowed && !d.Busy && p.request.Asks[i].Penalty != nil && p.request.Asks[i].Limit != nil
}

// counted reports whether p counted a violation for a's key and penalty.
func (p *part) counted(a *stint.Ask) bool {
	for i := range p.each {
		if b := &p.request.Asks[i]; p.violates(i) && b.Key == a.Key && b.Penalty.ID() == a.Penalty.ID() {
			return true
		}
	}
	return false
}

// takeBatchMixed is TakeBatch if some requests have counts in Envoy's keys; all has nil for the
// others. Requests with only such counts go in one call, except in a Cluster.
func (s *Store) takeBatchMixed(ctx context.Context, all []*mixed, rs []stint.Request, answers []stint.Answer) {
	var own, together []int
	for i, m := range all {
		switch {
		case m == nil:
			own = append(own, i)
		case !s.conn.Cluster() && m.isAlone():
			together = append(together, i)
		default:
			answers[i].Decision, answers[i].Err = s.takeMixed(ctx, m, &rs[i], answers[i].Each)
		}
	}
	if len(own) > 0 {
		ownRequests, ownAnswers := make([]stint.Request, len(own)), make([]stint.Answer, len(own))
		for j, i := range own {
			ownRequests[j], ownAnswers[j] = rs[i], answers[i]
		}
		s.takeBatchOwn(ctx, ownRequests, ownAnswers)
		for j, i := range own {
			answers[i] = ownAnswers[j]
		}
	}
	for some := range slices.Chunk(together, mostInCall) {
		counts := make([]*envoyRequest, len(some))
		for j, i := range some {
			counts[j] = &all[i].counts
		}
		s.runEnvoy(ctx, counts...)
		for _, i := range some {
			m, a := all[i], &answers[i]
			if a.Err = m.counts.err; a.Err == nil {
				a.Err = m.decide()
			}
			if a.Err == nil {
				a.Decision = join(&rs[i], []*part{&m.envoy}, a.Each)
			}
		}
	}
}

// chargeEnvoy makes the calls of Holds about Envoy's counts, which only charge, and returns the
// places of the others.
func (s *Store) chargeEnvoy(ctx context.Context, at time.Time, calls []stint.HoldCall) (others []int) {
	now := envoyInstant(at)
	for i := range calls {
		call := &calls[i]
		c, ok := s.envoyCount(call.Limit, call.Key, call.Cost, now)
		if !ok || call.Action != stint.HoldCharge {
			others = append(others, i)
			continue
		}
		if c.most = c.plan.Most; c.most <= 0 {
			c.most = algo.Exact - 1
		}
		r := envoyRequest{counts: []envoyCount{c}, what: envoyCharge}
		s.runEnvoy(ctx, &r)
		if call.Err = r.err; r.err != nil {
			continue
		}
		call.Found, call.Charged = true, max(0, min(call.Cost, c.most-r.used[0]))
		view := algo.View{Now: now, Used: min(r.used[0]+call.Charged, algo.Exact)}
		v := c.plan.SettleSmall(&view, 0, false)
		d := kit.Decision(&stint.Ask{Key: call.Key, Limit: call.Limit, Peek: true}, &v)
		call.Remaining, call.ResetAfter = d.Remaining, d.ResetAfter
	}
	return others
}

// takeFromEnvoy calls f for each ask of r that is counted in Envoy's keys, and returns r without
// them; nil: no asks are left.
func (s *Store) takeFromEnvoy(r *stint.Request, f func(stint.Ask, envoyCount) error) (rest *stint.Request, err error) {
	if s.envoy == nil {
		return r, nil
	}
	now := envoyInstant(r.At)
	other := *r
	other.Asks = nil
	var errs []error
	for _, a := range r.Asks {
		if c, ok := s.envoyCount(a.Limit, a.Key, a.Units(), now); ok {
			errs = append(errs, f(a, c))
			if a.Limit = nil; a.Penalty == nil {
				continue
			}
		}
		other.Asks = append(other.Asks, a)
	}
	if len(other.Asks) == 0 {
		return nil, errors.Join(errs...)
	}
	return &other, errors.Join(errs...)
}

// inspectEnvoy is Inspect for one limit in Envoy's keys.
func (s *Store) inspectEnvoy(ctx context.Context, c *envoyCount) (stint.Stored, error) {
	r := envoyRequest{counts: []envoyCount{*c}, what: envoyLook}
	if s.runEnvoy(ctx, &r); r.err != nil || r.used[0] == 0 {
		return stint.Stored{}, r.err
	}
	reply, err := s.conn.Do(ctx, "PTTL", c.key)
	if err != nil {
		return stint.Stored{}, fmt.Errorf("redislimit: inspect: %w", conn.Explain(err))
	}
	left, _ := reply.(int64)
	return stint.Stored{Held: true, Expires: time.Duration(min(max(0, left), math.MaxInt64/1_000_000)) * time.Millisecond}, nil
}
