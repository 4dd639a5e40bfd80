package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// watcher learns what becomes of requests. Its methods must not block or fail, and keep nothing of what they
// get; every request pays for their time. They are called from many goroutines at once.
type watcher interface {
	decided(context.Context, event)
	violated(context.Context, violation)
}

// event is a decision, when all of it is known.
type event struct {
	*evaluation
	set   *served       // that decided
	start time.Duration // of the decision; see metrics.now
	took  time.Duration // without what comes after it
}

// violation is a response that counted as a violation of a rule.
type violation struct {
	watching
	set      *served // that decided
	start    time.Duration
	client   netip.Addr // invalid: unknown
	path     string
	id       string // of the decision; empty: it has none
	status   int
	decision stint.Decision // what the violation led to
}

// watchesNothing is for watchers of one kind of events.
type watchesNothing struct{}

func (watchesNothing) decided(context.Context, event)      {}
func (watchesNothing) violated(context.Context, violation) {}

// newWatchers returns everything that learns of decisions.
func (s *Server) newWatchers() []watcher {
	all := []watcher{s.metrics, &s.refusals, &s.bans, usageWatcher{alerts: s.alerts}, decisionLog{to: s.log, shownKey: s.shownKey}}
	if s.offenders != nil {
		all = append(all, offenderWatcher{s.offenders})
	}
	if s.recent != nil {
		all = append(all, s.recent)
	}
	return all
}

// observe tells everyone who watches.
func (s *Server) observe(ctx context.Context, a *arrival, t *evaluation) {
	e := event{t, a.set, a.start, s.metrics.now() - a.start - a.waited}
	if !a.at.IsZero() { // a simulation
		s.metrics.decided(ctx, e)
		return
	}
	for _, w := range s.watchers {
		w.decided(ctx, e)
	}
}

// malformed counts a request that cannot be read, so that it comes to no decision.
func (s *Server) malformed(r *http.Request) {
	s.metrics.badRequests.Inc()
	trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("stint.outcome", kind.Malformed.String()))
}

// decisionLog logs each decision at level debug, and how it leaves each limit.
type decisionLog struct {
	watchesNothing
	to       *slog.Logger
	shownKey func(string) string
}

func (l decisionLog) decided(ctx context.Context, e event) {
	if !l.to.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{slog.String("outcome", e.Kind.String()), slog.String("by", e.By.String())}
	if e.err != nil {
		attrs = append(attrs, slog.Any("error", e.err))
	}
	for i := range e.Each {
		d := &e.Each[i]
		if d.Limit == nil {
			continue
		}
		state := []any{"limit", d.Limit.Terms(), "key", loggable(l.shownKey(d.Key)), "allowed", d.Allowed, "remaining", d.Remaining, "used", d.Used()}
		if d.Held > 0 {
			state = append(state, "held", d.Held)
		}
		if !d.Allowed {
			state = append(state, "retry_after", loggedWait(d.RetryAfter))
		}
		attrs = append(attrs, slog.Group(e.Rules[i].Name+"."+strconv.Itoa(i), state...))
	}
	l.to.LogAttrs(ctx, slog.LevelDebug, "decided", attrs...)
}

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

// KindOf is the kind of a request with this verdict, or that could not be decided because of err. Nothing else
// concludes it from lists, outcomes, bans and errors.
func KindOf(v *Verdict, err error) Kind {
	_, overloaded := isOverloaded(err)
	switch {
	case overloaded:
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
	return kindOfDecision(&v.Decision)
}

// kindOfDecision is the kind of a request that a limit or a penalty decided. Stores that are not Stint's may
// leave the Outcome out.
func kindOfDecision(d *stint.Decision) Kind {
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
