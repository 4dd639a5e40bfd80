package algo

// What a bucket or a fixed window remembers under one plan is two numbers, Last and
// Used. The functions below are Look and Settle for those, so that a store may keep
// them in less than a State.

// Small tells whether a State under p is no more than Last and Used. Then a verdict
// follows from a View alone, so that the script need not make it, and identical
// requests may go to it as one.
func (p *Plan) Small() bool { return p.Kind <= FixedWindow }

// UsedBits is how many bits hold any Used of a small State that was charged under
// p, up to p's capacity.
func (p *Plan) UsedBits() int { return int(p.bits) }

// SmallState is the State of two numbers that came about under p.
func (p *Plan) SmallState(last, used int64) State {
	if p.Kind == FixedWindow {
		return State{Last: last, Used: used}
	}
	return State{Last: last, Used: used, Amount: p.Amount, Tick: p.Tick}
}

// LookSmall is Look at SmallState(last, used).
func (p *Plan) LookSmall(last, used, now int64) View {
	now, counts := p.instant(last, now)
	v := View{Now: now}
	switch {
	case !counts:
	case p.Kind == FixedWindow:
		if now/p.Period == last/p.Period {
			v.Used = used
		}
	case p.Tick == 1:
		v.Used = fall(used, p.Rate, now-last)
	default:
		v.Used = fall(used, p.Rate, now/p.Tick-last/p.Tick)
	}
	return v
}

// SettleSmall is Settle for a small State: where the whole request is allowed, v
// becomes what is to be remembered, v.Now and v.Used.
func (p *Plan) SettleSmall(v *View, n int64, allowed bool) Verdict {
	d := p.judge(nil, v, n, allowed)
	if allowed {
		v.Used += n * p.Unit
	}
	p.standing(nil, v, &d)
	return d
}

// DecideSmall is LookSmall, Fits and SettleSmall for a request of its own: it makes d,
// and returns what is to be remembered where that allows. Of buckets in ticks of 1 µs,
// which most limits are, it says the same in one go, so that no number passes through
// memory: that is a third of a decision.
func (p *Plan) DecideSmall(last, used, now, n int64, d *Verdict) (at, level int64) {
	if p.Kind > LeakyBucket || p.Tick != 1 || last > now {
		v := p.LookSmall(last, used, now)
		*d = p.SettleSmall(&v, n, p.Fits(&v, n))
		return v.Now, v.Used
	}
	level = fall(used, p.Rate, now-last)
	d.Allowed, d.Retry, d.Delay = false, 0, 0
	switch cost := n * p.Unit; {
	case n > p.Capacity:
		d.Retry = Never
	case level+cost > p.Full:
		d.Retry = p.drain(level + cost - p.Full)
	default:
		d.Allowed = true
		if p.Kind == LeakyBucket {
			d.Delay = p.drain(level)
		}
		level += cost
	}
	left := max(0, p.Full-level)
	if p.Unit != 1 {
		left = quotient(left, p.Unit)
	}
	d.Remaining, d.Reset = left, p.drain(level)
	return now, level
}

// quotient divides numbers that are not negative, for which the processor need not look at signs.
func quotient(a, b int64) int64 { return int64(uint64(a) / uint64(b)) }
