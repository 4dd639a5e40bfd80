package algo

// Sliding window: the period is cut into Buckets sub-windows of Width ticks. At
// an instant in sub-window i, the last Buckets of them count in full and the one
// before counts by the share that the period still covers, rounded up.

// count is what sub-window j took, where the last charge was in sub-window last.
func (s *State) count(last, j int64) int64 {
	if k := last - j; k >= 0 && k < int64(len(s.Counts)) {
		return s.Counts[k]
	}
	return 0
}

func (p *Plan) subWindow(us int64) int64 { return us / p.Tick / p.Width }

func (p *Plan) lookWindow(s *State, now int64) View {
	v := View{Now: now}
	if len(s.Counts) == 0 {
		return v
	}
	ticks := now / p.Tick
	i, off := ticks/p.Width, ticks%p.Width
	last := p.subWindow(s.Last)
	for j := i; j > i-p.Buckets; j-- {
		v.Used += s.count(last, j)
	}
	if v.old = s.count(last, i-p.Buckets); v.old > 0 {
		v.Used += mulDivUp(v.old, p.Width-off, p.Width)
	}
	return v
}

func (p *Plan) chargeWindow(s *State, v *View, n int64) {
	shift := p.subWindow(v.Now) - p.subWindow(s.Last)
	if len(s.Counts) == 0 || shift > p.Buckets || shift < 0 {
		s.Counts = append(s.Counts[:0], 0)
	} else if shift > 0 {
		kept := len(s.Counts)
		for len(s.Counts) < min(kept+int(shift), int(p.Buckets)+1) {
			s.Counts = append(s.Counts, 0)
		}
		copy(s.Counts[shift:], s.Counts[:kept])
		clear(s.Counts[:shift])
	}
	s.Counts[0] += n
	s.Last = v.Now
	v.Used += n
}

// retryWindow looks at this sub-window and those after it for the first offset
// at which n units fit. The share that still counts falls in steps, so the
// offset is the solution of an inequality, not a search.
func (p *Plan) retryWindow(s *State, v *View, n int64) int64 {
	i, last := p.subWindow(v.Now), p.subWindow(s.Last)
	var recent int64
	for j := i; j > i-p.Buckets; j-- {
		recent += s.count(last, j)
	}
	for ; ; i++ {
		old := s.count(last, i-p.Buckets)
		if room := p.Amount - recent - n; room >= 0 {
			var off int64
			if old > 0 {
				off = max(0, p.Width-room*p.Width/old)
			}
			if off < p.Width {
				return (i*p.Width+off)*p.Tick - v.Now
			}
		}
		recent -= s.count(last, i+1-p.Buckets)
	}
}

func (p *Plan) resetWindow(s *State, v *View) int64 {
	if v.Used == 0 {
		return 0
	}
	j := p.subWindow(s.Last)
	for k := 0; s.Counts[k] == 0; k++ { // a give-back empties the newest first
		j--
	}
	return (j+p.Buckets+1)*p.Width*p.Tick - v.Now
}

// giveBackWindow takes n units from the sub-windows that count, newest first, and
// tells whether they are all empty then.
func (p *Plan) giveBackWindow(s *State, v *View, n int64) (emptied bool) {
	oldest, last := p.subWindow(v.Now)-p.Buckets, p.subWindow(s.Last)
	emptied = true
	for k := range s.Counts {
		if last-int64(k) < oldest {
			break
		}
		take := min(n, s.Counts[k])
		s.Counts[k] -= take
		n -= take
		emptied = emptied && s.Counts[k] == 0
	}
	return emptied
}
