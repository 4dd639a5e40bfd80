package server

import "time"

// SetHeaderTimeout changes how long a client may take to send headers, for tests that
// cannot wait. It must be called before Run.
func (s *Server) SetHeaderTimeout(d time.Duration) { s.headerTimeout = d }

// SetClock gives s another clock of the machine. It is to be called before s serves.
func (s *Server) SetClock(wall func() time.Time) { s.clock.wall = wall }
