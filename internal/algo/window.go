package algo

// Sliding window: the period has Buckets sub-windows of Width ticks. In sub-window i, the last
// Buckets count in full, and the one before in proportion to its part within the period, rounded
// up.

// count is the units of sub-window j, if the last charge was in sub-window last.
func (s *State) count(last, j int64) int64 {
	if k := last - j; k >= 0 && k < int64(len(s.Counts)) {
		return s.Counts[k]
	}
	return 0
}

func (p *Plan) subWindow(us int64) int64 { return p.ticks(us) / p.Width }

func (p *Plan) ticks(us int64) int64 {
	if p.Tick == 1 { // a division is a tenth of a decision
		return us
	}
	return us / p.Tick
}

// recent returns the units that count in full, later sub-windows after the last charge's, and old,
// those that count in part. Used is the sum of Counts, so it subtracts units that have left, or
// adds up the rest if that is shorter.
func (p *Plan) recent(s *State, later int64) (recent, old int64) {
	full := int(p.Buckets - later)
	if full < 0 || len(s.Counts) == 0 {
		return 0, 0
	}
	if 2*full < len(s.Counts) {
		for _, c := range s.Counts[:full] {
			recent += c
		}
	} else {
		recent = s.Used
		for _, c := range s.Counts[full:] {
			recent -= c
		}
	}
	return recent, s.Counts[full]
}

func (p *Plan) lookWindow(s *State, now int64) View {
	v := View{Now: now}
	ticks := p.ticks(now)
	v.sub = ticks / p.Width
	if len(s.Counts) == 0 {
		return v
	}
	v.later = v.sub - p.subWindow(s.Last)
	v.Used, v.old = p.recent(s, v.later)
	if v.old > 0 {
		v.Used += mulDivUp(v.old, p.Width-(ticks-v.sub*p.Width), p.Width)
	}
	return v
}

// chargeWindow moves the counts on to the sub-window of v. They stay in their array.
func (p *Plan) chargeWindow(s *State, v *View, n int64) {
	if len(s.Counts) == 0 {
		s.Counts = make([]int64, p.Buckets+1)
		s.Used = 0
	} else if v.later > p.Buckets {
		clear(s.Counts)
		s.Used = 0
	} else if v.later > 0 {
		for _, c := range s.Counts[p.Buckets+1-v.later:] {
			s.Used -= c
		}
		copy(s.Counts[v.later:], s.Counts)
		clear(s.Counts[:v.later])
	}
	v.later = 0
	s.Counts[0] += n
	s.Used += n
	s.Last = v.Now
	v.Used += n
}

// retryWindow finds the first offset at which n units fit, in this sub-window or a later one. The
// share falls in steps, so it solves an inequality.
func (p *Plan) retryWindow(s *State, v *View, n int64) int64 {
	i, last := v.sub, v.sub-v.later
	recent, _ := p.recent(s, v.later)
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
	j := v.sub - v.later                // of the last charge
	for k := 0; s.Counts[k] == 0; k++ { // a refund empties the newest first
		j--
	}
	return (j+p.Buckets+1)*p.Width*p.Tick - v.Now
}

// refundWindow takes n units, newest first, and reports whether all are empty then.
func (p *Plan) refundWindow(s *State, v *View, n int64) (emptied bool) {
	oldest, last := v.sub-p.Buckets, v.sub-v.later
	emptied = true
	for k := range s.Counts {
		if last-int64(k) < oldest {
			break
		}
		take := min(n, s.Counts[k])
		s.Counts[k] -= take
		s.Used -= take
		n -= take
		emptied = emptied && s.Counts[k] == 0
	}
	return emptied
}

// dropOldestCounts takes n units, fewer than are in use, oldest first.
func (p *Plan) dropOldestCounts(s *State, v *View, n int64) {
	k := int(p.Buckets - v.later)
	if recent, old := p.recent(s, v.later); old > 0 {
		share := v.Used - recent
		if share > n {
			return
		}
		n -= share
		s.Used -= old
		s.Counts[k] = 0
	}
	for k--; n > 0; k-- {
		take := min(n, s.Counts[k])
		s.Counts[k] -= take
		s.Used -= take
		n -= take
	}
}
