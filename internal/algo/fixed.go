package algo

// Fixed window: windows of one period, aligned to 1970, or those of a calendar, each with a count.

// windowEnd is the wait until the window of v ends: both its retry and its reset.
func (p *Plan) windowEnd(v *View) int64 {
	if p.Calendar != nil {
		return p.Calendar.Window(v.Now).End - v.Now
	}
	return p.Period - v.Now%p.Period
}

// WindowStart is where the window of an instant begins, of a fixed window.
func (p *Plan) WindowStart(now int64) int64 {
	if p.Calendar != nil {
		return p.Calendar.Window(now).Start
	}
	return now - now%p.Period
}
