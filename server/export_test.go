package server

import (
	"context"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/rules"
)

// SetHeaderTimeout changes how long a client may take to send headers, for tests that
// cannot wait. It must be called before Run.
func (s *Server) SetHeaderTimeout(d time.Duration) { s.headerTimeout = d }

// Footprint is the sum of memory that s reports.
func (s *Server) Footprint() config.Footprint { return s.footprint }

// SetClock gives s another clock of the machine. It is to be called before s serves.
func (s *Server) SetClock(wall func() time.Time) { s.control.SetClock(wall) }

// Concluded is the verdict behind what Explain says about in.
func (s *Server) Concluded(ctx context.Context, in *rules.Input) (Verdict, error) {
	_, v, err := s.explainer.Conclude(ctx, in)
	return v, err
}

// Holds is what requests have taken and not refunded yet.
func (s *Server) Holds() map[string]int64 {
	return map[string]int64{
		"gateway": s.door.Admission.Gateway.Taken(), "check": s.door.Admission.Check.Taken(), "bytes": s.door.Admission.Bytes.Taken(),
		"admin": s.admin.bytes.Taken(), "upgraded": s.door.CutOff.Upgraded.Load(), "shadows": s.door.Decider.ShadowCalls(),
	}
}

// FleetTotals are the counters of the fleet, as alerts read them.
func (s *Server) FleetTotals() live.Totals { return s.live.Totals() }

// ReadCounters reads the counters of this instance, as happens once a second.
func (s *Server) ReadCounters() *live.Counts { return s.live.Count() }

// NoticeHolds is called once a second.
func (s *Server) NoticeHolds() { s.store.NoticeHolds() }
