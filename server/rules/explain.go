package rules

import (
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

	applies *Rule // the first that is enforced and applies
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
	First    int // the index of Asks[0] in Plan.Asks
}

// Explain explains step by step what Asks finds for in; see Plan.Explanation. An error wraps
// stint.ErrRequest, or the cause of ctx's end; the Explanation then has everything found so far.
func (s *Set) Explain(ctx context.Context, in *Input) (Explanation, error) {
	var x Explanation
	err := s.AsksContext(ctx, in, &Plan{Explanation: &x})
	return x, err
}

// begin makes x ready for the rules of s.
func (x *Explanation) begin(s *Set) {
	x.Rules = make([]RuleExplanation, len(s.written()))
	for i, r := range s.written() {
		if r.Mode == Off {
			x.Rules[i] = RuleExplanation{Rule: r, Why: s.whyOff(i)}
		}
	}
}

// of is where the i-th rule is explained; nil: nothing is.
func (x *Explanation) of(i int) *RuleExplanation {
	if x == nil {
		return nil
	}
	return &x.Rules[i]
}

// explained records that the i-th rule was explained, and whether it applies or has a ban.
func (x *Explanation) explained(i int, r *Rule, applies bool) {
	x.Rules[i].Rule = r
	if applies && r.Mode == Enforce && x.applies == nil {
		x.applies = r
	}
}

// passOver explains the default rules, if another rule applies.
func (x *Explanation) passOver(s *Set) {
	for i, r := range s.written() {
		if r.Default && r.Mode != Off {
			x.Rules[i] = RuleExplanation{Rule: r, Why: "default, and another rule applies: " + x.applies.Name}
		}
	}
}

func (x *Explanation) known() []RuleExplanation {
	return slices.DeleteFunc(x.Rules, func(e RuleExplanation) bool { return e.Rule == nil })
}

// whyUnread explains a rule in shadow mode that asks nothing, because of err or, if that is nil, because the
// rules before it ask stint.MaxAsks limits already.
func whyUnread(err error) RuleExplanation {
	if err == nil {
		return RuleExplanation{Why: "mode shadow, and the rules in shadow mode before it ask as many limits as one call can"}
	}
	return RuleExplanation{Why: "mode shadow, so that it refuses nothing, and the request is malformed for it: " + expr.Clip(err.Error())}
}

// explain explains that r applies, with what it has found.
func (r *Rule) explain(ev *evaluation, f *found, e *RuleExplanation) {
	e.Applies, e.Why = true, r.whyApplies(f.key)
	e.Key, e.Cost, e.CostBy, e.Tier, e.Override = Key(f.key), f.cost, r.estimatedBy(ev), f.tier, f.override
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
