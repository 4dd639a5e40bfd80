package watch

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stintdev/stint/server/internal/live"
)

// Counts returns a function that reads the counters of m: of rules, those that have counted something. It is not
// for concurrent use.
func (m *Metrics) Counts() func() *live.Counts {
	var read dto.Metric
	counter := func(c prometheus.Counter) int64 {
		if c.Write(&read) != nil {
			return 0
		}
		return int64(read.Counter.GetValue())
	}
	reader := ruleReader{rules: map[string]*readRule{}}
	histogram := func(from prometheus.Histogram, to *live.Histogram) {
		if from.Write(&read) != nil {
			return
		}
		last := int64(0)
		for i, b := range read.Histogram.Bucket {
			to[i] = int64(b.GetCumulativeCount()) - last
			last += to[i]
		}
		to[len(to)-1] = int64(read.Histogram.GetSampleCount()) - last
	}
	return func() *live.Counts {
		c := &live.Counts{Rules: map[string]live.RuleCounts{}}
		for i := range c.Outcomes {
			c.Outcomes[i] = m.rules.noRule[i+1].Load()
		}
		c.Store = [...]int64{
			live.Timeouts: counter(m.storeTimeouts), live.Errors: counter(m.storeErrors),
			live.Opened: counter(m.breakerOpened), live.BadRequests: counter(m.BadRequests),
		}
		histogram(m.decideSeconds, &c.DecideTimes)
		histogram(m.storeSeconds, &c.StoreTimes)
		reader.read(m.rules.list(), c.Rules)
		return c
	}
}

// HasRule reports whether a rule in force has counts: whether it is not off, or was not.
func (m *Metrics) HasRule(name string) bool { return m.rules.has(name) }

// ruleReader reads the counts of rules. A rule's counts only grow while its name is in force, even if its mode
// changes, or if it was removed and came back between two reads. A removed rule is read once more, for its
// counts since the last read. Rules that have counted nothing take no memory, and little time: of 10,000 rules,
// most are idle. Not for concurrent use.
type ruleReader struct {
	rules map[string]*readRule
	last  []*ruleSeries // of the last read
	reads int64
}

// readRule has the counts read of a rule.
type readRule struct {
	counts  live.RuleCounts
	from    *ruleSeries
	last    live.RuleCounts // read from it
	inForce int64           // the last read at which it was in force
}

// read sets the counts of the rules that have counted something: of those that have series now, and of those
// removed since the last read.
func (r *ruleReader) read(now []*ruleSeries, to map[string]live.RuleCounts) {
	r.reads++
	if len(now) != len(r.last) || len(now) > 0 && &now[0] != &r.last[0] {
		for _, s := range r.last {
			r.add(s, r.reads-1)
		}
	}
	for _, s := range now {
		r.add(s, r.reads)
	}
	r.last = now
	for name, known := range r.rules {
		if known.inForce < r.reads-1 {
			delete(r.rules, name)
			continue
		}
		to[name] = known.counts
	}
}

// add adds by how much the counts of a rule grew, which was in force at that read.
func (r *ruleReader) add(s *ruleSeries, inForce int64) {
	known := r.rules[s.name]
	read := s.read()
	if known == nil {
		if read == (live.RuleCounts{}) {
			return
		}
		known = &readRule{}
		r.rules[s.name] = known
	}
	if known.from != s {
		known.from, known.last = s, live.RuleCounts{}
	}
	for i, n := range read {
		known.counts[i] += n - known.last[i]
	}
	known.last, known.inForce = read, inForce
}

// read returns the counts.
func (s *ruleSeries) read() (c live.RuleCounts) {
	n := func(i int) int64 { return s.counts[i].Load() }
	for i := live.Allowed; i <= live.Banned; i++ {
		c[i] = n(nDecided + i)
	}
	c[live.Shadow], c[live.Skipped], c[live.Beside], c[live.Violations] = n(nShadow), n(nSkipped), n(nBeside), n(nResponses)
	for i := nFallback; i < nResponses; i++ {
		c[live.Fallback] += n(i)
	}
	if h := s.holds.Load(); h != nil {
		c[live.HoldsLost], c[live.CostsUnknown] = h[holdsLost].Load(), h[costsUnknown].Load()
		c[live.HoldsEnded] = h[holdsSettled].Load() + h[holdsGivenBack].Load() + c[live.HoldsLost]
	}
	return c
}
