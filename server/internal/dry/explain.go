// Package dry decides without taking: explanations of a request, previews of new rules, and simulations.
package dry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/claims"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/lookup"
	"github.com/stintdev/stint/server/rules"
)

// explanation builds an Explanation.
type explanation struct {
	adminapi.Explanation
	rules     []explainedRule
	concluded decide.Verdict // zero: a list, a manual ban, a switch or the store's failure decides
}

type explainedRule struct {
	adminapi.ExplainedRule
	record stint.Record  // of a rule with a penalty
	policy stint.OnError // decides without the store, in place of limits; OnErrorLocal: the limits decide
	from   *rules.Rule
	costBy string // how the cost is estimated; empty: it is not an estimate
}

// Explainer explains decisions. It may be used from many goroutines at once.
type Explainer struct {
	*door.Door
	Lookup *lookup.Lookup
	// Claims reads tokens of clients; nil: nobody does.
	Claims *claims.Reader
	// Routed returns a request as the gateway sees it.
	Routed func(*rules.Input) *rules.Input
}

// Explain returns the decision that in would get, and why. It charges nothing. The error wraps
// stint.ErrRequest if in is malformed or ambiguous; any other means that the store did not answer.
func (s *Explainer) Explain(ctx context.Context, in *rules.Input) (*adminapi.Explanation, error) {
	x, _, err := s.Conclude(ctx, in)
	return x, err
}

// Conclude is Explain, and returns the verdict behind the explanation; zero: a list, a manual ban, a switch or
// the store's failure decides.
func (s *Explainer) Conclude(ctx context.Context, in *rules.Input) (*adminapi.Explanation, decide.Verdict, error) {
	x, err := s.explain(ctx, in)
	if err != nil {
		return nil, decide.Verdict{}, err
	}
	x.Rules = []adminapi.ExplainedRule{}
	for i := range x.rules {
		x.Rules = append(x.Rules, x.rules[i].ExplainedRule)
	}
	return &x.Explanation, x.concluded, nil
}

func (s *Explainer) explain(ctx context.Context, in *rules.Input) (*explanation, error) {
	set := s.Rules()
	in = s.Routed(in)
	if in.Descriptors != nil {
		with, call := *in, *in.Descriptors
		s.Calls.Set(&call)
		with.Descriptors, in = &call, &with
	}
	one := [1]decide.Request{{In: in}}
	t := &one[0]
	if in.Request != nil {
		t.MaxDelay = s.Settings.MaxDelay
	}
	e := new(rules.Explanation)
	if t.Plan(ctx, unwatched(set), &rules.Plan{Explanation: e}, time.Time{}, s.Settings.AllowAmbiguous); t.Err != nil {
		return nil, t.Err
	}
	x := &explanation{}
	x.Outcome = kind.Allowed.Answer()
	switch {
	case !e.Enabled:
		x.say("Limits are switched off: everything passes.")
		return x, nil
	case e.List == rules.Safe:
		x.List, x.Entry = e.List.Name(), e.Entry
		x.say("The request is on the safelist, so no rule applies: %s.", e.Entry)
		return x, nil
	case e.List == rules.Blocked:
		x.Outcome, x.List, x.Entry = kind.Blocked.Answer(), e.List.Name(), e.Entry
		x.say("The request is on the blocklist: %s.", e.Entry)
		return x, nil
	case e.Ban != nil:
		x.Outcome, x.Rule = kind.Banned.Answer(), e.Ban.Rule
		x.say("%s", banWords(e.Ban))
		return x, nil
	}
	x.sayClaims(s, in)
	x.sayDescriptors(set, in.Descriptors, e.Descriptors)
	b := &look{view: s.Lookup.View(ctx)}
	defer b.view.Close()
	err := decide.DecideBy(ctx, b, one[:], time.Time{})
	if err != nil && !errors.Is(err, lookup.ErrDenied) {
		return nil, err
	}
	for i := range e.Rules {
		r, err := explainRule(b, &e.Rules[i])
		if err != nil {
			return nil, err
		}
		x.rules = append(x.rules, *r)
	}
	if x.CountedBy = b.view.CountedBy(); b.view.StoreError() != nil {
		x.say("The store does not answer, so this shows what this instance knows, with its share of each limit: %s.", b.view.StoreError())
	}
	for i := range x.rules {
		x.Words = append(x.Words, x.rules[i].words()...)
	}
	if err != nil {
		x.deny(t)
	} else {
		x.conclude(t)
	}
	x.tellNeeds(in, e.Rules)
	return x, nil
}

// look is the book of explanations. It looks at the store, or at the counts of this instance, and takes
// nothing.
type look struct {
	view   *lookup.View
	states []stint.Decision // how each ask stands
}

// Take is for decide.Book. All is read at one time from one place: if the store fails meanwhile, from this instance.
func (l *look) Take(_ context.Context, all []decide.Request, _ bool) {
	before := l.view.StoreError()
	l.tryAll(&all[0])
	if before == nil && l.view.StoreError() != nil {
		l.tryAll(&all[0])
	}
}

func (l *look) tryAll(t *decide.Request) {
	l.states = make([]stint.Decision, len(t.Asks))
	for i := range t.Groups {
		g := &t.Groups[i]
		states := make([]stint.Decision, len(g.Request.Asks))
		a := &g.Answer
		if a.Decision, a.Err = l.view.Try(&g.Request, states, a.Each); g.InShadow() && errors.Is(a.Err, lookup.ErrDenied) {
			a.Err = decide.ErrNotAskedNow
		}
		if g.Places == nil {
			l.states = states
		}
		for j, place := range g.Places {
			l.states[place] = states[j]
		}
	}
}

// Refund is for decide.Book.
func (l *look) Refund(context.Context, *stint.Request, bool) error { return nil }

// Hold is for decide.Book.
func (l *look) Hold(_ context.Context, _ time.Time, calls []stint.HoldCall) {
	for i := range calls {
		calls[i].Err = decide.ErrNotAskedNow
	}
}

// ReleaseShadows is for decide.Book.
func (l *look) ReleaseShadows(context.Context, *decide.Request, time.Time) {}

// Failed is for decide.Book.
func (l *look) Failed(string, error) {}

// tellNeeds adds that an HTTP request needs a known client to be decided. A check of an operation may have
// none.
func (x *explanation) tellNeeds(in *rules.Input, all []rules.RuleExplanation) {
	const client = "client.ip"
	needs := func(e rules.RuleExplanation) bool {
		return e.Rule.Mode == rules.Enforce && slices.Contains(e.Needs, client)
	}
	if in.Request == nil || x.Outcome != kind.Allowed.Answer() || !slices.ContainsFunc(all, needs) {
		return
	}
	x.Needs, x.Outcome = []string{client}, "unknown"
	x.Words[len(x.Words)-1] = "It cannot be told whether it would be allowed: rules need " + client + ", the address of the client."
}

func (x *explanation) say(format string, args ...any) {
	x.Words = append(x.Words, fmt.Sprintf(format, args...))
}

// sayClaims describes the client's token, if rules use claims.
func (x *explanation) sayClaims(s *Explainer, in *rules.Input) {
	if s.Claims != nil && in.Claims == nil && in.Request != nil && s.Rules().UsesClaims() {
		x.say("%s", s.Claims.Describe(in.Request.Header))
	}
}

// sayDescriptors describes the descriptors of a call that no rule limits.
func (x *explanation) sayDescriptors(set *rules.Set, call *rules.Descriptors, found []rules.DescriptorMatch) {
	if call == nil {
		return
	}
	if !set.HasDomain(call.Domain) {
		x.say("No file of descriptors has the domain %.64q, so only other rules apply.", call.Domain)
		return
	}
	for i := range found {
		if found[i].Rule == nil {
			x.say("Descriptor %d finds no rule, so it is not limited.", i+1)
		}
	}
}

// explainRule adds the state of the rule's key.
func explainRule(l *look, e *rules.RuleExplanation) (*explainedRule, error) {
	r := &explainedRule{from: e.Rule}
	r.Name, r.Mode, r.Applies, r.Why = e.Rule.Name, e.Rule.Mode.String(), e.Applies, e.Why
	if !e.Applies {
		return r, nil
	}
	r.Key, r.Cost, r.costBy, r.Tier = e.Key, e.Cost, e.CostBy, e.Tier
	if e.Override != nil {
		r.Override = &adminapi.Override{Override: *e.Override}
	}
	for i := range e.Asks {
		r.addLimit(l.view, &e.Asks[i], l.states[e.First+i])
	}
	p := e.Rule.Penalty
	if l.view.StoreError() != nil && e.Rule.OnStoreError != stint.OnErrorLocal {
		r.policy = e.Rule.OnStoreError
		return r, nil // neither limits nor penalties are used
	}
	if p == nil {
		return r, nil
	}
	var err error
	if r.record, err = l.view.Record(string(e.Key), p); err != nil {
		return nil, err
	}
	r.BanLeft = r.record.BanLeft.Microseconds()
	return r, nil
}

// addLimit adds how the key of an ask stands.
func (r *explainedRule) addLimit(v *lookup.View, a *stint.Ask, d stint.Decision) {
	if !decide.IsShadow(r.from) {
		decide.RefuseSpent(r.from, a, &d)
	}
	j := adminapi.ExplainedLimit{LimitState: v.Limit(&d), Cost: a.Units(), Allowed: d.Allowed, Busy: d.Busy, RetryAfter: d.RetryAfter.Microseconds()}
	if d.RetryAfter == stint.Never {
		j.RetryAfter = -1 // in JSON, for stint.Never
	}
	r.Limits = append(r.Limits, j)
}

// words describes the rule's treatment of the request.
func (r *explainedRule) words() []string {
	if !r.Applies {
		return []string{fmt.Sprintf("Rule %s does not apply: %s.", r.Name, r.Why)}
	}
	head := fmt.Sprintf("Rule %s applies: %s. Key %s, cost %d", r.Name, r.Why, r.Key, r.Cost)
	if r.costBy != "" {
		head += " estimated by " + r.costBy
	}
	if r.Tier != "" {
		head += ", tier " + r.Tier
	}
	if o := r.Override; o != nil {
		head += ", override " + o.ID
	}
	all := []string{head + "."}
	for i := range r.Limits {
		all = append(all, "  "+limitWords(&r.Limits[i], r.Cost))
		if w := r.Limits[i].Windows; w != nil {
			all = append(all, "    "+windowWords(w))
		}
	}
	if r.policy != stint.OnErrorLocal {
		return append(all, "  on_store_error: "+r.policy.String()+", which decides instead of these limits")
	}
	if p := r.from.Penalty; p != nil {
		all = append(all, "  "+recordWords(&r.record, p))
	}
	return all
}

// limitWords describes a limit of a rule whose requests have this cost.
func limitWords(l *adminapi.ExplainedLimit, cost int64) string {
	if l.Capacity == stint.Unlimited {
		return l.Limit + ": allows"
	}
	text := fmt.Sprintf("%s: %d of %d used, %d left", l.Limit, l.Used, l.Capacity, l.Remaining)
	if l.Held > 0 {
		text = fmt.Sprintf("%s: %d of %d used, %d held by requests in flight, %d left", l.Limit, l.Used, l.Capacity, l.Held, l.Remaining)
	}
	if l.Cost != cost {
		text += fmt.Sprintf("; this takes %d", l.Cost)
	}
	switch {
	case l.Allowed:
		text += "; allows"
	case l.Busy:
		text += fmt.Sprintf("; refuses until requests in flight end, and asks clients to try again in %s", spell(l.RetryAfter))
	case l.RetryAfter < 0:
		text += fmt.Sprintf("; refuses, and waiting does not help: a cost of %d is more than the limit allows at once", l.Cost)
	default:
		text += fmt.Sprintf("; refuses, would allow in %s", spell(l.RetryAfter))
	}
	if l.ResetAfter > 0 {
		text += fmt.Sprintf(", unused in %s", spell(l.ResetAfter))
	}
	return text
}

func windowWords(windows []time.Time) string {
	const form = "2006-01-02 15:04 MST"
	return fmt.Sprintf("window from %s to %s, the next to %s", windows[0].Format(form), windows[1].Format(form), windows[2].Format(form))
}

func recordWords(r *stint.Record, p *stint.Penalty) string {
	spec := p.Spec()
	if r.BanLeft > 0 {
		return fmt.Sprintf("penalty: banned for another %s; limits are not checked until then", r.BanLeft.Round(time.Millisecond))
	}
	var marks []string
	if spec.WarnAfter > 0 {
		marks = append(marks, fmt.Sprintf("warned from %d", spec.WarnAfter))
	}
	if spec.BanAfter > 0 {
		marks = append(marks, fmt.Sprintf("banned at %d", spec.BanAfter))
	}
	return fmt.Sprintf("penalty: %s (%s)", spelling.Several(r.Violations, "violation"), strings.Join(marks, ", "))
}

func banWords(b *rules.Ban) string {
	whom := "The network " + b.Network
	if b.Network == "" {
		whom = fmt.Sprintf("The key %s of rule %s", b.Key, b.Rule)
	}
	text := fmt.Sprintf("%s is banned by hand, by %s at %s", whom, b.Author, b.At.Format(time.RFC3339))
	if !b.Until.IsZero() {
		text += ", until " + b.Until.Format(time.RFC3339)
	}
	if b.Reason != "" {
		text += ": " + b.Reason
	}
	return text + "."
}

// spell formats µs for a reader.
func spell(us int64) string {
	return (time.Duration(us) * time.Microsecond).Round(time.Millisecond).String()
}

// conclude says how t is decided.
func (x *explanation) conclude(t *decide.Request) {
	x.concluded = t.Verdict
	x.sayQuotas(t)
	if t.Allowed {
		x.say("It would be allowed.")
		return
	}
	x.Outcome = t.Kind.Answer()
	if t.Rule != nil {
		x.Rule = t.Rule.Name
	}
	x.say("It would be refused (%s) by rule %s.", x.Outcome, x.Rule)
}

// deny says that a rule denies because the store does not answer.
func (x *explanation) deny(t *decide.Request) {
	for i := range t.Asks {
		if r := t.Rules[i]; t.Asks[i].OnError == stint.OnErrorDeny && !decide.IsShadow(r) {
			x.Outcome, x.Rule = kind.Undecided.Answer(), r.Name
			x.say("It would get 503: rule %s denies while the store does not answer.", r.Name)
			return
		}
	}
}

// sayQuotas names the rules whose refusal does not count, because other rules with quota_mode allow.
func (x *explanation) sayQuotas(t *decide.Request) {
	for i := range t.Groups {
		if g := &t.Groups[i]; g.Quota && t.Allowed && !g.InShadow() && !g.Answer.Allowed {
			x.say("Rule %s refuses only if all rules with quota_mode do, and another allows.", g.Rules[0].Name)
		}
	}
}
