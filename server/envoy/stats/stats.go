// Package stats keeps the statistics of envoyproxy/ratelimit, under its names: counters of each rule
// of Envoy's files, of calls and of loads of the configuration. It sends them to statsd, and answers
// Prometheus and the page /stats.
package stats

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// Config configures a Stats. The zero Config keeps statistics for the page only.
type Config struct {
	// Stats are the settings: where the statistics go.
	Stats config.EnvoyStats
	// Known reports whether the files in force have a domain. nil: all are known.
	Known func(domain string) bool
	// More are further metrics for Prometheus, such as server.Server.Gatherer. nil: none.
	More prometheus.Gatherer
	// Log receives failures. nil: slog.Default.
	Log *slog.Logger
}

// Stats is an envoy.Observer that keeps the statistics. New makes it. It may be used from many goroutines at
// once. No call blocks on the network, and none allocates for a known name.
type Stats struct {
	near  float32
	known func(string) bool
	log   *slog.Logger
	every time.Duration

	rules   *names // by rules.DescriptorMatch.Stat
	domains *names // domains that no file has
	service *group
	errors  *group
	runtime *runtimeStats
	local   *localCache // nil: no statistics of it

	mu      sync.Mutex // guards changes of methods
	methods atomic.Pointer[map[string]*method]

	statsd     *statsd     // nil: there is none
	prometheus *exposition // nil: there is none
	more       prometheus.Gatherer
}

var _ envoy.Observer = (*Stats)(nil)

// Counters of a rule, in the order of ruleKinds.
const (
	totalHits = iota
	overLimit
	nearLimit
	overLimitWithLocalCache
	withinLimit
	shadowMode
)

var ruleKinds = []string{"total_hits", "over_limit", "near_limit", "over_limit_with_local_cache", "within_limit", "shadow_mode"}

// Counters of the service, in the order of serviceKinds, and of its errors.
const (
	configLoadSuccess = iota
	configLoadError
	globalShadowMode
	statsFolded
)

var serviceKinds = []string{"config_load_success", "config_load_error", "global_shadow_mode", "stats_folded"}

const (
	storeError = iota
	serviceError
)

// Names that requests make: of rules with detailed_metric or value_to_metric, of overrides, and of
// unknown domains.
const (
	// mostNames bounds their number, separately for rules and domains.
	mostNames = 10_000
	// keepRequests and keepFiles are how long names without a hit are kept: those that requests made, and
	// those of rules in the files.
	keepRequests, keepFiles = time.Hour, 24 * time.Hour
	sweepEvery              = time.Minute
	// mostMethods bounds the methods with counters of their own.
	mostMethods = 64
)

const defaultFlush = 10 * time.Second

// otherDomains stands for unknown domains beyond the bound.
const otherDomains = "_other"

// New returns a Stats, or the error in c.
func New(c Config) (*Stats, error) {
	s := &Stats{
		near: float32(c.Stats.NearLimitRatio), known: c.Known, log: c.Log, every: c.Stats.FlushInterval,
		rules:   newNames("ratelimit.service.rate_limit.", ruleKinds, mostNames),
		domains: newNames("ratelimit.service.rate_limit.", []string{"domain_not_found"}, mostNames),
		service: newGroup("ratelimit.service", serviceKinds),
		errors:  newGroup("ratelimit.service.call.should_rate_limit", []string{"redis_error", "service_error"}),
		runtime: newRuntimeStats(),
		more:    c.More,
	}
	if c.Stats.LocalCache {
		s.local = new(localCache)
	}
	s.methods.Store(&map[string]*method{})
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.every <= 0 {
		s.every = defaultFlush
	}
	tags, err := readTags(c.Stats.Tags)
	if err != nil {
		return nil, err
	}
	if c.Stats.Statsd != "" || c.Stats.DogStatsd != "" {
		if s.statsd, err = newStatsd(&c.Stats, tags); err != nil {
			return nil, err
		}
	}
	if l := c.Stats.PrometheusListen; l != "" && l != config.Off {
		if s.prometheus, err = newExposition(&c.Stats, tags, s.log); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run sends statistics to statsd at each interval and drops names that are no longer used, until
// ctx is done. Then it sends them once more and returns.
func (s *Stats) Run(ctx context.Context) {
	tick, swept := time.NewTicker(s.every), time.Now()
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.flush()
			if now.Sub(swept) >= sweepEvery {
				s.sweep(now)
				swept = now
			}
		case <-ctx.Done():
			s.flush()
			if s.statsd != nil {
				s.statsd.close()
			}
			return
		}
	}
}

func (s *Stats) flush() {
	if s.statsd == nil {
		return
	}
	gauges, was := s.gauges(), s.statsd.failing
	switch err := s.statsd.flush(s.groups(), gauges, s.methodsNow()); {
	case err != nil && !was:
		s.log.Warn("statsd cannot be reached; statistics are kept until it can", "address", s.statsd.address, "error", err)
	case err == nil && was:
		s.log.Warn("statsd can be reached again", "address", s.statsd.address) // of the level of the line that it ends
	}
}

// sweep drops names that have not been used for long, when all of their hits are sent.
func (s *Stats) sweep(now time.Time) {
	done := func(g *group) bool { return s.statsd == nil || g.isSent() }
	for _, names := range []*names{s.rules, s.domains} {
		for _, g := range names.sweep(now, done) {
			if s.prometheus != nil {
				s.prometheus.forget(g)
			}
		}
	}
}

// gauges reads all gauges, and updates the counters of the runtime.
func (s *Stats) gauges() []gauge { return s.local.appendTo(s.runtime.read()) }

// groups are all counters.
func (s *Stats) groups() []*group {
	all := []*group{s.service, s.errors, s.runtime.counters}
	all = s.rules.appendAll(all)
	all = s.domains.appendAll(all)
	for _, m := range s.methodsNow() {
		all = append(all, m.calls)
	}
	return all
}

func (s *Stats) methodsNow() map[string]*method { return *s.methods.Load() }

// Called implements envoy.Observer.
func (s *Stats) Called(method string, took time.Duration) {
	m := s.methodsNow()[method]
	if m == nil {
		m = s.addMethod(method)
	}
	m.calls.n[0].Add(1)
	m.times.add(took)
	if m.observer != nil {
		m.observer.Observe(float64(took) / float64(time.Millisecond) * m.scale)
	}
}

// method is a gRPC method.
type method struct {
	calls    *group
	name     string // of times
	times    times
	observer prometheus.Observer // nil: Prometheus does not show times
	scale    float64
}

func (s *Stats) addMethod(name string) *method {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.methodsNow()
	if len(old) >= mostMethods {
		name = "unknown"
	}
	if m := old[name]; m != nil {
		return m
	}
	all := make(map[string]*method, len(old)+1)
	for name, m := range old {
		all[name] = m
	}
	prefix := "ratelimit_server." + clean(name)
	m := &method{calls: newGroup(prefix, []string{"total_requests"}), name: prefix + ".response_time"}
	if s.prometheus != nil {
		m.observer, m.scale = s.prometheus.observer(m.name)
	}
	all[strings.Clone(name)] = m
	s.methods.Store(&all)
	return m
}

// Failed implements envoy.Observer.
func (s *Stats) Failed(store bool) {
	kind := serviceError
	if store {
		kind = storeError
	}
	s.errors.n[kind].Add(1)
}

// Loaded implements envoy.Observer.
func (s *Stats) Loaded(err error) {
	kind := configLoadSuccess
	if err != nil {
		kind = configLoadError
	}
	s.service.n[kind].Add(1)
}

// Decided implements envoy.Observer.
func (s *Stats) Decided(calls *rules.Descriptors, v *server.Verdict, shadow bool) {
	if shadow {
		s.service.n[globalShadowMode].Add(1)
	}
	if v.ByHand != nil || v.List != rules.Unlisted {
		return // no rule of a descriptor decided
	}
	found := false
	for i := range v.Descriptors {
		m := &v.Descriptors[i]
		if m.Rule == nil || i >= len(calls.List) {
			continue
		}
		found = true
		if !m.Replaced && !m.GiveBack && !m.Rule.Descriptor.Unlimited {
			s.decided(calls, v, i)
		}
	}
	if !found && s.known != nil && !s.known(calls.Domain) {
		s.unknown(calls)
	}
}

// decided counts the i-th descriptor of a call, which found a rule.
func (s *Stats) decided(calls *rules.Descriptors, v *server.Verdict, i int) {
	m := &v.Descriptors[i]
	q := question{cost: units(calls.List[i].Cost), ratio: s.near, shadow: m.Rule.Mode == rules.Shadow}
	if m.Limit != nil && m.Limit.Amount == 0 {
		q.nothing = true
	}
	for j := i + 1; j < len(v.Descriptors) && j < len(calls.List); j++ {
		if m.Ask >= 0 && v.Descriptors[j].Ask == m.Ask && !v.Descriptors[j].GiveBack {
			q.later += units(calls.List[j].Cost)
		}
	}
	var d *stint.Decision
	if m.Ask < 0 || m.Ask >= len(v.Each) {
		d = new(stint.Decision) // the rule was not asked
	} else if d = &v.Each[m.Ask]; v.Left != nil {
		before := *d
		before.Remaining = v.Left[m.Ask]
		d = &before
	}
	h := q.split(d)
	s.local.note(&h)
	own := m.Rule.Descriptor.Stat
	if m.Stat == own {
		s.rules.add(own, false, &h)
	} else if !s.rules.add(m.Stat, true, &h) {
		s.service.n[statsFolded].Add(1)
		s.rules.add(own, false, &h)
	}
}

// unknown counts a call with an unknown domain.
func (s *Stats) unknown(calls *rules.Descriptors) {
	h := hits{uint64(len(calls.List))}
	if !s.domains.add(calls.Domain, true, &h) {
		s.service.n[statsFolded].Add(1)
		s.domains.add(otherDomains, false, &h)
	}
}

// units bounds a cost, so that no counter overflows.
func units(cost int64) uint64 { return uint64(min(max(0, cost), math.MaxUint32)) }
