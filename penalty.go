package stint

import (
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// PenaltySpec says how a key is punished for refused requests: the first refusals only
// limit, further ones warn, and then the key is banned, for longer each time. NewPenalty
// makes a Penalty from it. At least one of WarnAfter and BanAfter must be given.
type PenaltySpec struct {
	// Name tells penalties apart that punish the same key. The rules for Spec.Name apply.
	Name string
	// WarnAfter is the number of violations from which refusals warn. 0: no warning.
	WarnAfter int64
	// BanAfter is the number of violations that leads to a ban. 0: no ban.
	BanAfter int64
	// BanFor is the length of the first ban. It must be given with BanAfter, and has
	// no effect without it.
	BanFor time.Duration
	// ForgetAfter is how long after the last violation the count of violations
	// starts again, and how long after the end of the last ban the next ban is a first one
	// again. Raising it does not bring back forgotten violations and bans. 0: one hour.
	ForgetAfter time.Duration
	// Growth is the factor by which each ban is longer than the one before. 0 and 1: all
	// bans have the same length.
	Growth int64
	// MaxBan is the length of the longest ban. 0: 100 years.
	MaxBan time.Duration
}

// Penalty is made by NewPenalty, never changes, and may be used from many goroutines at once.
type Penalty struct {
	spec    PenaltySpec
	id      string
	counted counts.Penalty
}

// NewPenalty checks s and makes a penalty of it. The error says which number is
// wrong and what would be right.
func NewPenalty(s PenaltySpec) (*Penalty, error) {
	if err := checkName(s.Name); err != nil {
		return nil, fmt.Errorf("penalty: %w", err)
	}
	plan, err := algo.NewPenalty(s.WarnAfter, s.BanAfter, s.BanFor, s.ForgetAfter, s.Growth, s.MaxBan)
	if err != nil {
		return nil, fmt.Errorf("penalty: %w", err)
	}
	id := "p:" + s.Name
	return &Penalty{spec: s, id: id, counted: counts.Penalty{Plan: plan, Salt: counts.Salt(id), Name: s.Name}}, nil
}

// Spec is what the penalty was made from.
func (p *Penalty) Spec() PenaltySpec { return p.spec }

// ID names the penalty's records in a store: penalties with the same ID share
// them. It never equals the ID of a Limit.
func (p *Penalty) ID() string { return p.id }

// Record has the violations and bans of a key under a penalty. Its numbers are 0 if nothing
// counts for the key, or nothing any more.
type Record struct {
	Key string
	// Hashed means that Key is "#" and a hash of the key, because the store does not keep
	// long keys. To lift such a ban, you need the key.
	Hashed bool
	// Penalty is the Name of the penalty's spec.
	Penalty string
	// Violations is how many violations count at present.
	Violations int64
	// Bans is how many bans count for the length of the next, including a running one.
	Bans int64
	// BanLeft is how long the ban lasts from now; 0: no ban.
	BanLeft time.Duration
}

// recordOf is the Record of a key at an instant in µs.
func recordOf(key string, p *counts.Penalty, r *algo.Record, now int64) Record {
	violations, bans := p.Plan.Standing(r, now)
	return Record{Key: key, Penalty: p.Name, Violations: violations, Bans: bans, BanLeft: algo.Duration(p.Plan.BanLeft(r, now))}
}
