package watch

import (
	"runtime"
	"sync"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/recent"
	"github.com/stintdev/stint/server/rules"
)

// Served is a set with the counters of its rules. They are swapped together, so that a request
// uses the counters of the rules that decided it.
type Served struct {
	decide.Set
	watch    *Watch
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

// ruleCounter counts for a rule of a set.
type ruleCounter struct {
	series *ruleSeries
	holds  *holdCounters // nil: no limit of the rule is held
	lines  ruleLines     // of the log
}

// decided counts a request that the rule decided.
func (c *ruleCounter) decided(k kind.Kind) { c.series.counts[nDecided+int(k-kind.Allowed)].Add(1) }

// Install puts set in force. The series of its rules start at 0 and not with the first
// request, because Prometheus sees no increase in a series that appears as 1. The series of a
// rule whose name was served before go on.
//
// It is not called concurrently.
func (w *Watch) Install(set *rules.Set) {
	before := w.current.Load()
	now := w.Metrics.serve(set, before)
	now.watch, now.Watcher = w, now
	w.current.Store(now)
	if before != nil {
		w.Metrics.forget(set)
	}
}

// Current is what Install has put in force; nil: nothing is.
func (w *Watch) Current() *Served { return w.current.Load() }

// serve makes the counters of set. before was in force until now; nil: nothing was. Those of its rules that
// have decided something keep their series, which would otherwise seem to start again.
func (m *Metrics) serve(set *rules.Set, before *Served) *Served {
	all, holds := ruleCounters{rules: make(map[*rules.Rule]*ruleCounter, len(set.Rules))}, holdsByName{}
	late := map[string]*rules.Rule{}
	for i, r := range set.Rules {
		if i%64 == 63 {
			runtime.Gosched() // requests need not wait for this
		}
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
	return &Served{decide.Set{Set: set}, nil, all, holds, new(noticed), ReadsOf(set), usageAlerts(set)}
}

// counter makes the counter of a rule; nil: it is off.
func (m *Metrics) counter(r *rules.Rule) *ruleCounter {
	if r.Mode == rules.Off {
		return nil
	}
	c := &ruleCounter{series: m.rules.of(r.Name)}
	switch r.Mode {
	case rules.Enforce:
		c.series.make(nDecided, nDecided+1, nDecided+2, nDecided+3, nBeside, nFallback+int(r.OnStoreError))
		if len(r.OnStatus) > 0 {
			c.series.make(nResponses)
		}
	case rules.Shadow:
		c.series.make(nShadow, nSkipped)
	}
	c.lines.rule = r.Name
	if r.Holds() {
		c.holds = &holdCounters{series: c.series.makeHolds()}
	}
	return c
}

// forget removes the series of the rules whose names are not in now. Otherwise the metrics of a
// program that names rules after days or deployments would grow without bound. Requests that a removed rule
// still decides are not counted. A rule that changes its mode keeps its counts, so that a switch resets
// nothing.
func (m *Metrics) forget(now *rules.Set) {
	names := make(map[string]bool, len(now.Rules))
	for _, r := range now.Rules {
		names[r.Name] = true
	}
	m.rules.keep(names)
}

// RefusedInShadow is for decide.Watcher.
func (c *Served) RefusedInShadow(r *rules.Rule) { c.counters.of(r).series.counts[nShadow].Add(1) }

// Skipped is for decide.Watcher.
func (c *Served) Skipped(all ...*rules.Rule) {
	for _, r := range all {
		c.counters.of(r).series.counts[nSkipped].Add(1)
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
			if counter := c.of(r); r.Mode == rules.Enforce {
				counter.series.counts[nFallback+int(r.OnStoreError)].Add(1)
			}
		}
	}
}
