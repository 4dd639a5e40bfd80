package server

import (
	"os"

	"github.com/stintdev/stint/server/internal/live"
)

// newLive returns the live numbers of this server.
func (s *Server) newLive(c *Config) *live.Live {
	o := live.Options{
		ID: s.id, Host: hostname(), Program: c.Program, Count: s.watch.Metrics.Counts(s.set.Load), State: s.liveState,
		Failed: func(err error) {
			s.watch.Sampled.Failure("the fleet's live numbers cannot be exchanged; this instance shows its own", err)
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
	state := live.State{Decides: "store", Instances: 1, Version: s.Rules().Version, Controls: version, ManualBans: manual, Bans: s.watch.Bans.Running(), Firing: s.alerts.Firing(), Down: s.store.down(s.fleet), Holds: s.set.Load().HoldsNow()}
	if s.fleet.IsLayered() {
		state.Breaker, state.Instances = s.fleet.State().String(), s.fleet.Live()
		if s.StoreError() != nil {
			state.Decides = "on_store_error"
		}
	}
	return state
}

// hostname is this machine's name for operators.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// Instances returns how many instances share the store, as last counted; at least 1. It never waits.
func (s *Server) Instances() int {
	if !s.fleet.IsLayered() {
		return 1
	}
	return max(1, int(s.fleet.Live()))
}
