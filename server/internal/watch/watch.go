// Package watch makes log lines, metrics, traces and findings of what package decide tells. It imports the
// decision, and knows no door: those who ask hand it what it is to show.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/alerts"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/offenders"
	"github.com/stintdev/stint/server/internal/recent"
)

// watcher learns what becomes of requests; see decide.Watcher.
type watcher interface {
	decided(context.Context, event)
	violated(context.Context, violation)
}

// event is a decision by a set.
type event struct {
	decide.Event
	set *Served
}

// violation is a violation of a rule of a set.
type violation struct {
	decide.Violation
	set *Served
}

// watchesNothing is for watchers of one kind of events.
type watchesNothing struct{}

func (watchesNothing) decided(context.Context, event) {}

func (watchesNothing) violated(context.Context, violation) {}

// Watch is told what becomes of requests and of an instance, and makes log lines, metrics and spans of it, and
// what operators see of offenders, bans, alerts and recent requests. New makes one.
type Watch struct {
	Log      *slog.Logger
	Sampled  *Sampled // to Log
	Refusals Refusals // to Log
	Privacy  *Privacy
	Metrics  *Metrics
	Bans     Bans
	Tracing  *Tracing // nil: no spans are made
	watchers []watcher
	current  atomic.Pointer[Served]
}

// Options are the settings of a Watch.
type Options struct {
	Log *slog.Logger
	// Refusals is how many lines about refusals a rule logs in a second; 0: none.
	Refusals uint32
	// HashKeys means that keys and addresses are shown hashed.
	HashKeys bool
	// Webhooks and Listeners are names for metrics.
	Webhooks, Listeners []string
}

// New returns a Watch of which the decisions are not watched yet: see Start.
func New(o Options) *Watch {
	w := &Watch{Log: o.Log, Sampled: &Sampled{To: o.Log}, Metrics: newMetrics(&o)}
	w.Privacy = &Privacy{sampled: w.Sampled}
	if o.HashKeys {
		w.Privacy.salt.Store(newSalt())
	}
	w.Sampled.Hide = w.Privacy.hideAddresses
	w.Refusals.to, w.Refusals.shown, w.Refusals.most = o.Log, w.Privacy.ShownKey, o.Refusals
	return w
}

// Start makes decisions known to everyone who watches. It is to be called before there are any. counter and
// recorder may be nil.
func (w *Watch) Start(evaluator *alerts.Alerts, counter *offenders.Counter, recorder *recent.Recorder) {
	w.watchers = []watcher{w.Metrics, &w.Refusals, &w.Bans, usageWatcher{alerts: evaluator}, decisionLog{to: w.Log, shownKey: w.Privacy.ShownKey}}
	if counter != nil {
		w.watchers = append(w.watchers, offenderWatcher{counter})
	}
	if recorder != nil {
		w.watchers = append(w.watchers, recentWatcher{Recorder: recorder})
	}
}

// Decided is for decide.Watcher: it tells everyone who watches. Simulations are only measured.
func (c *Served) Decided(ctx context.Context, e decide.Event) {
	if e.Simulated {
		c.watch.Metrics.decided(ctx, event{e, c})
		return
	}
	for _, w := range c.watch.watchers {
		w.decided(ctx, event{e, c})
	}
}

// Violated is for decide.Watcher.
func (c *Served) Violated(ctx context.Context, v decide.Violation) {
	for _, w := range c.watch.watchers {
		w.violated(ctx, violation{v, c})
	}
}

// Malformed counts a request that cannot be read, so that it comes to no decision. ctx is the request's.
func (w *Watch) Malformed(ctx context.Context) {
	w.Metrics.BadRequests.Inc()
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("stint.outcome", kind.Malformed.String()))
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
		state := []any{"limit", d.Limit.Terms(), "key", Loggable(l.shownKey(d.Key)), "allowed", d.Allowed, "remaining", d.Remaining, "used", d.Used()}
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

// StoreCalled is for decide.Instance.
func (w *Watch) StoreCalled(took time.Duration, err error) { w.Metrics.Called(took, err) }

// Failed is for decide.Instance.
func (w *Watch) Failed(text string, err error) { w.Sampled.Failure(text, err) }

// Uncharged is for decide.Instance.
func (w *Watch) Uncharged(text string, err error) {
	args := []any{"error", err}
	if e := (*decide.UnchargedError)(nil); errors.As(err, &e) {
		args = []any{"rule", e.Rule, "key", w.Refusals.Key(e.Key), "error", err}
	}
	w.Sampled.Log(slog.LevelError, text, text, args...)
}

// Ambiguous is for decide.Instance.
func (w *Watch) Ambiguous(err error) { w.Sampled.Ambiguity(err) }

// Panicked is for decide.Instance.
func (w *Watch) Panicked(p any) {
	const text = "panic in the decision of a list"
	w.Sampled.Log(slog.LevelError, text, text, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// Lost logs and counts a settlement that waited in memory and was lost before the store answered.
func (c *Served) Lost(l *stint.Limit, err error) {
	rule := decide.RuleOf(l)
	if counters := c.holds[rule]; counters != nil {
		counters.series[holdsLost].Add(1)
	}
	const text = "a request was not charged what it did cost"
	c.watch.Sampled.Log(slog.LevelError, text, text, "rule", rule, "error", err)
}
