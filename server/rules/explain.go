package rules

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Explanation is what Set.Explain finds for a request: every step that Set.Asks takes, in
// its order.
type Explanation struct {
	// Enabled is Set.Enabled. If false, nothing else is looked at.
	Enabled bool
	// List and Entry are the list that decided, and the entry as written, with
	// its place or ID.
	List  List
	Entry string
	// Ban is the manual ban that decided. nil: none did.
	Ban *Ban
	// Rules are all rules of the set, in order, if neither List nor Ban decided. Rules of descriptors are
	// included only if a descriptor of the call finds them, once for each key.
	Rules []RuleExplanation
	// Descriptors has an element for each descriptor of a call of Envoy's service.
	Descriptors []DescriptorMatch
}

// RuleExplanation says whether and how a rule applies to a request.
type RuleExplanation struct {
	Rule *Rule
	// Applies reports whether the rule takes part, and Why says why or why not, such as
	// `match is false: request.path == "/login"`.
	Applies bool
	Why     string
	// Needs are the variables, such as client.ip, that the request lacks, if the rule does not apply because
	// of that.
	Needs []string
	// Key, Cost, CostBy, Tier, Override and Asks are known if the rule applies. Tier is empty if no tier
	// matched, Override nil if none is in force.
	//
	// CostBy says how the cost is estimated, such as "tokens: openai"; empty: it is not an estimate.
	Key      Key
	Cost     int64
	CostBy   string
	Tier     string
	Override *Override
	Asks     []stint.Ask
}

// Explain explains step by step what Asks finds for in. An error wraps stint.ErrRequest, or the cause of
// ctx's end; the Explanation then has everything found so far. Explain costs much more than Asks: it compiles
// the parts of expressions that did not match.
func (s *Set) Explain(ctx context.Context, in *Input) (Explanation, error) {
	x := Explanation{Enabled: s.Enabled}
	if !s.Enabled {
		return x, nil
	}
	if err := s.check(in); err != nil {
		return x, err
	}
	var m Matches
	ev := &m.evaluation
	ev.open(s, in)
	list, entry, err := s.listed(ev)
	if err != nil {
		return x, err
	}
	if list != Unlisted {
		x.List, x.Entry = list, entry.String()
		return x, nil
	}
	if x.Ban, _ = s.bans.longest(ev.client, s.instance); x.Ban != nil {
		return x, nil
	}
	x.Rules = make([]RuleExplanation, len(s.written()))
	if err := s.explainRules(ctx, &x, &m); err != nil {
		x.Rules = x.known()
		return x, err
	}
	if m.Ban != nil {
		x.Ban, x.Rules, x.Descriptors = m.Ban, nil, nil
	}
	return x, nil
}

// explainRules looks at the rules in the order of askRules: the default ones last.
func (s *Set) explainRules(ctx context.Context, x *Explanation, m *Matches) error {
	var other *Rule // that applies and is enforced
	for _, byDefault := range []bool{false, true} {
		for i, r := range s.written() {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if r.Default != byDefault {
				continue
			}
			e := RuleExplanation{Why: "default, and another rule applies: " + nameOfRule(other)}
			if !byDefault || other == nil || r.Mode == Off {
				var err error
				switch e, err = s.explainRule(ctx, i, m); {
				case err == nil:
				case r.Mode == Shadow:
					e = RuleExplanation{Why: "mode shadow, so that it refuses nothing, and the request is malformed for it: " + expr.Clip(err.Error())}
				default:
					return err
				}
			}
			e.Rule = r
			x.Rules[i] = e
			if !byDefault && other == nil && r.Mode == Enforce && (e.Applies || m.BanRule == r) {
				other = r
			}
		}
		if !byDefault && m.evaluation.in.Descriptors != nil {
			found, err := s.explainDescriptors(x, m)
			if err != nil {
				return err
			}
			other = cmp.Or(other, found)
		}
	}
	return nil
}

func nameOfRule(r *Rule) string {
	if r == nil {
		return ""
	}
	return r.Name
}

func (x *Explanation) known() []RuleExplanation {
	return slices.DeleteFunc(x.Rules, func(e RuleExplanation) bool { return e.Rule == nil })
}

// explainRule takes the steps of Rule.asks, by the same functions.
func (s *Set) explainRule(ctx context.Context, i int, m *Matches) (RuleExplanation, error) {
	var e RuleExplanation
	r, ev := s.Rules[i], &m.evaluation
	if r.Mode == Off {
		e.Why = s.whyOff(i)
		return e, nil
	}
	if r.skipsPreflight(ev.in) {
		if ban, left := r.banOfPreflight(ev); ban != nil {
			m.banned(r, ban, left)
		}
		e.Why = "the request is a CORS preflight, and the rule does not say preflights: true"
		return e, nil
	}
	ok, err := r.matches(ev)
	if err != nil {
		return e, r.unmatched(err)
	}
	if !ok {
		e.Why, e.Needs = r.match.WhyFalse(ctx, &ev.scope), r.match.Needs(&ev.scope)
		return e, nil
	}
	var f found
	if err := r.find(ev, &f); err != nil {
		return e, err
	}
	if !f.applies {
		e.Why, e.Needs = r.whyKeyless(ev)
		return e, nil
	}
	if f.ban != nil {
		m.banned(r, f.ban, f.banLeft)
		return e, nil
	}
	e.Applies, e.Why = true, r.whyApplies(f.key)
	e.Key, e.Cost, e.CostBy, e.Tier, e.Override = Key(f.key), f.cost, r.estimatedBy(ev), f.tier, f.override
	for _, l := range f.limits {
		if r.spares(&f, l) {
			continue
		}
		ask, err := r.ask(ev, &f, l)
		if err != nil {
			return e, err
		}
		e.Asks = append(e.Asks, ask)
	}
	return e, nil
}

func (s *Set) whyOff(i int) string {
	if s.base != nil && s.base.Rules[i].Mode != Off {
		return fmt.Sprintf("mode off, set at run time (the file says %s)", s.base.Rules[i].Mode)
	}
	return "mode off"
}

// estimatedBy says how a request's cost is estimated; empty: it is not an estimate.
func (r *Rule) estimatedBy(ev *evaluation) string {
	switch {
	case !r.hasBudget || r.callerSays(ev):
		return ""
	case r.cost != nil:
		return expr.Clip(r.Cost)
	case r.Tokens.API != NoTokens:
		return "tokens: " + r.Tokens.API.String()
	}
	return ""
}

func (r *Rule) whyApplies(key string) string {
	why := "it has no match, so every request with a key counts"
	if r.match != nil {
		why = "match is true: " + expr.Clip(r.Match)
	}
	if r.Default {
		why = "default, and no other enforced rule applies"
		if r.match != nil {
			why += "; match is true: " + expr.Clip(r.Match)
		}
	}
	if r.Mode != Shadow {
		return why
	}
	why += "; mode shadow, so it refuses nothing"
	if r.controls != nil {
		if b, _ := r.controls.banOf(key); b != nil {
			why += fmt.Sprintf(", nor does ban %q of this key", expr.Clip(b.ID))
		}
	}
	return why
}

func (r *Rule) whyKeyless(ev *evaluation) (why string, needs []string) {
	if !r.keyGiven {
		return "it counts by operation and client, and neither is known", []string{"client.ip"}
	}
	return "key " + r.key.WhyKeyless(&ev.scope), r.key.Needs(&ev.scope)
}
