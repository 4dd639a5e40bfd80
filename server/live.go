package server

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/internal/live"
)

// newLive returns the live numbers of this server.
func (s *Server) newLive(c *Config) *live.Live {
	o := live.Options{
		ID: s.id, Host: hostname(), Program: c.Program, Count: s.metrics.counts(&s.set), State: s.liveState,
		Failed: func(err error) {
			s.sampled.failure("the fleet's live numbers cannot be exchanged; this instance shows its own", err)
		},
	}
	if shared, ok := c.Documents.(Reports); ok {
		o.Reports = shared
	}
	return live.New(o)
}

func (s *Server) liveState() live.State {
	s.noticeHolds()
	version, manual := s.control.Changes()
	state := live.State{Decides: "store", Instances: 1, Version: s.Rules().Version, Controls: version, ManualBans: manual, Bans: s.bans.running(), Firing: s.alerts.Firing(), Holds: s.set.Load().holds.now()}
	if s.fleet.IsLayered() {
		state.Breaker, state.Instances = s.fleet.State().String(), s.fleet.Live()
		if s.StoreError() != nil {
			state.Decides = "on_store_error"
		}
	}
	return state
}

// hostname names this machine to operators.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// counts returns a function that reads the counters of m and of the rules in force. It is not for
// concurrent use.
func (m *metrics) counts(set interface{ Load() *served }) func() *live.Counts {
	var read dto.Metric
	counter := func(c prometheus.Counter) int64 {
		if c == nil || c.Write(&read) != nil {
			return 0
		}
		return int64(read.Counter.GetValue())
	}
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
		c.Outcomes = [...]int64{
			live.Allowed: counter(m.noRule[stint.Allowed]), live.Banned: counter(m.bannedNetwork),
			live.Safe: counter(m.safe), live.Blocked: counter(m.blocked), live.Unmatched: counter(m.unmatched),
			live.Overloaded: counter(m.overloaded), live.Undecided: counter(m.noRule[0]),
		}
		c.Store = [...]int64{
			live.Timeouts: counter(m.storeTimeouts), live.Errors: counter(m.storeErrors),
			live.Opened: counter(m.breakerOpened), live.BadRequests: counter(m.badRequests),
		}
		histogram(m.decideSeconds, &c.DecideTimes)
		histogram(m.storeSeconds, &c.StoreTimes)
		set.Load().counters.all(func(r *rules.Rule, of *ruleCounter) {
			c.Rules[r.Name] = live.RuleCounts{
				live.Allowed: counter(of.decisions[stint.Allowed]), live.Limited: counter(of.decisions[stint.Limited]),
				live.Warned: counter(of.decisions[stint.Warned]), live.Banned: counter(of.decisions[stint.Banned]),
				live.Shadow: counter(of.shadow), live.Skipped: counter(of.skipped),
				live.Fallback: counter(of.fallback), live.Violations: counter(of.responses),
				live.Beside: counter(of.beside),
			}
			if h := of.holds; h != nil {
				all := c.Rules[r.Name]
				all[live.HoldsLost], all[live.CostsUnknown] = counter(h.lost), counter(h.unknown)
				all[live.HoldsEnded] = counter(h.settled) + counter(h.givenBack) + all[live.HoldsLost]
				c.Rules[r.Name] = all
			}
		})
		return c
	}
}

// Instances returns how many instances share the store, as last counted; at least 1. It never waits.
func (s *Server) Instances() int {
	if !s.fleet.IsLayered() {
		return 1
	}
	return max(1, int(s.fleet.Live()))
}
