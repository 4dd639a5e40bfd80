package watch

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/rules"
)

// Counts returns a function that reads the counters of m and of the rules in force, which set returns. It is not for
// concurrent use.
func (m *Metrics) Counts(set func() *Served) func() *live.Counts {
	var read dto.Metric
	counter := func(c prometheus.Counter) int64 {
		if c == nil || c.Write(&read) != nil {
			return 0
		}
		return int64(read.Counter.GetValue())
	}
	rules := ruleReader{value: counter, rules: map[string]*readRule{}}
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
			if of := m.noRule[i+1]; of != nil {
				c.Outcomes[i] = counter(of)
			}
		}
		c.Store = [...]int64{
			live.Timeouts: counter(m.storeTimeouts), live.Errors: counter(m.storeErrors),
			live.Opened: counter(m.breakerOpened), live.BadRequests: counter(m.BadRequests),
		}
		histogram(m.decideSeconds, &c.DecideTimes)
		histogram(m.storeSeconds, &c.StoreTimes)
		rules.read(set(), c.Rules)
		return c
	}
}

// ruleReader reads the counters of rules. A rule's counts only grow while the rule is in force, even if its
// mode or policy changes: the counts of counters that a change removes stay, and go on when another change
// brings the counters back. A removed rule is read once more, for its counts since the last read. Not for
// concurrent use.
type ruleReader struct {
	value func(prometheus.Counter) int64
	rules map[string]*readRule
	reads int64
}

// readRule has the counts read of a rule.
type readRule struct {
	counts  live.RuleCounts
	from    ruleParts
	last    [len(ruleParts{})]int64
	others  map[prometheus.Counter]int64 // former ones in from
	inForce int64                        // the last read at which it was in force
}

// ruleParts are the counters of a rule; nil: it has none in this mode. partOf is the count to which each
// belongs.
type ruleParts [14]prometheus.Counter

var partOf = [len(ruleParts{})]int{
	live.Allowed, live.Limited, live.Warned, live.Banned, live.Shadow, live.Skipped, live.Beside, live.Fallback, live.Violations,
	live.HoldsEnded, live.HoldsEnded, live.HoldsEnded, live.HoldsLost, live.CostsUnknown,
}

func (c *ruleCounter) parts() ruleParts {
	d, h := &c.decisions, c.holds
	if h == nil {
		h = &holdCounters{}
	}
	return ruleParts{
		d[stint.Allowed], d[stint.Limited], d[stint.Warned], d[stint.Banned], c.shadow, c.skipped, c.beside, c.fallback, c.responses,
		h.settled, h.givenBack, h.lost, h.lost, h.unknown,
	}
}

// read sets the counts of the rules of set, and of those removed since the last read.
func (r *ruleReader) read(set *Served, to map[string]live.RuleCounts) {
	r.reads++
	set.counters.all(func(of *rules.Rule, counter *ruleCounter) {
		known := r.rules[of.Name]
		if known == nil {
			known = &readRule{}
			r.rules[of.Name] = known
		}
		known.inForce = r.reads
		known.change(counter.parts(), r.value)
	})
	for _, of := range set.Rules {
		if known := r.rules[of.Name]; known != nil { // the rule may be off, without a counter
			known.inForce = r.reads
		}
	}
	for name, known := range r.rules {
		if known.inForce < r.reads-1 {
			delete(r.rules, name)
			continue
		}
		for i := range known.from {
			known.add(i, r.value)
		}
		to[name] = known.counts
	}
}

// change makes r read the present counters.
func (r *readRule) change(now ruleParts, value func(prometheus.Counter) int64) {
	for i, counter := range now {
		if counter == nil || counter == r.from[i] {
			continue
		}
		if r.from[i] != nil {
			r.add(i, value)
			if r.others == nil {
				r.others = map[prometheus.Counter]int64{}
			}
			r.others[r.from[i]] = r.last[i]
		}
		r.from[i], r.last[i] = counter, r.others[counter]
	}
}

// add adds by how much a counter grew.
func (r *readRule) add(i int, value func(prometheus.Counter) int64) {
	v := value(r.from[i])
	r.counts[partOf[i]] += v - r.last[i]
	r.last[i] = v
}
