package watch

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/rules"
)

// Metrics are the metrics of a Server. If you add one, add it to docs/metrics.md; a test
// compares.
//
// No label has a key, or anything else that a client can choose: each value would be a series that is kept
// forever, here and in Prometheus. The only labels not fixed in this file are the names of rules,
// webhooks, listeners and lists.
type Metrics struct {
	Registry *prometheus.Registry
	Epoch    time.Time // see Now

	rules seriesByName

	OverloadedInFlight, OverloadedShare, OverloadedLimit, OverloadedBytes prometheus.Counter
	ConnectionsRefused                                                    *prometheus.CounterVec // by listener
	StalledUploads, StalledResponses                                      prometheus.Counter
	HTTP2Headers, HTTP2Frames, HTTP2Resets                                prometheus.Counter

	decideSeconds, storeSeconds prometheus.Histogram
	storeTimeouts, storeErrors  prometheus.Counter
	BadRequests                 prometheus.Counter
	reloadsTaken, reloadsFailed prometheus.Counter
	StateFailures, SyncFailures prometheus.Counter
	breakerOpened               prometheus.Counter
	AuditDropped                prometheus.Counter

	AlertMessages   *prometheus.CounterVec // by webhook, result
	AlertKeysMissed prometheus.Counter

	TokensValid, TokensInvalid prometheus.Counter

	SpansSent, SpansFailed, SpansDropped prometheus.Counter
	KeysFailed                           prometheus.Counter

	CertificatesTaken, CertificatesRefused prometheus.Counter
	CertificateExpiry                      *prometheus.GaugeVec // by listener
}

// newMetrics has no series of rules yet.
func newMetrics(o *Options) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), Epoch: time.Now()}
	counter := func(name, help string) prometheus.Counter {
		return registered(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	histogram := func(name, help string) prometheus.Histogram {
		return registered(m, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: live.Bounds[:]}))
	}
	m.rules = seriesByName{created: m.Epoch, byName: map[string]*ruleSeries{}}
	m.Registry.MustRegister(&m.rules)
	m.decideSeconds = histogram("stint_decision_seconds", "Time to decide a request, including the store's.")
	m.storeSeconds = histogram("stint_store_seconds", "Time of a call of the store, including failed calls.")
	failures := vec("stint_store_errors_total", "Calls of the store that failed.", "kind")
	m.storeTimeouts, m.storeErrors = failures.WithLabelValues("timeout"), failures.WithLabelValues("error")
	m.BadRequests = counter("stint_bad_requests_total", "Requests too malformed to be decided.")
	reloads := vec("stint_rules_reloads_total", "New rules, by result.", "result")
	m.reloadsTaken, m.reloadsFailed = reloads.WithLabelValues("taken"), reloads.WithLabelValues("refused")
	overloads := vec("stint_overload_refusals_total", "Requests refused because this instance was overloaded, by what had run out.", "reason")
	m.OverloadedInFlight, m.OverloadedShare, m.OverloadedLimit = overloads.WithLabelValues("in_flight"), overloads.WithLabelValues("share"), overloads.WithLabelValues("limit")
	m.OverloadedBytes = overloads.WithLabelValues("bytes")
	stalled := vec("stint_stalled_clients_total", "Requests of the gateway that were ended because the client was stalled.", "direction")
	m.StalledUploads, m.StalledResponses = stalled.WithLabelValues("upload"), stalled.WithLabelValues("response")
	m.ConnectionsRefused = vec("stint_connections_refused_total", "Connections closed on arrival, because their listener had max_connections.", "listener")
	for _, listener := range o.Listeners {
		m.ConnectionsRefused.WithLabelValues(listener)
	}
	ended := vec("stint_connections_ended_total", "HTTP/2 connections ended because of what the client did.", "reason")
	m.HTTP2Headers, m.HTTP2Frames, m.HTTP2Resets = ended.WithLabelValues("slow_headers"), ended.WithLabelValues("frames"), ended.WithLabelValues("resets")
	m.breakerOpened = counter("stint_breaker_opened_total", "Times that the circuit breaker of the store opened.")
	m.AuditDropped = counter("stint_audit_lines_dropped_total", "Log lines about changes dropped because nobody read the log.")
	m.SyncFailures = counter("stint_sync_failures_total", "Times that this instance could not read the fleet's documents; it keeps what it has.")
	m.StateFailures = counter("stint_state_failures_total", "Times that the state for the next start could not be written to state_dir.")
	m.AlertMessages = vec("stint_alert_messages_total", "Messages about alerts that were sent to webhooks, by result.", "webhook", "result")
	for _, webhook := range o.Webhooks {
		for _, result := range [...]string{"accepted", "failed"} {
			m.AlertMessages.WithLabelValues(webhook, result)
		}
	}
	m.AlertKeysMissed = counter("stint_alert_keys_missed_total", "Times that an alert about usage could not take note of a key, because too many keys waited.")
	tokens := vec("stint_client_tokens_total", "Tokens of clients that a rule looked at, by whether they were valid.", "result")
	m.TokensValid, m.TokensInvalid = tokens.WithLabelValues("valid"), tokens.WithLabelValues("invalid")
	m.KeysFailed = counter("stint_jwks_failures_total", "Times that token keys could not be fetched from jwks_url; the previous ones stay.")
	recorded := vec("stint_trace_spans_total", "Spans recorded, by what became of them.", "result")
	m.SpansSent, m.SpansFailed, m.SpansDropped = recorded.WithLabelValues("sent"), recorded.WithLabelValues("failed"), recorded.WithLabelValues("dropped")
	certificates := vec("stint_certificate_reloads_total", "Certificates read again, by result.", "result")
	m.CertificatesTaken, m.CertificatesRefused = certificates.WithLabelValues("taken"), certificates.WithLabelValues("refused")
	m.CertificateExpiry = registered(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "stint_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of a listener, of an upstream or of the store expires, in seconds since 1970.",
	}, []string{"listener"}))
	m.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func registered[C prometheus.Collector](m *Metrics, c C) C {
	m.Registry.MustRegister(c)
	return c
}

// Handler serves the metrics.
func (m *Metrics) Handler(errorLog *log.Logger) http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{ErrorLog: errorLog})
}

// Now is a time to compute differences with. It reads one clock; time.Now reads two.
func (m *Metrics) Now() time.Duration { return time.Since(m.Epoch) }

// decided is for watcher.
func (m *Metrics) decided(ctx context.Context, e event) {
	m.decideSeconds.Observe(e.Took.Seconds())
	cancelled := ctx.Err() != nil
	for i := range e.Groups {
		g := &e.Groups[i]
		if err := g.Answer.Err; g.InShadow() || err != nil && (cancelled || errors.Is(err, stint.ErrRequest) || !g.Request.At.IsZero()) {
			continue
		}
		e.set.counters.fellBack(g.Rules, &g.Answer)
	}
	switch {
	case e.Kind == kind.Malformed:
		m.BadRequests.Inc()
	case e.Kind == kind.Undecided && cancelled: // nobody waits for an answer
	case e.Rule != nil:
		e.set.counters.of(e.Rule).decided(e.Kind)
	default:
		m.rules.noRule[e.Kind].Add(1)
	}
	countBeside(&e.Verdict, e.set.counters)
}

// violated is for watcher.
func (m *Metrics) violated(_ context.Context, v violation) {
	if c := v.set.counters.of(v.Rule); c != nil {
		c.series.counts[nResponses].Add(1)
	}
}

// countBeside counts the decision for the rules that applied and did not decide.
func countBeside(v *decide.Verdict, counters ruleCounters) {
	for i, r := range v.Rules {
		if r == v.Rule || i > 0 && r == v.Rules[i-1] {
			continue
		}
		if c := counters.of(r); c != nil && r.Mode == rules.Enforce {
			c.series.counts[nBeside].Add(1)
		}
	}
}

// Called counts a call of the store.
func (m *Metrics) Called(took time.Duration, err error) {
	m.storeSeconds.Observe(took.Seconds())
	if err == nil {
		return
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		m.storeTimeouts.Inc()
		return
	}
	m.storeErrors.Inc()
}

// Reloaded counts new rules, taken or refused with err.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.reloadsFailed.Inc()
		return
	}
	m.reloadsTaken.Inc()
}

// Turned counts that the breaker opened.
func (m *Metrics) Turned(to fleet.BreakerState, why error) {
	if why != nil && (to == fleet.Open || to == fleet.PartlyOpen) {
		m.breakerOpened.Inc()
	}
}
