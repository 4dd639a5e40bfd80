package decide

import (
	"errors"
	"slices"
	"strings"

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
	Kind    kind.Kind
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
}

// ranBan reports whether a ban that ran already decided.
func (v *Verdict) ranBan() bool { return v.Outcome == stint.Banned && v.Limit == nil }

// decidedBy returns the index of the ask behind the decision; -1: there is none.
func (v *Verdict) decidedBy(asks []stint.Ask) int {
	for i := range asks {
		a := &asks[i]
		decided := a.Limit != nil && a.Limit == v.Limit && a.Key == v.Key
		if v.Outcome > stint.Limited { // a warning or a ban outweighs the limit that led to it
			decided = a.Penalty == v.Penalty && (a.Key == v.Key || v.Limit != nil && !v.Each[i].Allowed)
		}
		if decided && !IsShadow(v.Rules[i]) {
			return i
		}
	}
	return -1
}

// Enforced are the decisions of Each that clients see.
func (t *Request) Enforced() []stint.Decision {
	if !slices.ContainsFunc(t.Rules, IsShadow) {
		return t.Each
	}
	var each []stint.Decision
	for i := range t.Each {
		if !IsShadow(t.Rules[i]) {
			each = append(each, t.Each[i])
		}
	}
	return each
}

// Units are the units of the limits of Enforced; nil: the rules do not say.
func (t *Request) Units() []string {
	if !slices.ContainsFunc(t.Rules, func(r *rules.Rule) bool { return r.Unit != "" }) {
		return nil
	}
	var units []string
	for i := range t.Each {
		if !IsShadow(t.Rules[i]) {
			unit := ""
			if l := t.Each[i].Limit; l != nil {
				unit = t.Rules[i].UnitOf(l)
			}
			units = append(units, unit)
		}
	}
	return units
}

// Watching is a rule that counts responses to a request as violations of its key.
type Watching struct {
	Rule *rules.Rule
	Ask  stint.Ask
}

// watch records the rules that wait for the response. A rule in shadow mode bans nobody.
func (t *Request) watch() {
	for i, r := range t.Rules {
		known := i > 0 && t.Rules[i-1] == r // through another of its limits
		if len(r.OnStatus) > 0 && r.Mode == rules.Enforce && !known {
			t.Watching = append(t.Watching, Watching{r, t.Asks[i]})
		}
	}
}

// showLimits removes rules without limits from Rules and Each, which are about limits.
func (t *Request) showLimits() {
	shown := slices.IndexFunc(t.Rules, hasNoLimits)
	if shown < 0 {
		return
	}
	t.Rules = slices.Clone(t.Rules) // later settlements and refunds share the array, and need all
	if t.Each != nil {
		t.Each = slices.Clone(t.Each)
	}
	places := make([]int, len(t.Rules)) // of asks; descriptors have their index
	for i := range places {
		places[i] = min(i, shown)
	}
	for i := shown + 1; i < len(t.Rules); i++ {
		places[i] = shown
		if hasNoLimits(t.Rules[i]) {
			continue
		}
		t.Rules[shown] = t.Rules[i]
		if t.Each != nil {
			t.Each[shown] = t.Each[i]
		}
		if t.Left != nil {
			t.Left[shown] = t.Left[i]
		}
		shown++
	}
	t.Rules = t.Rules[:shown]
	if t.Each != nil {
		t.Each = t.Each[:shown]
	}
	if t.Left != nil {
		t.Left = t.Left[:shown]
	}
	for i := range t.Descriptors {
		if d := &t.Descriptors[i]; d.Ask >= 0 && !d.GiveBack {
			d.Ask = places[d.Ask]
		}
	}
}

func hasNoLimits(r *rules.Rule) bool { return len(r.Limits) == 0 && r.Descriptor == nil }

// SayBy is who decided: lease, local or policy; "": the store.
func SayBy(d *stint.Decision) string {
	if d.By == stint.ByStore {
		return ""
	}
	return d.By.String()
}

// wanted is the languages that in's client accepts, as in Accept-Language.
func wanted(in *rules.Input) string {
	if in.Request == nil {
		return ""
	}
	return strings.Join(in.Request.Header["Accept-Language"], ", ")
}

// message is the text for the client about t, which is refused.
func (t *Request) message() string {
	r := t.Teller()
	if r == nil {
		return ""
	}
	return r.Messages.Text(&t.Decision, t.ByHand != nil, wanted(t.In))
}

// Teller is the rule whose message explains the refusal of t: the rule that decided. If the decision counts as
// a violation of another rule, whose numbers it shows, it is that rule. nil: no rule decided.
func (t *Request) Teller() *rules.Rule {
	r, d := t.Rule, &t.Decision
	if r == nil {
		return nil
	}
	if d.Penalty != nil && r.Penalty != nil && r.Penalty != d.Penalty {
		if i := slices.IndexFunc(t.Rules, func(r *rules.Rule) bool { return r.Penalty == d.Penalty }); i >= 0 {
			r = t.Rules[i]
		}
	}
	return r
}

// Cause is the server's own text about a ban that is not, or not only, for too many requests; else empty. It
// does not say who imposed a manual ban, or why.
func (t *Request) Cause() string {
	switch {
	case t.Kind != kind.Banned:
		return ""
	case t.ByHand != nil && t.Rule == nil:
		return "This network is banned by the operator of this service."
	case t.ByHand != nil:
		return "Banned by the operator of this service."
	case t.Rule == nil || len(t.Rule.OnStatus) == 0:
		return ""
	case len(t.Rule.Limits) == 0:
		return "Banned because of the responses to earlier requests."
	}
	return "Banned because of earlier requests."
}

// KindOf is the kind of a request with this verdict, or that could not be decided because of err. Nothing else
// concludes it from lists, outcomes, bans and errors.
func KindOf(v *Verdict, err error) kind.Kind {
	switch {
	case errors.Is(err, friend.ErrOverloaded):
		return kind.Overloaded
	case errors.Is(err, stint.ErrRequest):
		return kind.Malformed
	case err != nil:
		return kind.Undecided
	case v.List == rules.Blocked:
		return kind.Blocked
	case v.List == rules.Safe:
		return kind.Safe
	case v.Allowed && v.Rule == nil && v.ByHand == nil && !v.applied:
		return kind.Unmatched
	}
	return KindOfDecision(&v.Decision)
}

// KindOfDecision is the kind of a request that a limit or a penalty decided. Stores that are not Stint's may
// leave the Outcome out.
func KindOfDecision(d *stint.Decision) kind.Kind {
	switch {
	case d.Outcome == stint.Warned:
		return kind.Warned
	case d.Outcome == stint.Banned:
		return kind.Banned
	case d.Allowed:
		return kind.Allowed
	}
	return kind.Limited
}

// BeganBan returns the banned key if a penalty banned it because of t.
func (t *Request) BeganBan() (key string, began bool) {
	if t.Kind != kind.Banned || t.decides < 0 || t.ranBan() {
		return "", false
	}
	return t.Asks[t.decides].Key, true
}
