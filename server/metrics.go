package server

import (
	"context"
	"errors"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/recent"
	"github.com/stintdev/stint/server/rules"
)

// metrics are the metrics of a Server. If you add one, add it to docs/metrics.md; a test
// compares.
//
// No label has a key, or anything else that a client can choose: each value would be a series that is kept
// forever, here and in Prometheus. The only labels not fixed in this file are the names of rules and of
// webhooks.
type metrics struct {
	registry *prometheus.Registry
	epoch    time.Time // see now

	decisions *prometheus.CounterVec // by rule, outcome
	shadows   *prometheus.CounterVec // by rule
	skips     *prometheus.CounterVec // by rule
	besides   *prometheus.CounterVec // by rule
	fallbacks *prometheus.CounterVec // by rule, policy
	responses *prometheus.CounterVec // by rule

	holds        *prometheus.GaugeVec   // by rule
	holdsEnded   *prometheus.CounterVec // by rule, result
	holdUnits    *prometheus.CounterVec // by rule, kind
	costsUnknown *prometheus.CounterVec // by rule

	noRule [kind.Kinds]prometheus.Counter // requests that no rule decided; nil: they are not counted

	overloadedInFlight, overloadedShare, overloadedLimit, overloadedBytes prometheus.Counter
	connectionsRefused                                                    *prometheus.CounterVec // by listener
	stalledUploads, stalledResponses                                      prometheus.Counter
	http2Headers, http2Frames, http2Resets                                prometheus.Counter

	decideSeconds, storeSeconds prometheus.Histogram
	storeTimeouts, storeErrors  prometheus.Counter
	badRequests                 prometheus.Counter
	reloadsTaken, reloadsFailed prometheus.Counter
	stateFailures, syncFailures prometheus.Counter
	breakerOpened               prometheus.Counter
	auditDropped                prometheus.Counter

	alertMessages   *prometheus.CounterVec // by webhook, result
	alertKeysMissed prometheus.Counter

	tokensValid, tokensInvalid prometheus.Counter

	spansSent, spansFailed, spansDropped prometheus.Counter
	keysFailed                           prometheus.Counter

	certificatesTaken, certificatesRefused prometheus.Counter
	certificateExpiry                      *prometheus.GaugeVec // by listener
}

// served is a set with the counters of its rules. They are swapped together, so that a request
// uses the counters of the rules that decided it.
type served struct {
	decide.Set
	of       *Server
	counters ruleCounters
	holds    holdsByName
	noticed  *noticed
	reads    *recent.Reads                  // of requests, for previews
	usage    map[*rules.Rule][]*rules.Alert // nil: there are no alerts about keys
}

// ruleCounters has the counters of each rule that is not off. Finding a rule by its address
// takes a few ns; finding a series by its labels takes several times that.
type ruleCounters struct {
	rules map[*rules.Rule]*ruleCounter // but for rules in late
	late  *lateCounters                // nil: there are none
}

// of returns the counter of a rule; nil: the rule is off.
func (c ruleCounters) of(r *rules.Rule) *ruleCounter {
	if known := c.rules[r]; known != nil || c.late == nil || r == nil || r.Descriptor == nil {
		return known
	}
	return c.late.of(r)
}

// all calls f with each existing counter.
func (c ruleCounters) all(f func(*rules.Rule, *ruleCounter)) {
	for r, counter := range c.rules {
		f(r, counter)
	}
	if c.late != nil {
		c.late.made.Range(func(r, counter any) bool {
			f(r.(*rules.Rule), counter.(*ruleCounter))
			return true
		})
	}
}

// maxEagerRules is up to how many rules of Envoy's files have their series from the start. With more rules,
// most never decide anything, and each gets its series at its first decision.
const maxEagerRules = 1000

// lateCounters makes the counters of a rule of Envoy's files when it first decides. It may be used from many
// goroutines at once.
type lateCounters struct {
	make func(*rules.Rule) *ruleCounter
	made sync.Map // by *rules.Rule
}

func (l *lateCounters) of(r *rules.Rule) *ruleCounter {
	if known, ok := l.made.Load(r); ok {
		return known.(*ruleCounter)
	}
	if r.Mode == rules.Off {
		return nil
	}
	counter, _ := l.made.LoadOrStore(r, l.make(r)) // equal names have the same series
	return counter.(*ruleCounter)
}

type ruleCounter struct {
	decisions [kind.Kinds]prometheus.Counter // nil: not of rules
	shadow    prometheus.Counter             // nil: the rule is not in shadow mode
	skipped   prometheus.Counter             // as shadow
	beside    prometheus.Counter             // nil: the rule is in shadow mode
	fallback  prometheus.Counter             // under the policy of the rule
	responses prometheus.Counter             // nil: the rule has no on_status
	holds     *holdCounters                  // nil: no limit of the rule is held
	lines     ruleLines                      // of the log
}

// newMetrics has no series of rules yet. It reads s at each scrape.
func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), epoch: time.Now()}
	counter := func(name, help string) prometheus.Counter {
		return registered(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	histogram := func(name, help string) prometheus.Histogram {
		return registered(m, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: live.Bounds[:]}))
	}
	m.decisions = vec("stint_decisions_total", "Requests decided, by the rule that decided and the outcome.", "rule", "outcome")
	m.shadows = vec("stint_shadow_refusals_total", "Requests that a rule in shadow mode would have refused.", "rule")
	m.skips = vec("stint_shadow_skipped_total", "Requests that a rule in shadow mode did not decide: malformed for it, no room to count, or the store did not decide.", "rule")
	m.besides = vec("stint_decisions_by_others_total", "Requests that a rule applied to and another rule decided.", "rule")
	m.fallbacks = vec("stint_fallback_decisions_total", "Decisions by a rule's on_store_error, because the store failed.", "rule", "policy")
	m.responses = vec("stint_response_violations_total", "Responses of upstreams that counted as violations of a rule's penalty.", "rule")
	m.holds = registered(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "stint_holds", Help: "Requests in flight through this instance that hold units by a rule."}, []string{"rule"}))
	m.holdsEnded = vec("stint_holds_ended_total", "Requests that held units by a rule and have ended, by what became of their holds.", "rule", "result")
	m.holdUnits = vec("stint_hold_units_total", "Budget units per rule: reserved, charged, and charged above the reservation.", "rule", "kind")
	m.costsUnknown = vec("stint_costs_unknown_total", "Requests whose cost under a rule could not be read in the response.", "rule")
	m.decideSeconds = histogram("stint_decision_seconds", "Time to decide a request, including the store's.")
	m.storeSeconds = histogram("stint_store_seconds", "Time of a call of the store, including failed calls.")
	failures := vec("stint_store_errors_total", "Calls of the store that failed.", "kind")
	m.storeTimeouts, m.storeErrors = failures.WithLabelValues("timeout"), failures.WithLabelValues("error")
	m.badRequests = counter("stint_bad_requests_total", "Requests too malformed to be decided.")
	reloads := vec("stint_rules_reloads_total", "New rules, by result.", "result")
	m.reloadsTaken, m.reloadsFailed = reloads.WithLabelValues("taken"), reloads.WithLabelValues("refused")
	overloads := vec("stint_overload_refusals_total", "Requests refused because this instance was overloaded, by what had run out.", "reason")
	m.overloadedInFlight, m.overloadedShare, m.overloadedLimit = overloads.WithLabelValues("in_flight"), overloads.WithLabelValues("share"), overloads.WithLabelValues("limit")
	m.overloadedBytes = overloads.WithLabelValues("bytes")
	stalled := vec("stint_stalled_clients_total", "Requests of the gateway that were ended because the client was stalled.", "direction")
	m.stalledUploads, m.stalledResponses = stalled.WithLabelValues("upload"), stalled.WithLabelValues("response")
	m.connectionsRefused = vec("stint_connections_refused_total", "Connections closed on arrival, because their listener had max_connections.", "listener")
	for _, listener := range [...]string{gatewayListener, checkListener, adminListener} {
		m.connectionsRefused.WithLabelValues(listener)
	}
	ended := vec("stint_connections_ended_total", "HTTP/2 connections ended because of what the client did.", "reason")
	m.http2Headers, m.http2Frames, m.http2Resets = ended.WithLabelValues("slow_headers"), ended.WithLabelValues("frames"), ended.WithLabelValues("resets")
	m.breakerOpened = counter("stint_breaker_opened_total", "Times that the circuit breaker of the store opened.")
	m.auditDropped = counter("stint_audit_lines_dropped_total", "Log lines about changes dropped because nobody read the log.")
	m.syncFailures = counter("stint_sync_failures_total", "Times that this instance could not read the fleet's documents; it keeps what it has.")
	m.stateFailures = counter("stint_state_failures_total", "Times that the state for the next start could not be written to state_dir.")
	m.alertMessages = vec("stint_alert_messages_total", "Messages about alerts that were sent to webhooks, by result.", "webhook", "result")
	for _, w := range s.settings.Webhooks {
		for _, result := range [...]string{"accepted", "failed"} {
			m.alertMessages.WithLabelValues(w.Name, result)
		}
	}
	m.alertKeysMissed = counter("stint_alert_keys_missed_total", "Times that an alert about usage could not take note of a key, because too many keys waited.")
	tokens := vec("stint_client_tokens_total", "Tokens of clients that a rule looked at, by whether they were valid.", "result")
	m.tokensValid, m.tokensInvalid = tokens.WithLabelValues("valid"), tokens.WithLabelValues("invalid")
	m.keysFailed = counter("stint_jwks_failures_total", "Times that token keys could not be fetched from jwks_url; the previous ones stay.")
	recorded := vec("stint_trace_spans_total", "Spans recorded, by what became of them.", "result")
	m.spansSent, m.spansFailed, m.spansDropped = recorded.WithLabelValues("sent"), recorded.WithLabelValues("failed"), recorded.WithLabelValues("dropped")
	certificates := vec("stint_certificate_reloads_total", "Certificates read again, by result.", "result")
	m.certificatesTaken, m.certificatesRefused = certificates.WithLabelValues("taken"), certificates.WithLabelValues("refused")
	m.certificateExpiry = registered(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "stint_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of a listener, of an upstream or of the store expires, in seconds since 1970.",
	}, []string{"listener"}))
	for i := range m.noRule {
		if k := Kind(i); k.Scope() != kind.Uncounted {
			m.noRule[k] = m.decisions.WithLabelValues("", k.String())
		}
	}
	m.registry.MustRegister(
		liveCollector{s},
		findingsCollector(s.Findings),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func registered[C prometheus.Collector](m *metrics, c C) C {
	m.registry.MustRegister(c)
	return c
}

// handler serves the metrics.
func (m *metrics) handler(errorLog *log.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorLog: errorLog})
}

// serve makes set ready to be served. The series of its rules start at 0 and not with the first
// request, because Prometheus sees no increase in a series that appears as 1. The series of a
// rule whose name was served before go on.
//
// before was served until now; nil: nothing was. Those of its rules that have decided something keep their
// series, which would otherwise seem to start again.
func (m *metrics) serve(set *rules.Set, before *served) *served {
	all, holds := ruleCounters{rules: make(map[*rules.Rule]*ruleCounter, len(set.Rules))}, holdsByName{}
	late := map[string]*rules.Rule{}
	for _, r := range set.Rules {
		if r.Descriptor != nil && r.Mode != rules.Off && !r.Holds() {
			late[r.Name] = r
			continue
		}
		if c := m.counter(r); c != nil {
			all.rules[r] = c
			if r.Holds() {
				holds[r.Name] = c.holds
			}
		}
	}
	if len(late) > maxEagerRules {
		all.late = &lateCounters{make: m.counter}
		if before != nil {
			before.counters.all(func(r *rules.Rule, _ *ruleCounter) {
				if now := late[r.Name]; now != nil {
					all.late.of(now)
				}
			})
		}
	} else {
		for _, r := range late {
			all.rules[r] = m.counter(r)
		}
	}
	return &served{decide.Set{Set: set}, nil, all, holds, new(noticed), readsOf(set), usageAlerts(set)}
}

// counter makes the counter of a rule; nil: it is off.
func (m *metrics) counter(r *rules.Rule) *ruleCounter {
	c := &ruleCounter{}
	switch r.Mode {
	case rules.Enforce:
		c.fallback = m.fallbacks.WithLabelValues(r.Name, r.OnStoreError.String())
		c.beside = m.besides.WithLabelValues(r.Name)
		for i := range c.decisions {
			if k := Kind(i); k.Scope() == kind.OfRules {
				c.decisions[k] = m.decisions.WithLabelValues(r.Name, k.String())
			}
		}
		if len(r.OnStatus) > 0 {
			c.responses = m.responses.WithLabelValues(r.Name)
		}
	case rules.Shadow:
		c.shadow, c.skipped = m.shadows.WithLabelValues(r.Name), m.skips.WithLabelValues(r.Name)
	default:
		return nil
	}
	c.lines.rule = r.Name
	if r.Holds() {
		c.holds = m.holdsOf(r)
	}
	return c
}

// forget removes the series of the rules in before whose names are not in now. Otherwise the metrics of a
// program that names rules after days or deployments would grow without bound. Requests that a removed rule
// still decides are not counted. A rule that changes its mode keeps its counts, so that a switch resets
// nothing.
func (m *metrics) forget(before, now *rules.Set) {
	kept := make(map[string]bool, len(now.Rules))
	for _, r := range now.Rules {
		kept[r.Name] = true
	}
	for _, r := range before.Rules {
		if kept[r.Name] {
			continue
		}
		for _, word := range kind.Words(kind.OfRules) {
			m.decisions.DeleteLabelValues(r.Name, word)
		}
		m.shadows.DeleteLabelValues(r.Name)
		m.skips.DeleteLabelValues(r.Name)
		m.besides.DeleteLabelValues(r.Name)
		m.responses.DeleteLabelValues(r.Name)
		m.forgetHolds(r.Name)
		for _, f := range [...]stint.OnError{stint.OnErrorLocal, stint.OnErrorAllow, stint.OnErrorDeny} {
			m.fallbacks.DeleteLabelValues(r.Name, f.String())
		}
	}
}

// now is a time to compute differences with. It reads one clock; time.Now reads two.
func (m *metrics) now() time.Duration { return time.Since(m.epoch) }

// decided is for watcher.
func (m *metrics) decided(ctx context.Context, e event) {
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
		m.badRequests.Inc()
	case e.Kind == kind.Undecided && cancelled: // nobody waits for an answer
	case e.Rule != nil:
		e.set.counters.of(e.Rule).decisions[e.Kind].Inc()
	default:
		m.noRule[e.Kind].Inc()
	}
	countBeside(&e.Verdict, e.set.counters)
}

// violated is for watcher.
func (m *metrics) violated(_ context.Context, v violation) {
	if c := v.set.counters.of(v.Rule); c != nil {
		c.responses.Inc()
	}
}

// countBeside counts the decision for the rules that applied and did not decide.
func countBeside(v *Verdict, counters ruleCounters) {
	for i, r := range v.Rules {
		if r == v.Rule || i > 0 && r == v.Rules[i-1] {
			continue
		}
		if c := counters.of(r); c != nil && c.beside != nil {
			c.beside.Inc()
		}
	}
}

// called counts a call of the store.
func (m *metrics) called(took time.Duration, err error) {
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

// reloaded counts new rules, taken or refused with err.
func (m *metrics) reloaded(err error) {
	if err != nil {
		m.reloadsFailed.Inc()
		return
	}
	m.reloadsTaken.Inc()
}

// turned counts that the breaker opened.
func (m *metrics) turned(to fleet.BreakerState, why error) {
	if why != nil && (to == fleet.Open || to == fleet.PartlyOpen) {
		m.breakerOpened.Inc()
	}
}

// RefusedInShadow is for decide.Watcher.
func (c *served) RefusedInShadow(r *rules.Rule) { c.counters.of(r).shadow.Inc() }

// Skipped is for decide.Watcher.
func (c *served) Skipped(all ...*rules.Rule) {
	for _, r := range all {
		c.counters.of(r).skipped.Inc()
	}
}

// fellBack counts the rules whose on_store_error decided. A rule of several limits is there
// several times in a row.
func (c ruleCounters) fellBack(all []*rules.Rule, a *stint.Answer) {
	running := a.Outcome == stint.Banned && a.Limit == nil && !stint.Internal(friend.Of{}).IsShared(a.By)
	var last *rules.Rule
	for i, r := range all {
		if r != last && (running || a.Err != nil && r.OnStoreError == stint.OnErrorDeny || a.Err == nil && !stint.Internal(friend.Of{}).IsShared(a.Each[i].By)) {
			last = r
			if counter := c.of(r); counter.fallback != nil {
				counter.fallback.Inc()
			}
		}
	}
}
