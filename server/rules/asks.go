package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Plan is what Set.Asks finds: what to ask the store about a request. The zero Plan is ready for use, and
// reusing one saves memory. It must not be used from several goroutines at once.
type Plan struct {
	// List is the list that decided, and Entry the entry that matched; Asks is empty then. Unlisted: none
	// did.
	List  List
	Entry ListEntry
	// Asks has an ask for each limit of each rule that applies, in the file's
	// order, and one without a limit for a rule that has none. Empty: no rule
	// applies. No two share both Key and Limit.ID.
	Asks []stint.Ask
	// Rules[i] is the rule of Asks[i].
	Rules []*Rule
	// Ban is the manual ban that decided; nil: none did. Asks is empty then. BanRule is its
	// rule; nil: it bans a network. Bans of networks come before bans of keys, and among several the longest
	// decides. BanLeft is how long it still runs; stint.Never: without an end.
	Ban     *Ban
	BanRule *Rule
	BanLeft time.Duration
	// Spared are the budgets that a request does not ask because it uses no tokens, but reads an answer that
	// may have been made later (Endpoint.ReadsLater).
	Spared []Spared
	// Unread are rules in shadow mode that ask nothing, because the request is malformed
	// for them, or because the rules before them ask stint.MaxAsks limits already.
	Unread []*Rule
	// Descriptors has an element for each of Input.Descriptors, in their order; empty where
	// there are none, or if Ban or List decided.
	Descriptors []DescriptorMatch
	// GiveBack are the units that descriptors refund. They are not among Asks.
	GiveBack []stint.Ask
	// Claims are the claims that Instance.Claims found; nil: no expression needed them.
	Claims map[string]any
	// Explanation, if it is not nil, receives why each rule applies or not, on the way. That costs much more
	// than the rest: it compiles the parts of expressions that did not match.
	Explanation *Explanation

	evaluation evaluation
	counted    map[sharedAsk]int // the asks of a call with many descriptors; see sameAsk
}

// Matches is a Plan.
//
// Deprecated: use Plan.
type Matches = Plan

func (m *Plan) reset() {
	m.clearAsks()
	m.Spared = nil
	m.clearDescriptors()
	clear(m.Unread)
	m.Unread = m.Unread[:0]
	m.List, m.Entry = Unlisted, ListEntry{}
	m.Ban, m.BanRule, m.BanLeft = nil, nil, 0
	m.Claims = nil
}

// close drops the request's data.
func (m *Plan) close() {
	m.Claims = m.evaluation.found
	m.evaluation.close()
}

func (m *Plan) clearAsks() {
	clear(m.Asks)
	clear(m.Rules)
	m.Asks, m.Rules = m.Asks[:0], m.Rules[:0]
}

func (m *Plan) clearDescriptors() {
	clear(m.Descriptors)
	clear(m.GiveBack)
	clear(m.counted)
	m.Descriptors, m.GiveBack = m.Descriptors[:0], m.GiveBack[:0]
}

func (m *Plan) banned(r *Rule, b *Ban, left time.Duration) {
	if m.Ban == nil || left > m.BanLeft {
		m.Ban, m.BanRule, m.BanLeft = b, r, left
	}
}

// Asks finds what applies to in and puts it into out, replacing its content. Keys may share memory with in;
// nothing else of in is kept. An error wraps stint.ErrRequest and names the rule and the field for which in
// is malformed; out is empty then. Rules in shadow mode cause no errors. Several goroutines may call it at
// once, each with its own out.
func (s *Set) Asks(in *Input, out *Plan) error {
	return s.AsksContext(context.Background(), in, out)
}

// AsksContext is Asks, but stops between two rules when ctx ends. The error is the cause then.
func (s *Set) AsksContext(ctx context.Context, in *Input, out *Plan) error {
	out.reset()
	x := out.Explanation
	if x != nil {
		*x = Explanation{Enabled: s.Enabled}
	}
	if !s.Enabled {
		return nil
	}
	if err := s.check(in); err != nil {
		return err
	}
	out.evaluation.open(ctx, s, in)
	defer out.close()
	list, entry, err := s.listed(&out.evaluation)
	if err != nil {
		return err
	}
	if list != Unlisted {
		out.List, out.Entry = list, entry
		if x != nil {
			x.List, x.Entry = list, entry.String()
		}
		return nil
	}
	if s.bans.entries != nil {
		if ban, left := s.bans.longest(out.evaluation.client, s.instance); ban != nil {
			out.banned(nil, ban, left)
			if x != nil {
				x.Ban = ban
			}
			return nil
		}
	}
	if x != nil {
		x.begin(s)
	}
	if err := s.askAll(out); err != nil {
		out.reset()
		if x != nil {
			x.Rules = x.known()
		}
		return err
	}
	if out.Ban != nil {
		out.clearAsks()
		out.clearDescriptors()
		if x != nil {
			x.Ban, x.Rules, x.Descriptors = out.Ban, nil, nil
		}
	}
	return nil
}

// askAll adds the asks of all rules: the default ones last.
func (s *Set) askAll(out *Plan) error {
	applied, err := s.askRules(out, false)
	if err == nil && out.evaluation.in.Descriptors != nil {
		var found bool
		found, err = s.askDescriptors(out)
		applied = applied || found
	}
	switch {
	case err != nil || !s.hasDefault:
	case !applied:
		_, err = s.askRules(out, true)
	case out.Explanation != nil:
		out.Explanation.passOver(s)
	}
	return err
}

// askRules adds the asks of the default rules, or of all others; applied: an enforced one applies.
func (s *Set) askRules(out *Plan, byDefault bool) (applied bool, err error) {
	inShadow := 0 // limits asked by rules in shadow mode
	all := s.written()
	candidates := s.candidates(out, byDefault)
	for i := candidates.next(0, len(all)); i < len(all); i = candidates.next(i+1, len(all)) {
		r := all[i]
		if r.Mode == Off || r.Default != byDefault {
			continue
		}
		if ctx := out.evaluation.ctx; ctx.Err() != nil {
			return applied, context.Cause(ctx)
		}
		before := len(out.Asks)
		e := out.Explanation.of(i)
		ok, err := r.asks(out, e)
		switch {
		case r.Mode == Enforce:
			if err != nil {
				return applied, err
			}
			applied = applied || ok
		case err != nil || inShadow+len(out.Asks)-before > stint.MaxAsks:
			out.Asks, out.Rules = out.Asks[:before], out.Rules[:before]
			out.Unread = append(out.Unread, r)
			if e != nil {
				*e = whyUnread(err)
			}
		default:
			inShadow += len(out.Asks) - before
		}
		if e != nil {
			out.Explanation.explained(i, r, ok)
		}
	}
	return applied, nil
}

// candidates are the rules that may apply; an explanation tells of all.
func (s *Set) candidates(out *Plan, byDefault bool) bitset {
	switch {
	case out.Explanation != nil:
		return nil
	case byDefault:
		return s.defaults.candidates(&out.evaluation, &out.evaluation.candidates)
	}
	return s.indexed.candidates(&out.evaluation, &out.evaluation.candidates)
}

// asks adds the asks of r, and fills e, if it is not nil, with the reasons.
func (r *Rule) asks(out *Plan, e *RuleExplanation) (applies bool, err error) {
	ev := &out.evaluation
	if r.skipsPreflight(ev.in) {
		ban, left := r.banOfPreflight(ev)
		if ban != nil {
			out.banned(r, ban, left)
		}
		if e != nil {
			e.Why = "the request is a CORS preflight, and the rule does not say preflights: true"
		}
		return ban != nil, nil
	}
	if ok, err := r.matches(ev); err != nil {
		return false, r.unmatched(err)
	} else if !ok {
		if e != nil {
			e.Why, e.Needs = r.match.WhyFalse(ev.ctx, &ev.scope), r.match.Needs(&ev.scope)
		}
		return false, nil
	}
	var f found
	if err := r.find(ev, &f); err != nil || !f.applies {
		if e != nil && err == nil {
			e.Why, e.Needs = r.whyKeyless(ev)
		}
		return false, err
	}
	if f.ban != nil {
		out.banned(r, f.ban, f.banLeft)
		return true, nil
	}
	before := len(out.Asks)
	for _, l := range f.limits {
		if r.spares(&f, l) {
			if f.late {
				out.Spared = append(out.Spared, Spared{r, f.key, l})
			}
			continue
		}
		ask, err := r.ask(ev, &f, l)
		if err != nil {
			return false, err
		}
		out.Asks = append(out.Asks, ask)
		out.Rules = append(out.Rules, r)
	}
	if e != nil {
		r.explain(ev, &f, e)
		e.First, e.Asks = before, slices.Clone(out.Asks[before:])
	}
	if len(out.Asks) == before && r.Penalty != nil {
		out.Asks = append(out.Asks, r.askBan(&f))
		out.Rules = append(out.Rules, r)
	}
	return true, nil
}

// Spared is a budget, the Limit of a Rule, and the request's Key.
type Spared struct {
	Rule  *Rule
	Key   string
	Limit *stint.Limit
}

// askBan only asks whether the key is banned.
func (r *Rule) askBan(f *found) stint.Ask {
	return stint.Ask{Key: f.key, Penalty: r.Penalty, OnError: r.OnStoreError}
}

func (r *Rule) matches(ev *evaluation) (bool, error) {
	r.readsLeniently(ev)
	if r.match == nil {
		return true, nil
	}
	return r.match.True(&ev.scope)
}

// skipsPreflight reports whether in is a preflight that r does not count.
func (r *Rule) skipsPreflight(in *Input) bool {
	return in.Request != nil && in.Request.Preflight && !r.Preflights
}

// banOfPreflight finds the manual ban under r for a preflight that r does not count. If match or key fails,
// there is none.
func (r *Rule) banOfPreflight(ev *evaluation) (*Ban, time.Duration) {
	if r.controls == nil || len(r.controls.bans) == 0 || r.Mode != Enforce {
		return nil, 0
	}
	if ok, err := r.matches(ev); !ok || err != nil {
		return nil, 0
	}
	key, ok, err := r.keyIn(ev)
	if !ok || err != nil {
		return nil, 0
	}
	return r.controls.banOf(key)
}

func (r *Rule) unmatched(err error) error { return malformed(err, "rule %q: match", r.Name) }

type found struct {
	applies bool // there is a key
	key     string
	// ban, if it is not nil, decides, and nothing below it is set.
	ban     *Ban
	banLeft time.Duration
	estimate
	effective
}

// find fills f, which is zero.
func (r *Rule) find(ev *evaluation, f *found) (err error) {
	f.key, f.applies, err = r.keyIn(ev)
	if err != nil {
		return malformed(err, "rule %q: key", r.Name)
	}
	if !f.applies {
		return nil
	}
	if r.controls != nil && r.Mode == Enforce {
		if f.ban, f.banLeft = r.controls.banOf(f.key); f.ban != nil {
			return nil
		}
	}
	if f.estimate, err = r.estimateOf(ev); err != nil {
		return malformed(err, "rule %q: cost", r.Name)
	}
	if r.controls == nil && len(r.Tiers) == 0 {
		f.limits = r.Limits
		return nil
	}
	f.effective, err = r.effectiveLimits(ev, f.key)
	return err
}

func (r *Rule) keyIn(ev *evaluation) (key string, ok bool, err error) {
	if !r.keyGiven {
		return ev.defaultKeyText()
	}
	return ev.keyOf(r)
}

func malformed(err error, where string, args ...any) error {
	var ambiguous *AmbiguousError
	if errors.As(err, &ambiguous) {
		return fmt.Errorf("rules: %s: %w", fmt.Sprintf(where, args...), ambiguous)
	}
	return fmt.Errorf("rules: %w: %s: %s", stint.ErrRequest, fmt.Sprintf(where, args...), expr.Clip(err.Error()))
}
