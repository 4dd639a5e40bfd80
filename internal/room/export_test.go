package room

// Noted is how many clients are noted.
func (m *Room) Noted() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}
