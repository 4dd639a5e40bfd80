package live

import (
	"encoding/json"
	"errors"
	"maps"

	"github.com/stintdev/stint/server/internal/kind"
)

// Outcomes are the words of the kinds of requests that are counted.
var Outcomes = func() (words [kind.Counted]string) {
	for i := range words {
		words[i] = kind.Kind(i + 1).String()
	}
	return words
}()

// Indexes of Counts.Outcomes; see Outcomes.
const (
	Allowed   = int(kind.Allowed) - 1
	Limited   = int(kind.Limited) - 1
	Warned    = int(kind.Warned) - 1
	Banned    = int(kind.Banned) - 1
	Unmatched = int(kind.Unmatched) - 1
)

// Indexes of RuleCounts, after Allowed, Limited, Warned and Banned. New ones come last: instances of
// other versions read them by place.
const (
	Shadow       = Banned + 1 + iota // requests that it would have refused
	Skipped                          // requests that it did not decide in shadow mode
	Fallback                         // decisions by its on_store_error
	Violations                       // responses that counted as violations
	HoldsEnded                       // requests that held units by it and have ended
	HoldsLost                        // those of them whose holds had run out
	CostsUnknown                     // those of them whose cost could not be read
	Beside                           // requests that it applied to, and another rule decided
	ruleKinds
)

// RuleCounts are the counters of a rule.
type RuleCounts [ruleKinds]int64

// Refused is how many requests the rule refused, or would have refused in shadow mode.
func (c *RuleCounts) Refused() int64 { return c[Limited] + c[Warned] + c[Banned] + c[Shadow] }

// Decided is how many requests the rule decided. In shadow mode it decides none.
func (c *RuleCounts) Decided() int64 { return c[Allowed] + c[Limited] + c[Warned] + c[Banned] }

// Applied is to how many requests the rule applied. In shadow mode only those that it would have refused are
// known.
func (c *RuleCounts) Applied() int64 { return c.Decided() + c[Beside] }

// Indexes of Counts.Store.
const (
	Timeouts = iota // calls of the store without an answer in time
	Errors          // calls that failed otherwise
	Opened          // times that the breaker opened
	BadRequests
	storeKinds
)

// Counts are counters of an instance or of a fleet. They only grow.
type Counts struct {
	// Outcomes are decided requests. Each is counted here, even if Rules has it.
	Outcomes [len(Outcomes)]int64  `json:"outcomes"`
	Rules    map[string]RuleCounts `json:"rules"`
	// All is the sum of all rules, including those no longer in force.
	All   RuleCounts        `json:"all"`
	Store [storeKinds]int64 `json:"store"`
	// DecideTimes are the times to decide a request, StoreTimes the times of calls of the store.
	DecideTimes Histogram `json:"decide_times"`
	StoreTimes  Histogram `json:"store_times"`
}

// add adds the counts of o.
func (c *Counts) add(o *Counts) {
	for i, n := range o.Outcomes {
		c.Outcomes[i] += n
	}
	for i, n := range o.Store {
		c.Store[i] += n
	}
	for i, n := range o.All {
		c.All[i] += n
	}
	for i := range o.DecideTimes {
		c.DecideTimes[i] += o.DecideTimes[i]
		c.StoreTimes[i] += o.StoreTimes[i]
	}
	if c.Rules == nil && len(o.Rules) > 0 {
		c.Rules = map[string]RuleCounts{}
	}
	for name, more := range o.Rules {
		sum := c.Rules[name]
		for i, n := range more {
			sum[i] += n
		}
		c.Rules[name] = sum
	}
}

// clone returns a copy.
func (c *Counts) clone() *Counts {
	copied := *c
	copied.Rules = maps.Clone(c.Rules)
	return &copied
}

// increase returns by how much the counters grew from before to now. again: a counter that is lower now
// started again at 0; otherwise it did not grow. Rules that did not grow are left out.
func increase(now, before *Counts, again bool) *Counts {
	var grown Counts
	grew(grown.Outcomes[:], now.Outcomes[:], before.Outcomes[:], again)
	grew(grown.Store[:], now.Store[:], before.Store[:], again)
	grew(grown.All[:], now.All[:], before.All[:], again)
	grew(grown.DecideTimes[:], now.DecideTimes[:], before.DecideTimes[:], again)
	grew(grown.StoreTimes[:], now.StoreTimes[:], before.StoreTimes[:], again)
	for name, counts := range now.Rules {
		was := before.Rules[name]
		if counts == was {
			continue
		}
		var more RuleCounts
		grew(more[:], counts[:], was[:], again)
		if grown.Rules == nil {
			grown.Rules = map[string]RuleCounts{}
		}
		grown.Rules[name] = more
	}
	return &grown
}

func grew(by, now, before []int64, again bool) {
	for i := range by {
		switch {
		case now[i] >= before[i]:
			by[i] = now[i] - before[i]
		case again:
			by[i] = now[i]
		}
	}
}

// byRules adds up the rules, and adds to the outcomes the requests that they decided.
func (c *Counts) byRules() {
	for _, r := range c.Rules {
		for i, n := range r {
			c.All[i] += n
		}
	}
	for i := Allowed; i <= Banned; i++ {
		c.Outcomes[i] += c.All[i]
	}
}

// keep drops rules of which has is false.
func (c *Counts) keep(has func(rule string) bool) {
	maps.DeleteFunc(c.Rules, func(name string, _ RuleCounts) bool { return !has(name) })
}

// in is for keep.
func in(rules map[string]RuleCounts) func(rule string) bool {
	return func(rule string) bool { _, has := rules[rule]; return has }
}

// gauges are present numbers, by rule. They are not negative.
type gauges map[string]int64

// plus returns the sums of g and h. It may change g.
func (g gauges) plus(h gauges) gauges {
	if g == nil && len(h) > 0 {
		g = gauges{}
	}
	for rule, n := range h {
		g[rule] = min(g[rule]+n, maxCount)
	}
	return g
}

// UnmarshalJSON refuses numbers that are too large, or negative.
func (g *gauges) UnmarshalJSON(data []byte) error {
	var all map[string]int64
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, n := range all {
		if n < 0 || n > maxCount {
			return errCounts
		}
	}
	*g = all
	return nil
}

// UnmarshalJSON refuses numbers that no counter has. An older version has fewer counters: the others
// are 0. A newer one has more, which are left out.
func (c *RuleCounts) UnmarshalJSON(data []byte) error {
	_, err := unmarshalCounts(data, c[:])
	return err
}

// UnmarshalJSON refuses numbers that no counter has, and another number of buckets: they would have
// other bounds.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	n, err := unmarshalCounts(data, h[:])
	if err == nil && n != len(h) {
		err = errCounts
	}
	return err
}

var errCounts = errors.New("these are not counts")

// maxCount bounds counts from other instances, so that their sums do not overflow.
const maxCount = 1 << 50

// unmarshalCounts returns how many counts data has.
func unmarshalCounts(data []byte, to []int64) (int, error) {
	var all []int64
	if err := json.Unmarshal(data, &all); err != nil {
		return 0, err
	}
	if !valid(all) {
		return 0, errCounts
	}
	clear(to[copy(to, all):])
	return len(all), nil
}

func valid(counts []int64) bool {
	for _, n := range counts {
		if n < 0 || n > maxCount {
			return false
		}
	}
	return true
}
