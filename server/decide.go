package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// Verdict is what was decided about a request.
type Verdict struct {
	// Decision is that of the rules that are enforced. Where none applies, it
	// allows and has no Limit; where the blocklist refused, it is zero.
	stint.Decision
	// List is the list that decided, if one did.
	List rules.List
	// Rule is the rule whose limit or ban decided; nil: none did.
	Rule *rules.Rule
	// ByHand is the ban by hand that decided, if one did. BanLeft and RetryAfter
	// are stint.Never where it does not end.
	ByHand *rules.Ban
	// Rules and Each have a place for each limit of each rule that applied, in
	// the file's order, those in shadow mode among them. Each is nil where a ban
	// that was running answered for all. Rules that watch responses and have no
	// limits are not there.
	Rules []*rules.Rule
	Each  []stint.Decision

	// charged is what was taken if it was allowed.
	charged stint.Request
	// counters are those of the set that decided.
	counters ruleCounters
	// applied tells that a rule applied, and watching has those that wait for
	// the response.
	applied  bool
	watching []watching
}

// Decide is the one road: it finds the rules that apply to in, asks their limits,
// and says what comes of it. at is the instant of the request for simulations;
// the zero Time is now. An error wraps stint.ErrRequest where in is malformed,
// and a *httplimit.Overloaded where the rules allow and the instance does not, which
// simulations do not ask; any other means that nothing could be decided.
//
// Rules in shadow mode are asked apart from the others, in the same round trip:
// they are charged by themselves and refuse nothing.
func (s *Server) Decide(ctx context.Context, in *rules.Input, at time.Time) (Verdict, error) {
	start := s.metrics.now()
	v, err := s.decide(ctx, in, at)
	if err == nil && at.IsZero() {
		if err = s.admit(ctx, &v); err != nil {
			v = Verdict{}
		}
	}
	s.metrics.decided(ctx, start, &v, err)
	return v, err
}

func (s *Server) decide(ctx context.Context, in *rules.Input, at time.Time) (Verdict, error) {
	m, set := newMatches(), s.set.Load()
	if err := set.Asks(in, m); err != nil {
		return Verdict{}, err
	}
	v := Verdict{List: m.List, Rules: m.Rules, counters: set.counters}
	if m.List == rules.Blocked {
		return v, nil
	}
	if m.Ban != nil {
		v.Rule, v.ByHand = m.BanRule, m.Ban
		v.Decision = stint.Decision{Outcome: stint.Banned, Key: string(m.Ban.Key), RetryAfter: m.BanLeft, BanLeft: m.BanLeft}
		return v, nil
	}
	if len(m.Asks) == 0 {
		v.Decision = stint.Decision{Allowed: true, Outcome: stint.Allowed}
		return v, nil
	}
	v.Each = make([]stint.Decision, len(m.Asks))
	if err := s.take(ctx, &v, m, at); err != nil {
		return Verdict{}, err
	}
	v.applied = true
	if i := v.decidedBy(m); i >= 0 {
		v.Rule = m.Rules[i]
		if v.Outcome == stint.Banned && v.Each != nil { // by this request
			s.bans.impose(v.Rule.Name, m.Asks[i].Key, v.BanLeft)
		}
	}
	v.watch(m)
	return v, nil
}

// newMatches has room for what most requests face, in one allocation.
func newMatches() *rules.Matches {
	var room struct {
		rules.Matches
		asks  [4]stint.Ask
		rules [4]*rules.Rule
	}
	room.Asks, room.Rules = room.asks[:0], room.rules[:0]
	return &room.Matches
}

// group is a request of its own: all rules that are enforced, or one in shadow.
type group struct {
	request stint.Request
	rules   []*rules.Rule
	places  []int // of its asks in the whole
}

func isShadow(r *rules.Rule) bool { return r.Mode == rules.Shadow }

// groups divides what applies: what is enforced, if anything is, and then the
// rules in shadow.
func groups(m *rules.Matches, at time.Time) []group {
	enforced := group{request: stint.Request{At: at}}
	var shadows []group
	for i, rule := range m.Rules {
		g := &enforced
		if isShadow(rule) {
			if n := len(shadows); n == 0 || shadows[n-1].rules[0] != rule {
				shadows = append(shadows, group{request: stint.Request{At: at}})
			}
			g = &shadows[len(shadows)-1]
		}
		g.request.Asks = append(g.request.Asks, m.Asks[i])
		g.rules = append(g.rules, rule)
		g.places = append(g.places, i)
	}
	if len(enforced.places) == 0 {
		return shadows
	}
	return append([]group{enforced}, shadows...)
}

func (s *Server) take(ctx context.Context, v *Verdict, m *rules.Matches, at time.Time) error {
	if slices.ContainsFunc(m.Rules, isShadow) {
		return s.takeApart(ctx, v, groups(m, at))
	}
	all := group{request: stint.Request{Asks: m.Asks, At: at, Deadline: soonest(m.Rules)}, rules: m.Rules}
	a := stint.Answer{Each: v.Each}
	start := s.metrics.now()
	a.Decision, a.Err = s.decider.Take(ctx, &all.request, v.Each)
	s.called(start, a.Err)
	return s.conclude(ctx, v, &all, &a)
}

// called counts a call of the store that began at start, where no Fallback does.
func (s *Server) called(start time.Duration, err error) {
	if s.fallback == nil && !errors.Is(err, stint.ErrRequest) {
		s.metrics.called(s.metrics.now()-start, err)
	}
}

// soonest is the shortest time that rules give the store; 0: none says.
func soonest(all []*rules.Rule) time.Duration {
	var least time.Duration
	for _, r := range all {
		if d := r.DecisionTimeout; d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// takeApart asks each group by itself, and what is enforced concludes.
func (s *Server) takeApart(ctx context.Context, v *Verdict, gs []group) error {
	requests, answers := make([]stint.Request, len(gs)), make([]stint.Answer, len(gs))
	for i := range gs {
		requests[i] = gs[i].request
		requests[i].Deadline = soonest(gs[i].rules)
		answers[i].Each = make([]stint.Decision, len(gs[i].places))
	}
	start := s.metrics.now()
	s.decider.TakeEach(ctx, requests, answers)
	s.called(start, nil)
	each := v.Each
	v.Decision = stint.Decision{Allowed: true, Outcome: stint.Allowed}
	for i := range gs {
		g, a := &gs[i], &answers[i]
		switch {
		case !isShadow(g.rules[0]):
			if err := s.conclude(ctx, v, g, a); err != nil {
				return err
			}
		case a.Err != nil:
			if !g.request.At.IsZero() {
				return a.Err
			}
			s.complain(a.Err)
			clear(a.Each)
		case a.Outcome == stint.Banned && a.Limit == nil:
			for j := range a.Each { // as this ban would have answered for all
				a.Each[j] = a.Decision
			}
		}
		if a.Err == nil && !a.Allowed && isShadow(g.rules[0]) {
			v.counters.refusedInShadow(g.rules[0])
		}
		for j, place := range g.places {
			each[place] = a.Each[j]
		}
	}
	return nil
}

// conclude takes the answer of the rules that are enforced.
func (s *Server) conclude(ctx context.Context, v *Verdict, g *group, a *stint.Answer) error {
	if errors.Is(a.Err, stint.ErrFull) && s.fallback == nil {
		s.complain(a.Err)
		withoutRoom(g, a)
	}
	switch {
	case a.Err == nil:
	case errors.Is(a.Err, stint.ErrRequest), ctx.Err() != nil, !g.request.At.IsZero():
		return a.Err
	default:
		v.counters.fellBack(g.rules, a)
		return a.Err
	}
	v.charged, v.Decision = chargedBy(g, a), a.Decision
	v.counters.fellBack(g.rules, a)
	if a.Outcome == stint.Banned && a.Limit == nil {
		v.Each = nil
	}
	return nil
}

// decidedBy finds the ask behind the decision; -1: there is none.
func (v *Verdict) decidedBy(m *rules.Matches) int {
	for i := range m.Asks {
		a := &m.Asks[i]
		decided := a.Limit == v.Limit && a.Key == v.Key
		if v.Penalty != nil { // a ban is graver than the limit that led to it
			decided = a.Penalty == v.Penalty
		}
		if decided && !isShadow(m.Rules[i]) {
			return i
		}
	}
	return -1
}

// enforced are the decisions of Each that clients are told.
func (v *Verdict) enforced() []stint.Decision {
	if !slices.ContainsFunc(v.Rules, isShadow) {
		return v.Each
	}
	var each []stint.Decision
	for i := range v.Each {
		if !isShadow(v.Rules[i]) {
			each = append(each, v.Each[i])
		}
	}
	return each
}
