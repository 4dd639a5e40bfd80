package algo

import (
	"fmt"
	"math/bits"
	"time"
)

// Penalty is a penalty prepared for arithmetic. Durations are µs; 0 turns Warn and Ban off.
type Penalty struct {
	Warn, Ban int64 // violations until a warning, until a ban
	BanFor    int64
	Forget    int64
	Growth    int64
	MaxBan    int64
}

// DefaultForget is how long violations and bans are remembered by default; MaxBan is the longest
// ban, 100 years of 365 days.
const (
	DefaultForget = time.Hour
	MaxBan        = 100 * 365 * 24 * time.Hour
)

// MostViolations bounds the violations until a warning or a ban, and the growth of bans.
const MostViolations = 1<<31 - 1

// NewPenalty checks a penalty and fills in defaults for zeros.
func NewPenalty(warn, ban int64, banFor, forget time.Duration, growth int64, maxBan time.Duration) (Penalty, error) {
	if growth == 0 {
		growth = 1
	}
	if forget == 0 {
		forget = DefaultForget
	}
	if maxBan == 0 {
		maxBan = MaxBan
	}
	p := Penalty{Warn: warn, Ban: ban, BanFor: banFor.Microseconds(), Forget: forget.Microseconds(), Growth: growth, MaxBan: maxBan.Microseconds()}
	switch {
	case warn < 0 || warn > MostViolations:
		return Penalty{}, fmt.Errorf("warn after %d: must be from 0 (never) to %d", warn, MostViolations)
	case ban < 0 || ban > MostViolations:
		return Penalty{}, fmt.Errorf("ban after %d: must be from 0 (never) to %d", ban, MostViolations)
	case warn == 0 && ban == 0:
		return Penalty{}, fmt.Errorf("it neither warns nor bans: set warn after or ban after")
	case ban > 0 && banFor == 0:
		return Penalty{}, fmt.Errorf("ban after %d: set ban for, the length of the first ban, such as 15m", ban)
	case ban > 0 && banFor < time.Millisecond:
		return Penalty{}, fmt.Errorf("ban for %s: must be at least 1ms", banFor)
	case banFor < 0:
		return Penalty{}, fmt.Errorf("ban for %s: must not be negative", banFor)
	case forget < time.Millisecond || forget > MaxBan:
		return Penalty{}, fmt.Errorf("forget after %s: must be from 1ms to %s", forget, MaxBan)
	case growth < 1 || growth > MostViolations:
		return Penalty{}, fmt.Errorf("growth %d: must be from 1 to %d", growth, MostViolations)
	case maxBan < banFor || maxBan > MaxBan:
		return Penalty{}, fmt.Errorf("max ban %s: must be from ban for (%s) to %s", maxBan, banFor, MaxBan)
	}
	return p, nil
}

// Record is a store's data of one key under one penalty. The zero Record is clean.
type Record struct {
	Last       int64 // the instant of the last violation, µs since 1970
	Violations int64 // since the last ban; counts no further than 2^31
	Until      int64 // the end of the last ban; 0: none
	Bans       int64 // so far, for growth; counts no further than 2^31
	Forget     int64 // Penalty.Forget at the last violation, µs
}

// Sentence is the consequence of a violation.
type Sentence uint8

const (
	Limited Sentence = 1 + iota
	Warned
	Banned
)

// Punishment is the outcome of a violation.
type Punishment struct {
	Sentence   Sentence
	Violations int64 // how many count; Penalty.Ban if it imposed a ban; 0: this one was not counted
	BanLeft    int64 // how long the ban lasts from now, µs
}

// Graver reports whether p, rather than q, is the answer to two violations.
func (p *Punishment) Graver(q *Punishment) bool {
	return p.Sentence > q.Sentence || p.Sentence == q.Sentence && p.BanLeft > q.BanLeft
}

// Ahead reports whether r is further ahead of now (µs) than it can last (a ban: its length;
// violations: Forget) and than a second: the clock has jumped, and r counts for nothing.
func (p *Penalty) Ahead(r *Record, now int64) bool {
	if r.Last <= now {
		return false
	}
	lasts := p.Forget
	if r.Until > r.Last {
		lasts = r.Until - r.Last
	}
	return r.Last-now > max(lasts, step)
}

// BanLeft is how long a ban lasts from now (µs); 0: no ban.
func (p *Penalty) BanLeft(r *Record, now int64) int64 {
	if p.Ahead(r, now) {
		return 0
	}
	return max(0, r.Until-max(now, r.Last))
}

// Standing returns the violations and bans of r that still count at now (µs).
func (p *Penalty) Standing(r *Record, now int64) (violations, bans int64) {
	if p.Ahead(r, now) {
		return 0, 0
	}
	now = max(now, r.Last)
	// Forgotten records stay forgotten, because a store may have dropped them.
	forget := min(p.Forget, r.Forget)
	if now-r.Last < forget {
		violations = r.Violations
	}
	if now-r.Until < forget {
		bans = r.Bans
	}
	return violations, bans
}

// Punish counts violations at now (µs) until one leads to a ban, for a key that is not banned.
func (p *Penalty) Punish(r *Record, now, times int64) Punishment {
	s := p.violate(r, now, times)
	violations := r.Violations
	if s == Banned {
		violations = p.Ban
	}
	return Punishment{Sentence: s, Violations: violations, BanLeft: p.BanLeft(r, now)}
}

func (p *Penalty) violate(r *Record, now, times int64) Sentence {
	const most = 1 << 31
	if p.Ahead(r, now) {
		*r = Record{}
	}
	violations, bans := p.Standing(r, now)
	at := max(now, r.Last)
	r.Last, r.Bans, r.Forget = at, bans, p.Forget
	r.Violations = min(violations+min(times, most), most)
	switch {
	case p.Ban > 0 && r.Violations >= p.Ban:
		term := p.term(r.Bans)
		if at-now > max(term, step) {
			r.Last = now // it would be ahead at once
		}
		r.Until = r.Last + term
		r.Bans = min(r.Bans+1, most)
		r.Violations = 0
		return Banned
	case p.Warn > 0 && r.Violations >= p.Warn:
		return Warned
	}
	return Limited
}

// term is the length of a ban after this number of bans: BanFor·Growth^bans, at most MaxBan.
func (p *Penalty) term(bans int64) int64 {
	t := p.BanFor
	for ; bans > 0 && p.Growth > 1 && t < p.MaxBan; bans-- {
		hi, lo := bits.Mul64(uint64(t), uint64(p.Growth))
		if hi != 0 || lo >= uint64(p.MaxBan) {
			return p.MaxBan
		}
		t = int64(lo)
	}
	return min(t, p.MaxBan)
}

// Clean is the instant from which r is as if it had never been.
func (r *Record) Clean() int64 { return max(r.Last, r.Until) + r.Forget }
