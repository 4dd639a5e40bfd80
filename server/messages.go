package server

import (
	"slices"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// wanted is what in's client says of its languages, as in Accept-Language.
func wanted(in *rules.Input) string {
	if in.Request == nil {
		return ""
	}
	return strings.Join(in.Request.Header["Accept-Language"], ", ")
}

// message is what the rule that decided tells of the refusal d. Where d counts as a
// violation of another rule, though, whose numbers those are, it is what that one tells.
func (v *Verdict) message(d *stint.Decision, languages string) string {
	r := v.Rule
	if r == nil {
		return ""
	}
	if d.Penalty != nil && r.Penalty != nil && r.Penalty != d.Penalty {
		if i := slices.IndexFunc(v.Rules, func(r *rules.Rule) bool { return r.Penalty == d.Penalty }); i >= 0 {
			r = v.Rules[i]
		}
	}
	return r.Messages.Text(d, v.ByHand != nil, languages)
}

// cause is what the server says of a ban by itself, where that is not for too many
// requests, or not for these alone; else empty. Who banned by hand, and why, is not told.
func (v *Verdict) cause() string {
	switch {
	case v.Outcome != stint.Banned:
		return ""
	case v.ByHand != nil && v.Rule == nil:
		return "This network is banned by the operator of this service."
	case v.ByHand != nil:
		return "Banned by the operator of this service."
	case v.Rule == nil || len(v.Rule.OnStatus) == 0:
		return ""
	case len(v.Rule.Limits) == 0:
		return "Banned because of the responses to earlier requests."
	}
	return "Banned because of earlier requests."
}
