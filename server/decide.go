package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// Verdict is the decision about a request.
type Verdict struct {
	// Decision is the decision of the enforced rules. If none applies, it allows and has no Limit. If the
	// blocklist refused, it is zero.
	stint.Decision
	// Kind is what became of the request. It is there with an error, too.
	Kind    Kind
	applied bool // a rule did
	// List is the list that decided, if one did, and Entry the entry that matched.
	List  rules.List
	Entry rules.ListEntry
	// Rule is the rule whose limit or ban decided. nil: none did.
	Rule *rules.Rule
	// ByHand is the manual ban that decided. nil: none did. If it does not end, BanLeft and RetryAfter are
	// stint.Never.
	ByHand *rules.Ban
	// Rules and Each have an element for each limit of each rule that applied, in the
	// file's order. They include rules in shadow mode, which clients do not see; if such a
	// rule was not decided, its Decision is zero. Rules that watch responses and have no
	// limits are left out. Each is nil if a running ban answered for all; for a call of Envoy's service, it
	// then has the ban for the banned key, and zero for the others.
	Rules []*rules.Rule
	Each  []stint.Decision

	// Descriptors has an element for each descriptor of a call of Envoy's rate limit service. A descriptor's
	// decision is Each[Ask]; see rules.DescriptorMatch. Allowed is their common answer, in which rules with
	// Quota refuse only together.
	Descriptors []rules.DescriptorMatch
	// Left has the Remaining of Each before the units of a refused call were charged; nil: none were.
	Left []int64
	// GivenBack has the state of the keys to which the call refunded units: the Ask of a DescriptorMatch with
	// GiveBack is its index here. nil: nothing was refunded, because the call was refused.
	GivenBack []stint.Decision

	// ID names the decision in the header Stint-Decision, log lines and traces: 16 hexadecimal digits.
	// Refusals have one. Empty: not needed so far. Simulations have none.
	ID string

	// Message is the rules' text for the client about a refusal, in the client's language.
	// Empty: the rules have none.
	Message string

	// taken has the units that the request took, if it was allowed.
	taken taken
	// set is the one that decided.
	set *served
	// watching has the rules that wait for the response.
	watching []watching
}

// Decide finds the rules that apply to in, asks their limits, and returns the decision.
// Gateway, check API and Wrap all use it. at is the instant of the request, for
// simulations; the zero Time means now.
//
// The error wraps stint.ErrRequest if in is malformed. It is a *httplimit.Overloaded if the rules allow the
// request but the instance's bounds do not; simulations have no such bounds. Any other error means that
// nothing could be decided.
//
// Rules in shadow mode change none of that. They are asked at the same time in a request of their own, which
// charges them. A failure of that request is counted, and is not an error.
func (s *Server) Decide(ctx context.Context, in *rules.Input, at time.Time) (Verdict, error) {
	one := make([]evaluation, 1)
	one[0].in = in
	s.decide(ctx, one, at, true)
	return one[0].Verdict, one[0].err
}

// evaluation is a request while it is decided. It has room for most requests' data, so that one allocation is
// enough.
type evaluation struct {
	in       *rules.Input  // nil: it could not be read, and err is the reason
	maxDelay time.Duration // the longest delay by rules that shape; 0: requests are not delayed here
	// holds and holdFor are Hold and HoldFor of its requests. ending settles their holds; it is nil if holds
	// was given, or if the request's end will not be known. If it is not nil, holds is made when something is
	// held.
	holds   stint.HoldID
	holdFor time.Duration
	ending  *ending
	// next is where an allowed request goes on; nil: not known here. Its method ready returns the evaluation's
	// err, or why the request cannot go on: then it takes nothing.
	next    *exchange
	opaque  bool  // the caller gets heldText, which must not be too long
	decides int32 // the index of the ask behind the decision, when it is concluded; -1: none
	Verdict
	err    error          // if not nil, the Verdict is zero, but for Kind
	claims map[string]any // of the token, if the rules have read it

	asks    []stint.Ask // as Rules and Each
	back    []stint.Ask // the refunds of a call of Envoy's service
	groups  []group     // calls of the store; empty: there is nothing to ask
	shadows *shadows    // the call that may hold units for rules in shadow mode, if no ending settles them
	room    struct {
		asks   [2]stint.Ask
		rules  [2]*rules.Rule
		each   [2]stint.Decision
		groups [1]group
	}
}

// decide decides requests that arrived together, as if one after another, in as few calls of the store as
// possible. It skips those whose evaluation already has an error.
//
// shadows reports whether to wait for the answers of rules in shadow mode.
//
// There is one difference: refunds by the instance's limit come too late for requests in the same call of the
// store.
func (s *Server) decide(ctx context.Context, all []evaluation, at time.Time, shadows bool) {
	a := arrival{set: s.set.Load(), start: s.metrics.now(), at: at, shadows: shadows, several: len(all) > 1}
	whole := ctx
	var span trace.Span
	if at.IsZero() {
		ctx, span = s.tracing.start(ctx, "decide", trace.SpanKindInternal)
	}
	m := matches.Get().(*rules.Matches)
	s.each(&a, all, func(t *evaluation) { t.find(context.Background(), a.set, m, at, s.settings.AllowAmbiguous) })
	m.Asks, m.Rules, m.Claims, m.Descriptors, m.GiveBack = nil, nil, nil, nil, nil // the evaluations keep them
	matches.Put(m)
	for rest := all; len(rest) > 0; {
		n := together(rest)
		s.decideTogether(ctx, &a, rest[:n])
		rest = rest[n:]
	}
	s.tracing.decided(whole, span, all)
}

// arrival is common to requests that arrived together.
type arrival struct {
	set     *served
	start   time.Duration
	at      time.Time // the instant of a simulation; zero: now
	shadows bool      // the answers of rules in shadow mode are wanted
	several bool
	waited  time.Duration // for what is to come after the decision
}

// decideTogether decides some of them with one call of the store.
func (s *Server) decideTogether(ctx context.Context, a *arrival, all []evaluation) {
	defer func() {
		if c := all[len(all)-1].shadows; c != nil {
			c.conclude(nil) // after a panic
		}
	}()
	s.contain(a, all, func() { inStore{s}.take(ctx, all, a.shadows) })
	s.each(a, all, func(t *evaluation) { s.applyAnswers(ctx, a, t) })
	s.each(a, all, func(t *evaluation) { t.settle(ctx, inStore{s}, a.at) })
	s.each(a, all, func(t *evaluation) { s.finish(ctx, a, t) })
}

// errBug is the error of a request of a list whose decision panicked.
var errBug = errors.New("the decision panicked")

// each runs a stage of the decision for each request of all that could be read.
func (s *Server) each(a *arrival, all []evaluation, stage func(*evaluation)) {
	for i := range all {
		if t := &all[i]; t.in != nil {
			s.contain(a, all[i:i+1], func() { stage(t) })
		}
	}
}

// contain runs a stage of the decision for some requests of a list. If it panics, these requests get errBug,
// and the others of the list their answers. For a request that came alone, the panic reaches the caller.
func (s *Server) contain(a *arrival, some []evaluation, stage func()) {
	if !a.several {
		stage()
		return
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		const text = "panic in the decision of a list"
		s.sampled.log(slog.LevelError, text, text, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		for i := range some {
			if t := &some[i]; t.err == nil && (len(some) == 1 || len(t.groups) > 0) { // the others asked nothing
				t.Verdict, t.err = Verdict{Kind: kind.Undecided}, errBug
			}
		}
	}()
	stage()
}

// together returns how many of all, from the first on, one call of the store can decide: those before the
// first whose key's counts may change through earlier answers, or up to the first for which a rule in shadow
// mode holds units.
func together(all []evaluation) int {
	var changes map[string]bool // by key
	for i := range all {
		t := &all[i]
		asks := [...][]stint.Ask{t.asks, t.back}
		for _, of := range asks {
			if changes != nil && slices.ContainsFunc(of, func(a stint.Ask) bool { return changes[a.Key] }) {
				return i
			}
		}
		switch {
		case t.opaque && slices.ContainsFunc(t.groups, func(g group) bool { return g.inShadow() && g.holds() }):
			return i + 1
		case t.hasEffects():
			if changes == nil {
				changes = map[string]bool{}
			}
			for _, of := range asks {
				for j := range of {
					changes[of[j].Key] = true
				}
			}
		}
	}
	return len(all)
}

// hasEffects reports whether the answer to t, a call of Envoy's service, may change counts: t refunds units,
// or returns its units if another of its groups refuses it, or is charged although it is refused.
func (t *evaluation) hasEffects() bool {
	if t.in == nil || t.in.Descriptors == nil {
		return false
	}
	if len(t.back) > 0 {
		return true
	}
	enforced := 0
	for i := range t.groups {
		g := &t.groups[i]
		for j := range g.request.Asks {
			if t.chargedCost(g, j) > 0 {
				return true
			}
		}
		if !g.inShadow() {
			enforced++
		}
	}
	return enforced > 1 && !t.in.Descriptors.Each
}

// applyAnswers makes the verdict from the store's answers, if t is not malformed.
func (s *Server) applyAnswers(ctx context.Context, a *arrival, t *evaluation) {
	now := a.at.IsZero()
	if t.err == nil && now && a.set.Holds() {
		s.noticeUnheld(a.set, t)
	}
	if t.err == nil {
		t.err = s.verdict(ctx, t)
	}
	if t.err == nil && now {
		t.err = s.admit(ctx, &t.Verdict)
	}
	if t.next != nil {
		before := s.metrics.now()
		t.err = t.next.ready(t)
		a.waited += s.metrics.now() - before
	}
}

// finish does the rest of the work when t is decided.
func (s *Server) finish(ctx context.Context, a *arrival, t *evaluation) {
	t.showLimits()
	if t.err == nil && !t.Allowed {
		t.Message = t.message(&t.Decision, wanted(t.in))
		if a.at.IsZero() {
			t.identify()
		}
	}
	if t.err != nil {
		t.Verdict = Verdict{Kind: t.Kind}
		s.sampled.ambiguity(t.err)
	}
	s.observe(ctx, a, t)
}

var matches = sync.Pool{New: func() any { return new(rules.Matches) }}

// find finds the rules that apply and what to ask the store. m is scratch space. allowed are permitted
// ambiguities.
func (t *evaluation) find(ctx context.Context, set *served, m *rules.Matches, at time.Time, allowed rules.Ambiguity) {
	if len(set.NAT64) > 0 {
		t.seeThrough(set)
	}
	m.Asks, m.Rules = t.room.asks[:0], t.room.rules[:0]
	m.Descriptors, m.GiveBack = nil, nil // the former request's belong to its evaluation
	if a := set.Ambiguous(t.in) &^ allowed; a != 0 {
		t.err = ambiguous(a)
		return
	}
	if t.err = set.AsksContext(ctx, t.in, m); t.err != nil {
		return
	}
	t.claims, t.back = m.Claims, m.GiveBack
	if t.ending != nil {
		t.ending.spared = m.Spared
	}
	if t.opaque {
		if t.err = fitsHold(m.Asks); t.err != nil {
			return
		}
	}
	set.counters.skipped(m.Unread...)
	for i, rule := range m.Rules {
		if rule.Shape && rule.Mode == rules.Enforce {
			m.Asks[i].MaxDelay = t.maxDelay
		}
	}
	t.asks, t.Verdict = m.Asks, Verdict{List: m.List, Entry: m.Entry, Rules: m.Rules, Descriptors: m.Descriptors, set: set}
	switch v := &t.Verdict; {
	case m.List == rules.Blocked:
	case m.Ban != nil:
		v.Rule, v.ByHand = m.BanRule, m.Ban
		v.Decision = stint.Decision{Outcome: stint.Banned, Key: string(m.Ban.Key), RetryAfter: m.BanLeft, BanLeft: m.BanLeft}
	default:
		v.Decision = stint.Decision{Allowed: true, Outcome: stint.Allowed}
		if len(m.Asks) > 0 {
			t.divide(at)
		}
	}
}

// verdict concludes t, and adds the effects that explanations and previews do not have.
func (s *Server) verdict(ctx context.Context, t *evaluation) error {
	var failed error
	for i := range t.groups {
		if err := s.answered(ctx, t, &t.groups[i]); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	t.conclude()
	return nil
}

// conclude makes the verdict from the answers of all groups. Decisions, explanations, previews and
// simulations all conclude here. It changes only t.
func (t *evaluation) conclude() {
	t.decides = -1
	if len(t.groups) == 0 {
		return
	}
	for i := range t.groups {
		g := &t.groups[i]
		if g.inShadow() {
			g.concludeShadow()
		} else if t.in.Descriptors != nil {
			g.concludeCall()
		}
		t.place(g)
	}
	v := &t.Verdict
	v.taken, v.Decision, v.applied = taken{t.groups, t.ending}, t.common(), true
	if v.ranBan() && t.in.Descriptors == nil {
		v.Each = nil
	}
	if t.decides = int32(v.decidedBy(t.asks)); t.decides >= 0 {
		v.Rule = v.Rules[t.decides]
	}
	v.watch(t.asks)
}

// place puts the answer of g among those of all groups.
func (t *evaluation) place(g *group) {
	for j, place := range g.places {
		t.Each[place] = g.answer.Each[j]
	}
}

// ranBan reports whether a ban that ran already decided.
func (v *Verdict) ranBan() bool { return v.Outcome == stint.Banned && v.Limit == nil }

// answered does what follows from g's own answer: its hold is settled when the request ends. The error is why
// nothing is decided.
func (s *Server) answered(ctx context.Context, t *evaluation, g *group) error {
	a, simulated := &g.answer, !g.request.At.IsZero()
	if g.inShadow() {
		if simulated {
			return a.Err
		}
		return nil
	}
	if errors.Is(a.Err, stint.ErrFull) && !s.fleet.IsLayered() {
		s.sampled.storeFailure(a.Err)
		withoutRoom(g, a)
	}
	if errors.Is(a.Err, stint.ErrRequest) || a.Err != nil && (simulated || ctx.Err() != nil) {
		return a.Err
	}
	if a.Err == nil && t.ending != nil {
		t.ending.keep(ctx, kept{stint.Internal(friend.Of{}).Keep(s.decider, &g.request, a.Each, &a.Decision), g.request.Asks, g.rules, t.set.counters})
	}
	return a.Err
}

// decidedBy returns the index of the ask behind the decision; -1: there is none.
func (v *Verdict) decidedBy(asks []stint.Ask) int {
	for i := range asks {
		a := &asks[i]
		decided := a.Limit != nil && a.Limit == v.Limit && a.Key == v.Key
		if v.Outcome > stint.Limited { // a warning or a ban outweighs the limit that led to it
			decided = a.Penalty == v.Penalty && (a.Key == v.Key || v.Limit != nil && !v.Each[i].Allowed)
		}
		if decided && !isShadow(v.Rules[i]) {
			return i
		}
	}
	return -1
}

// enforced are the decisions of Each that clients see.
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

// units are the units of the limits of enforced; nil: the rules do not say.
func (v *Verdict) units() []string {
	if !slices.ContainsFunc(v.Rules, func(r *rules.Rule) bool { return r.Unit != "" }) {
		return nil
	}
	var units []string
	for i := range v.Each {
		if !isShadow(v.Rules[i]) {
			unit := ""
			if l := v.Each[i].Limit; l != nil {
				unit = v.Rules[i].UnitOf(l)
			}
			units = append(units, unit)
		}
	}
	return units
}
