package server

import (
	"context"
	"time"

	"github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// Verdict is the decision about a request. It embeds the stint.Decision of the enforced rules, and has:
//
//   - Kind: what became of the request; it is there with an error, too
//   - List and Entry: the list that decided, and the entry that matched
//   - Rule: the rule whose limit or ban decided; ByHand: the manual ban that did
//   - Rules and Each: a rule and a decision for each limit of each rule that applied, also in shadow mode
//   - Descriptors, Left and GivenBack: the parts of the answer to a call of Envoy's rate limit service
//   - ID: names the decision in the header Stint-Decision, in log lines and traces; Message: the rules' text
//     for the client about a refusal
type Verdict = decide.Verdict

// Kind is what became of a request. String is its word in logs, metrics and traces; Answer, Status and Code
// are what clients are told: a word, and the statuses of HTTP and gRPC.
type Kind = kind.Kind

// The kinds.
const (
	KindAllowed    = kind.Allowed
	KindLimited    = kind.Limited    // a limit refused
	KindWarned     = kind.Warned     // a limit refused, and a ban is near
	KindBanned     = kind.Banned     // by a penalty, or by hand
	KindSafe       = kind.Safe       // on the safelist
	KindBlocked    = kind.Blocked    // on the blocklist
	KindUnmatched  = kind.Unmatched  // no rule applied
	KindOverloaded = kind.Overloaded // this instance had no room for it
	KindUndecided  = kind.Undecided  // the store did not answer, and a rule denies then
	KindMalformed  = kind.Malformed  // it cannot be decided, and the client is at fault
)

// KindOf is the kind of a request with this verdict, or that could not be decided because of err.
func KindOf(v *Verdict, err error) Kind { return decide.KindOf(v, err) }

// Calls is how an Envoy rate limit service decides its calls: rules.Descriptors.Each and Quota for all of
// them. The check API and Explain decide such calls in the same way.
type Calls = door.Calls

// newDecider returns what decides.
func newDecider(s *Server) *decide.Decider {
	o := decide.Options{
		Set:        func() *decide.Set { return &s.watch.Current().Set },
		Limiter:    s.store.Layered,
		Unlayered:  s.store.Limiter,
		Fleet:      s.store.Fleet,
		StoreError: s.store.Err,
		Instance:   s.watch,
		Now:        s.watch.Metrics.Now,
		FitsHold:   check.FitsHold,
		Ambiguity:  s.settings.AllowAmbiguous,
		Timeout:    s.settings.DecisionTimeout,
		MostKept:   check.MaxChecks,
	}
	if s.door.Admission.HasLimit() {
		o.Admit = s.door.Admission.Admit
	}
	return decide.New(o)
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
	one := make([]decide.Request, 1)
	one[0].In = in
	s.door.Decide(ctx, one, at, true)
	return one[0].Verdict, one[0].Err
}
