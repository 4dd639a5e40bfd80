package algo

// Fixed window: windows of one period, aligned to 1970, each with a count.

func (p *Plan) lookFixed(s *State, now int64) View {
	v := View{Now: now}
	if s.Used > 0 && now/p.Period == s.Last/p.Period {
		v.Used = s.Used
	}
	return v
}

// windowEnd is the wait until the window of v ends: both its retry and its reset.
func (p *Plan) windowEnd(v *View) int64 { return p.Period - v.Now%p.Period }
