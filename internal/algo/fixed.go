package algo

// Fixed window: windows of one period, aligned to 1970, or those of a calendar, each with a count.

// windowEnd is the wait until the window of v ends: both its retry and its reset.
func (p *Plan) windowEnd(v *View) int64 {
	if p.Calendar != nil {
		return p.Calendar.Window(v.Now).End - v.Now
	}
	return p.Period - v.Now%p.Period
}

// Window returns the window of an instant, for a fixed window.
func (p *Plan) Window(now int64) Window {
	if p.Calendar != nil {
		return p.Calendar.Window(now)
	}
	start := now - now%p.Period
	return Window{start, start + p.Period}
}
