package server

// shownKey returns how a key of a client is shown in logs, pages and traces.
func (s *Server) shownKey(key string) string { return key }
