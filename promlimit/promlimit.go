// Package promlimit has Prometheus metrics of the decisions of a stint.Limiter:
//
//	metrics := promlimit.New(promlimit.Options{})
//	prometheus.MustRegister(metrics)
//	limiter := stint.Limiter{Store: metrics.Store(store), Observe: metrics.Observe, ObserveHold: metrics.ObserveHold}
//
// A Collector has these metrics. No label contains a key, because each key would make a series that
// is kept forever.
//
//	stint_limit_requests_total{outcome,by}       Requests decided, by who decided: store, local,
//	                                             policy, lease or instance.
//	stint_limit_decisions_total{limit,outcome}   Requests by limit. One that is allowed counts for
//	                                             each of its limits, one that is refused for the
//	                                             limit that refused it.
//	stint_limit_units_total{limit}               Units that were charged: when a request started,
//	                                             when its hold was settled, or afterwards.
//	stint_limit_held_units_total{limit}          Units that requests began to hold: the estimates
//	                                             of what they would cost.
//	stint_limit_settlements_total{limit,result}  Holds that ended: settled; unknown, where the
//	                                             store had none any more; or failed, where it did
//	                                             not answer. Only a hold that is settled charges.
//	stint_limit_penalties_total{penalty,outcome} Refusals under a penalty: limited, warned, or
//	                                             banned, also by bans that ran already.
//	stint_limit_undecided_total{reason}          Requests that nobody decided: timeout, canceled
//	                                             by the caller, full, or error.
//	stint_limit_store_seconds                    Histogram: time of a call of the store.
//	stint_limit_store_errors_total{reason}       Such calls that failed, by reason as above.
//
// The last two are for Stores that Collector.Store returned. Requests with an instant, which are
// simulations, and those that only peek are not counted.
//
// The server has its own metrics, by rule; see its docs/metrics.md.
package promlimit

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
)

// Options are options of a Collector. The zero Options are the defaults.
type Options struct {
	// Names is how many limits and how many penalties have their own series. The rest count
	// together as "other". It bounds the memory of a program that makes a limit with a new name for
	// each customer. 0: 1000.
	Names int
	// Buckets are the buckets of stint_limit_store_seconds. nil: DefaultBuckets.
	Buckets []float64
	// Labels are added to each metric, to tell several Collectors in one registry apart.
	Labels prometheus.Labels
}

const defaultNames = 1000

// Collector counts what Limiters decide. New makes it. Several Limiters may share one, and it
// may be used from many goroutines at once.
type Collector struct {
	requests  [stint.Banned + 1][stint.ByInstance + 1]prometheus.Counter
	undecided [reasons]prometheus.Counter
	failed    [reasons]prometheus.Counter
	seconds   prometheus.Histogram
	limits    names[limitSeries]
	penalties names[penaltySeries]

	all []prometheus.Collector
}

// limitSeries has the series of a limit.
type limitSeries struct {
	decisions [stint.Banned + 1]prometheus.Counter // none of 0
	units     prometheus.Counter
	held      prometheus.Counter
	settled   [results]prometheus.Counter
}

// result is how a hold ended.
type result uint8

const (
	isSettled result = iota
	isUnknown
	isFailed
	results
)

var resultNames = [results]string{"settled", "unknown", "failed"}

// penaltySeries has the series of a penalty, by outcome; no series for 0 and Allowed.
type penaltySeries [stint.Banned + 1]prometheus.Counter

// DefaultBuckets are the buckets of stint_limit_store_seconds without Options.Buckets, and those
// of the server's metrics. The server's default decision_timeout, 25 ms, is one of them.
var DefaultBuckets = [...]float64{
	1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4,
	1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1,
}

// New returns a Collector. It panics if Options.Buckets are not in increasing order.
func New(o Options) *Collector {
	if o.Names <= 0 {
		o.Names = defaultNames
	}
	if o.Buckets == nil {
		o.Buckets = DefaultBuckets[:]
	}
	c := new(Collector)
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: o.Labels}, labels)
		c.all = append(c.all, v)
		return v
	}
	requests := vec("stint_limit_requests_total", "Requests decided, by outcome and by who decided.", "outcome", "by")
	for outcome := stint.Allowed; outcome <= stint.Banned; outcome++ {
		for by := stint.ByStore; by <= stint.ByInstance; by++ {
			c.requests[outcome][by] = requests.WithLabelValues(outcome.String(), by.String())
		}
	}
	undecided := vec("stint_limit_undecided_total", "Requests that nobody decided, by reason.", "reason")
	failed := vec("stint_limit_store_errors_total", "Calls of the store that failed, by reason.", "reason")
	for r := range c.undecided {
		c.undecided[r], c.failed[r] = undecided.WithLabelValues(reasonNames[r]), failed.WithLabelValues(reasonNames[r])
	}
	decisions := vec("stint_limit_decisions_total", "Requests by limit: allowed, for each of their limits, and refused, for the limit that refused.", "limit", "outcome")
	units := vec("stint_limit_units_total", "Units that were charged.", "limit")
	held := vec("stint_limit_held_units_total", "Units that requests began to hold.", "limit")
	settled := vec("stint_limit_settlements_total", "Holds that ended, by result.", "limit", "result")
	c.limits.most, c.limits.make = o.Names, func(name string) *limitSeries {
		s := &limitSeries{units: units.WithLabelValues(name), held: held.WithLabelValues(name)}
		for r := range s.settled {
			s.settled[r] = settled.WithLabelValues(name, resultNames[r])
		}
		for outcome := stint.Allowed; outcome <= stint.Banned; outcome++ {
			s.decisions[outcome] = decisions.WithLabelValues(name, outcome.String())
		}
		return s
	}
	penalties := vec("stint_limit_penalties_total", "Refusals under a penalty.", "penalty", "outcome")
	c.penalties.most, c.penalties.make = o.Names, func(name string) *penaltySeries {
		s := new(penaltySeries)
		for outcome := stint.Limited; outcome <= stint.Banned; outcome++ {
			s[outcome] = penalties.WithLabelValues(name, outcome.String())
		}
		return s
	}
	c.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "stint_limit_store_seconds", Help: "Time of a call of the store.", Buckets: o.Buckets, ConstLabels: o.Labels,
	})
	c.all = append(c.all, c.seconds)
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.all {
		m.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.all {
		m.Collect(to)
	}
}

// Observe is for stint.Limiter.Observe.
func (c *Collector) Observe(ctx context.Context, r *stint.Request, a *stint.Answer) {
	switch {
	case !r.At.IsZero() || peeks(r):
		return
	case a.Err != nil:
		c.undecided[reasonOf(ctx, a.Err)].Inc()
		return
	case a.Outcome < stint.Allowed || a.Outcome > stint.Banned || a.By > stint.ByInstance: // a Store's mistake
		return
	}
	c.requests[a.Outcome][a.By].Inc()
	if a.Penalty != nil && !a.Allowed {
		c.penalties.of(a.Penalty.Spec().Name)[a.Outcome].Inc()
	}
	if !a.Allowed {
		if a.Limit != nil {
			c.limits.of(nameOf(a.Limit)).decisions[a.Outcome].Inc()
		}
		return
	}
	for i := range r.Asks {
		ask := &r.Asks[i]
		if n := ask.Units(); n > 0 {
			s := c.limits.of(nameOf(ask.Limit))
			s.decisions[stint.Allowed].Inc()
			switch {
			case a.By == stint.ByPolicy: // nothing was counted
			case ask.Limit.IsHeld() && r.Hold != stint.HoldID{}:
				s.held.Add(float64(n))
			case ask.Limit.Spec().Algorithm != stint.InFlight: // nothing is charged in flight
				s.units.Add(float64(n))
			}
		}
	}
}

// ObserveHold is for stint.Limiter.ObserveHold.
func (c *Collector) ObserveHold(_ context.Context, call *stint.HoldCall) {
	if call.Limit == nil {
		return
	}
	s := c.limits.of(nameOf(call.Limit))
	s.units.Add(float64(call.Charged))
	switch {
	case call.Action == stint.HoldCharge:
	case call.Err != nil:
		s.settled[isFailed].Inc()
	case !call.Found:
		s.settled[isUnknown].Inc()
	default:
		s.settled[isSettled].Inc()
	}
}

// peeks reports whether r has only peeks.
func peeks(r *stint.Request) bool {
	for i := range r.Asks {
		if !r.Asks[i].Peek {
			return false
		}
	}
	return true
}

// nameOf is the name of a limit, or its terms if it has none.
func nameOf(l *stint.Limit) string {
	if name := l.Spec().Name; name != "" {
		return name
	}
	return l.Terms()
}

// reason is why a call failed.
type reason uint8

const (
	isTimeout reason = iota
	isCanceled
	isFull
	isError
	reasons
)

var reasonNames = [reasons]string{"timeout", "canceled", "full", "error"}

func reasonOf(ctx context.Context, err error) reason {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, stint.ErrFull):
		return isFull
	case errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled):
		return isCanceled
	case errors.As(err, &timeout) && timeout.Timeout():
		return isTimeout
	}
	return isError
}

// others is the name shared by limits and penalties without their own series.
const others = "other"

// names has series by name. Readers take no lock.
type names[S any] struct {
	most int
	make func(name string) *S

	known atomic.Pointer[map[string]*S] // not changed once it is stored
	other atomic.Pointer[S]             // for all further names; nil: there is room for more
	mu    sync.Mutex                    // for writers
}

func (n *names[S]) of(name string) *S {
	if known := n.known.Load(); known != nil {
		if s := (*known)[name]; s != nil {
			return s
		}
	}
	if s := n.other.Load(); s != nil {
		return s
	}
	return n.add(name)
}

// add makes the series of a name, if there is room for it.
func (n *names[S]) add(name string) *S {
	n.mu.Lock()
	defer n.mu.Unlock()
	var known map[string]*S
	if now := n.known.Load(); now != nil {
		known = *now
	}
	if s := known[name]; s != nil {
		return s
	}
	if len(known) >= n.most {
		s := n.other.Load()
		if s == nil {
			s = n.make(others)
			n.other.Store(s)
		}
		return s
	}
	next := make(map[string]*S, len(known)+1)
	maps.Copy(next, known)
	s := n.make(strings.ToValidUTF8(name, "\uFFFD"))
	next[name] = s
	n.known.Store(&next)
	return s
}
