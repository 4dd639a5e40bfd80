package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
)

// watcher learns what becomes of requests; see decide.Watcher.
type watcher interface {
	decided(context.Context, event)
	violated(context.Context, violation)
}

// event is a decision by a set.
type event struct {
	decide.Event
	set *served
}

// violation is a violation of a rule of a set.
type violation struct {
	decide.Violation
	set *served
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

// Decided is for decide.Watcher: it tells everyone who watches. Simulations are only measured.
func (c *served) Decided(ctx context.Context, e decide.Event) {
	if e.Simulated {
		c.of.metrics.decided(ctx, event{e, c})
		return
	}
	for _, w := range c.of.watchers {
		w.decided(ctx, event{e, c})
	}
}

// Violated is for decide.Watcher.
func (c *served) Violated(ctx context.Context, v decide.Violation) {
	for _, w := range c.of.watchers {
		w.violated(ctx, violation{v, c})
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
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
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

// KindOf is the kind of a request with this verdict, or that could not be decided because of err.
func KindOf(v *Verdict, err error) Kind { return decide.KindOf(v, err) }

// instance is the Server as the decision knows it.
type instance struct{ *Server }

// StoreCalled is for decide.Instance.
func (s instance) StoreCalled(took time.Duration, err error) { s.metrics.called(took, err) }

// Failed is for decide.Instance.
func (s instance) Failed(text string, err error) { s.sampled.failure(text, err) }

// Uncharged is for decide.Instance.
func (s instance) Uncharged(text string, err error) { s.logUncharged(text, err) }

// Ambiguous is for decide.Instance.
func (s instance) Ambiguous(err error) { s.sampled.ambiguity(err) }

// Panicked is for decide.Instance.
func (s instance) Panicked(p any) {
	const text = "panic in the decision of a list"
	s.sampled.log(slog.LevelError, text, text, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}
