package alerts

import (
	"slices"
	"time"

	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/rules"
)

const (
	// mostPoints is how many points of a measure are kept, for any window.
	mostPoints = 60
	// enough is how much of a longer window must be measured for a value.
	enough = 30 * time.Second
)

// meter keeps the data for measures: the growth of counters in the last minutes. Not safe for concurrent use.
type meter struct {
	series map[windowed]*series
}

// windowed is a measure over a window.
type windowed struct {
	rules.Measure
	window time.Duration
}

// series are the counters of a measure: their growth since tracking began, or the last value of a gauge.
type series struct {
	last, grown []float64
	points      []point // the oldest first
	partial     bool    // the last sample was not of the whole fleet
}

type point struct {
	at    time.Time
	grown []float64
}

// track makes m keep the data for these alerts, and drop other data.
func (m *meter) track(all []rules.Alert) {
	before := m.series
	m.series = map[windowed]*series{}
	keep := func(w windowed) {
		if m.series[w] = before[w]; before[w] == nil {
			m.series[w] = &series{}
		}
	}
	for i := range all {
		if all[i].Condition == nil {
			continue
		}
		for _, measure := range all[i].Condition.Measures() {
			keep(windowed{measure, all[i].Window})
			if measure.Name == "store_error_rate" {
				keep(windowed{storeDown, all[i].Window})
			}
		}
	}
}

// storeDown is also part of the share of failed calls.
var storeDown = rules.Measure{Name: "store_down"}

// add adds the counters of the fleet at an instant.
func (m *meter) add(t *live.Totals, at time.Time) {
	for w, s := range m.series {
		s.add(read(w.Measure, t), isGauge(w.Measure))
		s.partial = !t.Whole
		s.keep(at, w.window, isPeak(w.Measure))
	}
}

// add adds the values of counters. A counter that has decreased was removed and started again.
func (s *series) add(now []float64, gauge bool) {
	if gauge {
		s.grown = now
		return
	}
	if s.last == nil {
		s.grown = make([]float64, len(now))
	}
	for i, v := range now {
		switch {
		case s.last == nil:
		case v < s.last[i]:
			s.grown[i] += v
		default:
			s.grown[i] += v - s.last[i]
		}
	}
	s.last = now
}

// keep adds a point, and drops points before the window. If there are too many points, the last but one is
// dropped.
func (s *series) keep(at time.Time, window time.Duration, peak bool) {
	now := slices.Clone(s.grown)
	if n := len(s.points); n >= 2 && at.Sub(s.points[n-2].at) < window/mostPoints {
		if peak {
			now[0] = max(now[0], s.points[n-1].grown[0])
		}
		s.points = s.points[:n-1]
	}
	s.points = append(s.points, point{at, now})
	for len(s.points) > 2 && !s.points[1].at.After(at.Add(-window)) {
		s.points = s.points[1:]
	}
}

// value is a measure over the window that ends with the last sample; not ok: it is not known.
func (m *meter) value(of rules.Measure, window time.Duration) (v float64, ok bool) {
	s := m.series[windowed{of, window}]
	if s == nil || len(s.points) == 0 || s.partial && isSum(of) {
		return 0, false
	}
	first, last := s.points[0], s.points[len(s.points)-1]
	switch {
	case isPeak(of):
		for _, p := range s.points[1:] { // the first may be from before the window
			v = max(v, p.grown[0])
		}
		return max(v, last.grown[0]), true
	case isGauge(of):
		return last.grown[0], true
	}
	over := last.at.Sub(first.at)
	if over < min(window/2, enough) {
		return 0, false
	}
	grown := make([]float64, len(last.grown))
	for i := range grown {
		grown[i] = last.grown[i] - first.grown[i]
	}
	switch of.Name {
	case "latency", "store_latency":
		var h live.Histogram
		for i := range h {
			h[i] = int64(grown[i])
		}
		return h.Quantile(of.Quantile), h.Total() > 0
	case "rate", "store_calls":
		return grown[0] / over.Seconds(), true
	}
	if grown[1] == 0 { // a share of no requests; or nobody calls a store that is down
		down, _ := m.value(storeDown, window)
		if of.Name == "store_error_rate" && down > 0 {
			return 1, true
		}
		return 0, true
	}
	return min(1, grown[0]/grown[1]), true
}

// isGauge reports whether the last value of m counts, and not its growth.
func isGauge(m rules.Measure) bool {
	return m.Name == "bans" || m.Name == "holds" || m.Name == "instances" || isPeak(m)
}

// isPeak reports whether the largest value of the window counts.
func isPeak(m rules.Measure) bool { return m.Name == "store_down" }

// isSum reports whether m adds up instances, so that some of them do not stand for all. Shares and latencies
// do not.
func isSum(m rules.Measure) bool {
	return isGauge(m) && !isPeak(m) || m.Name == "rate" || m.Name == "store_calls"
}

// read returns the numbers from which m is computed.
func read(m rules.Measure, t *live.Totals) []float64 {
	switch m.Name {
	case "rate":
		return []float64{decided(t, m.Rule, m.Outcome)}
	case "block_rate":
		return []float64{decided(t, m.Rule, "refused"), decided(t, m.Rule, "")}
	case "undecided_rate":
		return []float64{decided(t, "", kind.Undecided.String()), decided(t, "", "")}
	case "fallback_rate":
		return []float64{ofRules(t, m.Rule, live.Fallback), decided(t, m.Rule, "")}
	case "hold_lost_rate":
		return []float64{ofRules(t, m.Rule, live.HoldsLost), ofRules(t, m.Rule, live.HoldsEnded)}
	case "cost_unknown_rate":
		return []float64{ofRules(t, m.Rule, live.CostsUnknown), ofRules(t, m.Rule, live.HoldsEnded)}
	case "holds":
		return []float64{holds(t, m.Rule)}
	case "store_down":
		return []float64{t.Down.Seconds()}
	case "store_calls":
		return []float64{float64(t.StoreTimes.Total())}
	case "store_error_rate":
		return []float64{float64(t.Store[live.Timeouts] + t.Store[live.Errors]), float64(t.StoreTimes.Total())}
	case "latency":
		return floats(t.DecideTimes[:])
	case "store_latency":
		return floats(t.StoreTimes[:])
	case "bans":
		return []float64{float64(t.Bans)}
	}
	return []float64{float64(t.Instances)}
}

func floats(counts []int64) []float64 {
	all := make([]float64, len(counts))
	for i, n := range counts {
		all[i] = float64(n)
	}
	return all
}

// decided counts the requests with an outcome that a rule decided, or all if rule is empty.
// outcome may also be "", "refused" or "shadow_refused".
func decided(t *live.Totals, rule, outcome string) float64 {
	if outcome == "shadow_refused" {
		return ofRules(t, rule, live.Shadow)
	}
	counts := t.Outcomes[:]
	if rule != "" {
		of := t.Rules[rule]
		counts = of[:live.Banned+1]
	}
	n := int64(0)
	for i, count := range counts {
		k := kind.Kind(i + 1)
		if outcome == "" || outcome == k.String() || outcome == "refused" && k.Refuses() {
			n += count
		}
	}
	return float64(n)
}

// holds are the requests that hold units by a rule now, or by all if rule is empty.
func holds(t *live.Totals, rule string) float64 {
	if rule != "" {
		return float64(t.Holds[rule])
	}
	n := int64(0)
	for _, of := range t.Holds {
		n += of
	}
	return float64(n)
}

// ofRules is a rule's counter, or the sum of all rules if rule is empty.
func ofRules(t *live.Totals, rule string, kind int) float64 {
	if rule != "" {
		return float64(t.Rules[rule][kind])
	}
	return float64(t.All[kind])
}
