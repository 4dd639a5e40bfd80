package live

import (
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

const (
	// Step is the length of one step of the series.
	Step = 5 * time.Second
	// Steps is how many steps are kept: 15 minutes.
	Steps = 180
)

// plotted are the counts of a rule that have a series, by name.
var plotted = [...]struct {
	name string
	of   int
}{{"allowed", Allowed}, {"limited", Limited}, {"warned", Warned}, {"banned", Banned}, {"shadow", Shadow}, {"beside", Beside}}

// series has the counts of the last minutes, by steps. Step n begins n*Step after 1970, and has the place n %
// Steps.
type series struct {
	first, last int64 // steps; last is 0 if there is none
	outcomes    [Steps][len(Outcomes)]float32
	times       [Steps][len(Bounds) + 1]float32 // DecideTimes
	rules       map[string]*ruleSeries
}

type ruleSeries struct {
	last   int64 // step that has counts
	counts [Steps][len(plotted)]float32
}

func stepOf(t time.Time) int64 { return t.UnixNano() / int64(Step) }

// add spreads counts over the steps of the period that ended at at and was over long.
func (s *series) add(at time.Time, over time.Duration, more *Counts) {
	from := at.Add(-over)
	if s.last == 0 {
		s.first, s.last = stepOf(from), stepOf(from)
	}
	s.advance(stepOf(at))
	for n := max(stepOf(from), s.last-Steps+1, s.first); n <= s.last; n++ {
		share := float32(1)
		if over > 0 {
			begin := time.Unix(0, n*int64(Step))
			inside := earlier(at, begin.Add(Step)).Sub(later(from, begin))
			share = float32(inside) / float32(over)
		}
		if share > 0 {
			s.addTo(n, share, more)
		}
	}
}

func (s *series) addTo(n int64, share float32, more *Counts) {
	place := n % Steps
	for i, count := range more.Outcomes {
		s.outcomes[place][i] += share * float32(count)
	}
	for i, count := range more.DecideTimes {
		s.times[place][i] += share * float32(count)
	}
	for name, counts := range more.Rules {
		r := s.rule(name)
		r.advance(n)
		for i, p := range plotted {
			r.counts[place][i] += share * float32(counts[p.of])
		}
	}
}

// advance clears the steps after the last one, up to n.
func (s *series) advance(n int64) {
	for i := max(s.last+1, n-Steps+1); i <= n; i++ {
		s.outcomes[i%Steps], s.times[i%Steps] = [len(Outcomes)]float32{}, [len(Bounds) + 1]float32{}
	}
	s.last = max(s.last, n)
}

func (r *ruleSeries) advance(n int64) {
	for i := max(r.last+1, n-Steps+1); i <= n; i++ {
		r.counts[i%Steps] = [len(plotted)]float32{}
	}
	r.last = max(r.last, n)
}

// rule returns the series of a rule, and makes room for it if it has none.
func (s *series) rule(name string) *ruleSeries {
	if r := s.rules[name]; r != nil {
		return r
	}
	if len(s.rules) >= config.MaxSeries {
		quiet := ""
		for name, r := range s.rules {
			if quiet == "" || r.last < s.rules[quiet].last {
				quiet = name
			}
		}
		delete(s.rules, quiet)
	}
	if s.rules == nil {
		s.rules = map[string]*ruleSeries{}
	}
	r := new(ruleSeries)
	s.rules[name] = r
	return r
}

// show returns the steps that have ended. A rule without a series has only zeros.
func (s *series) show(rule string) *adminapi.Series {
	all := &adminapi.Series{Rule: rule, Step: int64(Step / time.Second), Outcomes: map[string][]float64{}, P50: []int64{}, P99: []int64{}}
	all.Until = time.Unix(0, s.last*int64(Step)).UTC()
	begin, end := max(s.first, s.last-Steps+1), s.last // the last is not over
	if rule != "" {
		r := s.rules[rule]
		for i, p := range plotted {
			all.Outcomes[p.name] = rates(begin, end, func(n int64) float32 {
				if r == nil || n > r.last || n <= r.last-Steps {
					return 0
				}
				return r.counts[n%Steps][i]
			})
		}
		return all
	}
	for i, name := range Outcomes {
		all.Outcomes[name] = rates(begin, end, func(n int64) float32 { return s.outcomes[n%Steps][i] })
	}
	for n := begin; n < end; n++ {
		var h Histogram
		for i, count := range s.times[n%Steps] {
			h[i] = int64(count*1000 + 0.5) // shares of requests
		}
		q := h.quantiles()
		all.P50, all.P99 = append(all.P50, q.P50), append(all.P99, q.P99)
	}
	return all
}

func rates(begin, end int64, of func(n int64) float32) []float64 {
	all := make([]float64, 0, max(end-begin, 0))
	for n := begin; n < end; n++ {
		all = append(all, round(float64(of(n))/Step.Seconds()))
	}
	return all
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// begin makes the step of now the current one.
func (s *series) begin(now time.Time) {
	if s.last == 0 {
		s.first, s.last = stepOf(now), stepOf(now)
	}
	s.advance(stepOf(now))
}
