package server

import "time"

// SetClock gives s another clock of the machine. It is to be called before s serves.
func (s *Server) SetClock(wall func() time.Time) { s.clock.wall = wall }
