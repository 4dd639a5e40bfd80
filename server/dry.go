package server

import (
	"context"
	"io"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/dry"
	"github.com/stintdev/stint/server/rules"
)

// Explain returns the decision that in would get, and why. It charges nothing. A request without a route is
// treated as one that comes through the gateway. The error wraps stint.ErrRequest if in is malformed or
// ambiguous; any other means that the store did not answer.
func (s *Server) Explain(ctx context.Context, in *rules.Input) (*adminapi.Explanation, error) {
	return s.explainer.Explain(ctx, in)
}

// routed returns in as the gateway sees it: with the name of its route, if in has none, and whether it is
// a preflight.
func (s *Server) routed(in *rules.Input) *rules.Input {
	if in.Request == nil {
		return in
	}
	with, request := *in, *in.Request
	if route := s.gateway.Routes.Find(request.Host, request.Path); route != nil && request.Route == "" {
		request.Route = route.Name
	}
	request.Preflight = s.gateway.CORS.IsPreflight(request.Method, request.Header)
	with.Request = &request
	return &with
}

// Simulate replays events by their own clock. Each line of in is a JSON object like a check
// request, with t_us, its instant in µs since 1970. For each, Simulate writes a line to
// out. An event that a server would answer with 400 has the outcome "malformed". Empty
// lines are skipped. Simulate stops at the first line that is not an event or cannot be decided; the error
// has the line's number.
//
// An event with "hold" holds its units under held limits. The hold is a name. Later events use it for the
// last event that had it:
//
//	{"t_us": 1770000000000000, "hold": "h1", "cost": 500, "attrs": {"user": "ann"}}
//	{"t_us": 1770000001000000, "renew": "h1"}
//	{"t_us": 1770000002000000, "settle": "h1", "cost": 812}
//	{"t_us": 1770000003000000, "charge": true, "cost": 90, "attrs": {"user": "ann"}}
//
// "settle" charges the cost, or without one the held units; its outcome is "settled", or "unknown" if no
// limit has the hold any more. "renew" makes the hold last for another Spec.Hold; its outcome is "renewed".
// "charge" charges the cost, whether it fits or not; its outcome is "charged". Their decisions have
// remaining, reset_after_us and charged. Nothing is renewed or settled automatically.
//
// The Server's store must hold no counts that were made by a real clock.
func (s *Server) Simulate(ctx context.Context, in io.Reader, out io.Writer) error {
	return dry.Simulate(ctx, s.door, in, out)
}

// Trial decides requests of the past, such as those of an access log, each at its own instant, as a Server would
// have decided them. Its counts are in memory, and its own. It must not be used from several goroutines at once.
type Trial struct {
	trial  *dry.Trial
	routed func(*rules.Input) *rules.Input // with the name of its route
	set    *rules.Set
	try    dry.Try

	// MaxDelay is how long a request may be delayed by rules that shape, as the gateway does. 0: it is not delayed,
	// as by the check API, and such rules limit.
	MaxDelay time.Duration
}

// TrialKeys is how many keys a Trial counts at once, like the memory of a simulation.
const TrialKeys = 20_000_000

// NewTrial returns a Trial of the rules of s for requests of which only k is known, and the rules and entries
// of lists that cannot be tried, because they need more than that. Those are off.
//
// The rules, and the gateway's routes, are those in force at the call, without changes made at run time. s must be
// open then. Nothing else of it is used, and nothing of it is changed.
func NewTrial(s *Server, k *rules.Known) (*Trial, []rules.Lack) {
	known := *k
	known.Route = k.Route || k.Host && k.Path && len(s.door.Settings.Routes) > 0
	set, lacks := s.Rules().Trying(&known)
	t := &Trial{trial: dry.NewTrial(set, TrialKeys), set: set}
	if known.Route && !k.Route {
		t.routed = s.routed
	}
	t.try.AllowAmbiguous = s.door.Settings.AllowAmbiguous
	return t, lacks
}

// Rules are those that are tried. They must not be changed.
func (t *Trial) Rules() *rules.Set { return t.set }

// Decide decides a request of that instant, which must not be before that of the request before it. The Verdict is
// valid until the next call. An error wraps stint.ErrRequest if a server would answer the request with 400: it
// is malformed, or ambiguous, and the setting ambiguous does not allow that. Any other error means that more
// than TrialKeys keys are counted at once.
func (t *Trial) Decide(ctx context.Context, in *rules.Input, at time.Time) (*Verdict, error) {
	if t.routed != nil {
		in = t.routed(in)
	}
	t.try.In, t.try.At, t.try.MaxDelay = in, at, t.MaxDelay
	r, err := t.trial.Decide(ctx, &t.try)
	if err != nil {
		return nil, err
	}
	return &r.Verdict, nil
}

// Asks adds to out what in asks of the rules, without a decision. The error is as for Decide.
func (t *Trial) Asks(ctx context.Context, in *rules.Input, out *rules.Plan) error {
	if t.routed != nil {
		in = t.routed(in)
	}
	return t.set.AsksContext(ctx, in, out)
}

// Respond says how the last request was answered. Rules with on_status count that as a violation; those that then
// ban the key are returned.
func (t *Trial) Respond(ctx context.Context, status int) ([]*rules.Rule, error) {
	return t.trial.Respond(ctx, status)
}
