// Package algo holds the arithmetic of the five algorithms: a state, a limit, a
// cost and an instant go in; a verdict and a new state come out. Nothing here
// reads a clock, does I/O or uses a float, so the same numbers come out of the
// Go below and of the Lua beside it, which Redis runs (see Script).
//
// Deciding has two steps, because a request may have several limits and is charged under all of
// them or under none: Look returns the current usage, and Settle, once it is known whether the
// request as a whole is allowed, charges it and returns the verdict.
package algo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is an algorithm. The numbers are part of the script's protocol.
type Kind uint8

const (
	TokenBucket Kind = iota
	LeakyBucket
	FixedWindow
	SlidingLog
	SlidingWindow
	InFlight // has no state, only holds
)

var kindNames = [...]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "in_flight"}

// String is the algorithm's name in files and flags, such as "token_bucket".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "algorithm(" + strconv.Itoa(int(k)) + ")"
}

// ParseKind is the inverse of String.
func ParseKind(name string) (Kind, error) {
	i := slices.IndexFunc(kindNames[:], func(n string) bool { return strings.EqualFold(n, strings.ReplaceAll(name, "-", "_")) })
	if i < 0 {
		return 0, fmt.Errorf("unknown algorithm %q: one of %s", name, strings.Join(kindNames[:], ", "))
	}
	return Kind(i), nil
}

// Never is the wait of a request whose cost is above the capacity.
const Never = -1

// step is how far a clock may be behind without having jumped, however short the window, µs.
const step = 1_000_000

// State is a store's data of one key under one limit; zero: unused. Which fields count depends on
// the algorithm. Plans of it must be of one kind, period and number of sub-windows.
type State struct {
	Last int64 // the instant of the last charge, µs since 1970
	// Used is the units taken in a fixed window's last window, a bucket's level at Last in parts of
	// a unit, the sum of a sliding window's Counts, or the running sum before a log's first mark.
	Used   int64
	Amount int64   // buckets: the amount that Used was computed under
	Tick   int64   // buckets: the tick that Used was computed under
	Counts []int64 // sliding window: units of each of its Buckets+1 sub-windows, that of Last first; nil: none
	Marks  []Mark  // sliding log: admitted units, oldest first
}

// IsZero reports whether s is unused because nothing was ever charged, or all was refunded.
func (s *State) IsZero() bool { return s.Used == 0 && len(s.Counts) == 0 && len(s.Marks) == 0 }

// Mark is an instant at which a sliding log admitted units.
type Mark struct {
	At  int64 // µs since 1970
	Sum int64 // running sum of the units admitted up to and with this mark; wraps
}

// View is a State as seen at one instant.
type View struct {
	Now  int64 // the instant in µs, not before State.Last unless that is as if unused
	Used int64 // usage: parts of a unit for buckets, units otherwise
	// For a held limit: held units, for how long (µs from the instant asked), and whether there is
	// no room for another hold.
	Held, HeldFor int64
	Crowded       bool
	// For a sliding window: the sub-window of Now, how many sub-windows before it the last charge
	// was, and the count of the sub-window that is leaving.
	sub, later, old int64
	first           int64 // for a sliding log, the index of the oldest mark that still counts
}

// Verdict is one limit's answer. Durations are µs.
type Verdict struct {
	Allowed   bool
	Busy      bool // holds refuse, and Retry is a hint
	Remaining int64
	Retry     int64 // 0 if allowed, else the wait, or Never
	Reset     int64
	Held      int64 // units held, see View
	Delay     int64 // leaky bucket, of a request allowed as a whole; else 0
}

// StricterThan orders denials by the longer wait, then by less remaining.
func (d *Verdict) StricterThan(e *Verdict) bool {
	switch {
	case d.Allowed != e.Allowed:
		return e.Allowed
	case d.Allowed:
		return d.Remaining < e.Remaining
	}
	return uint64(d.Retry) > uint64(e.Retry) // Never is the longest
}

// Look rolls s forward to now (µs) without changing it. If the clock is behind, now is the last
// charge's instant; if it is behind by more than a period and a second, it has jumped, and s is as
// if unused.
func (p *Plan) Look(s *State, now int64) View {
	now, counts := p.instant(s.Last, now)
	if !counts {
		v := View{Now: now, first: int64(len(s.Marks))}
		if p.Kind == SlidingWindow {
			v.sub, v.later = p.subWindow(now), p.Buckets+1
		}
		return v
	}
	switch p.Kind {
	case InFlight:
		return View{Now: now}
	case FixedWindow:
		return p.LookSmall(s.Last, s.Used, now)
	case SlidingLog:
		return p.lookLog(s, now)
	case SlidingWindow:
		return p.lookWindow(s, now)
	default:
		return p.LookSmall(s.Last, p.level(s, now), now)
	}
}

// instant returns the instant for a state. counts is false if its charge is so far ahead that it is
// void.
func (p *Plan) instant(last, now int64) (at int64, counts bool) {
	if last <= now {
		return now, true
	}
	period := p.Period
	if p.Calendar != nil {
		period = p.Calendar.Window(now).length()
	}
	if last-now > max(period, step) {
		return now, false
	}
	return last, true
}

// Fits reports whether a request of cost n would be allowed at v. n ≥ 0.
func (p *Plan) Fits(v *View, n int64) bool {
	return n <= p.Capacity-v.Held && v.Used+(v.Held+n)*p.Unit <= p.Full && !v.Crowded
}

// Settle ends a decision: v is what Look gave for s. If the whole request is allowed, s is charged
// with n units; a cost of 0 changes nothing.
func (p *Plan) Settle(s *State, v *View, n int64, allowed bool) Verdict {
	d := p.judge(s, v, n, allowed)
	if allowed && n > 0 {
		p.charge(s, v, n)
	}
	p.standing(s, v, &d)
	return d
}

func (p *Plan) standing(s *State, v *View, d *Verdict) {
	d.Remaining = max(0, p.Left(v)-v.Held)
	d.Reset = max(p.reset(s, v), v.HeldFor)
	d.Held = v.Held
}

// Left is how many units of cost 1 would still be allowed at v.
func (p *Plan) Left(v *View) int64 {
	left := max(0, p.Full-v.Used)
	if p.Unit != 1 { // a division is a tenth of a decision
		left /= p.Unit
	}
	return left
}

// judge is the Verdict without the fields that depend on the charge.
func (p *Plan) judge(s *State, v *View, n int64, allowed bool) (d Verdict) {
	if d.Allowed = allowed; allowed {
		if p.Kind == LeakyBucket {
			d.Delay = p.drain(v.Used)
		}
	} else if d.Allowed = p.Fits(v, n); !d.Allowed {
		switch {
		case n > p.Capacity:
			d.Retry = Never
		case v.Used+n*p.Unit > p.Full:
			d.Retry = p.retry(s, v, n)
		default:
			d.Retry, d.Busy = p.Busy, true
		}
	}
	return d
}

// Longest is the longest time, in µs, until a key charged only under p is unused: for a bucket,
// with all the debt that it may have.
func (p *Plan) Longest() int64 {
	switch p.Kind {
	case InFlight:
		return 0
	case FixedWindow, SlidingLog:
		return p.Period
	case SlidingWindow:
		return p.Period + p.Width*p.Tick
	default:
		return p.drain(max(p.Full, p.Most))
	}
}

func (p *Plan) charge(s *State, v *View, n int64) {
	switch p.Kind {
	case InFlight:
	case SlidingLog:
		p.chargeLog(s, v, n)
	case SlidingWindow:
		p.chargeWindow(s, v, n)
	default:
		v.Used += n * p.Unit
		*s = p.SmallState(v.Now, v.Used)
	}
}

// retry is the wait until n units fit, for a request within the capacity that does not fit.
func (p *Plan) retry(s *State, v *View, n int64) int64 {
	switch p.Kind {
	case FixedWindow:
		return p.windowEnd(v)
	case SlidingLog:
		return p.retryLog(s, v, n)
	case SlidingWindow:
		return p.retryWindow(s, v, n)
	default:
		return p.wait(v, v.Used+n*p.Unit-p.Full)
	}
}

func (p *Plan) reset(s *State, v *View) int64 {
	switch p.Kind {
	case InFlight:
		return 0
	case FixedWindow:
		if v.Used == 0 {
			return 0
		}
		return p.windowEnd(v)
	case SlidingLog:
		return p.resetLog(s, v)
	case SlidingWindow:
		return p.resetWindow(s, v)
	default:
		return p.wait(v, v.Used)
	}
}

// Unused is the instant (µs) from which s, which is not zero, counts for nothing under any amount: a
// store may drop it then. A bucket's level falls at the rate that it was charged under.
func (p *Plan) Unused(s *State) int64 {
	own := *p
	if p.IsBucket() {
		own.Amount, own.Tick = s.Amount, s.Tick
		own.Rate, own.Unit = lowest(s.Amount, p.Period/s.Tick)
	}
	v := own.Look(s, s.Last)
	return s.Last + own.reset(s, &v)
}

// Refund returns n ≥ 0 units at now (µs), the newest first, and reports whether s is empty, and zero,
// now. The last charge's instant stays, and so do units that no longer count, because a clock may
// step back.
func (p *Plan) Refund(s *State, now, n int64) (emptied bool) {
	v := p.Look(s, now)
	if v.Used == 0 || n == 0 {
		return false
	}
	switch p.Kind {
	case FixedWindow:
		emptied = n >= v.Used
		s.Used -= n
	case SlidingLog:
		emptied = n >= v.Used
		if !emptied {
			s.refundLog(n)
		}
	case SlidingWindow:
		emptied = p.refundWindow(s, &v, n)
	default:
		emptied = p.refundBucket(s, now, n)
	}
	if emptied {
		*s = State{}
	}
	return emptied
}

// DropOldest is Refund with the oldest units first, for a copy of a count that n units have left:
// the rest leaves the copy no sooner. From the leaving sub-window it takes all or nothing.
func (p *Plan) DropOldest(s *State, now, n int64) (emptied bool) {
	v := p.Look(s, now)
	switch {
	case v.Used == 0 || n == 0:
		return false
	case p.Kind != SlidingLog && p.Kind != SlidingWindow || n >= v.Used:
		return p.Refund(s, now, n)
	case p.Kind == SlidingLog:
		s.dropOldestMarks(&v, n)
	default:
		p.dropOldestCounts(s, &v, n)
	}
	return false
}
