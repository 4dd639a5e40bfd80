package server

import (
	"os"

	"github.com/stintdev/stint/server/internal/live"
)

// newLive returns the live numbers of this server.
func newLive(s *Server, c *Config) *live.Live {
	o := live.Options{
		ID: s.id, Host: hostname(), Program: c.Program, Count: s.watch.Metrics.Counts(), InForce: s.watch.Metrics.HasRule, State: s.liveState,
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
	s.store.NoticeHolds()
	version, manual := s.control.Changes()
	state := live.State{Decides: "store", Instances: 1, Version: s.Rules().Version, Controls: version, ManualBans: manual, Bans: s.watch.Bans.Running(), Firing: s.alerts.Firing(), Down: s.store.Down(), Holds: s.watch.Current().HoldsNow()}
	if s.store.Fleet.IsLayered() {
		state.Breaker, state.Instances = s.store.Fleet.State().String(), s.store.Fleet.Live()
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
