package algo

// Fixed window: windows of one period, aligned to 1970, each with a count.

// windowEnd is the wait until the window of v ends: both its retry and its reset.
func (p *Plan) windowEnd(v *View) int64 { return p.Period - v.Now%p.Period }
