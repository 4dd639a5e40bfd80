package stint

import (
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// PenaltySpec says how a key is punished for requests that are refused: first
// they are just limited, then warned, then banned, for longer each time.
// NewPenalty makes a Penalty of it. At least one of WarnAfter and BanAfter must
// be given.
type PenaltySpec struct {
	// Name tells penalties apart that punish the same key; as Spec.Name.
	Name string
	// WarnAfter is how many violations make a refusal a warning. 0: no warning.
	WarnAfter int64
	// BanAfter is how many violations lead to a ban. 0: no ban.
	BanAfter int64
	// BanFor is the length of the first ban. It is needed with BanAfter, and
	// without effect where that is 0.
	BanFor time.Duration
	// ForgetAfter is how long after the last violation the count starts again,
	// and how long after the end of the last ban the next is a first one
	// again. Where it changes, what was to be forgotten before stays so. 0: one
	// hour.
	ForgetAfter time.Duration
	// Growth is by what each further ban is longer than the one before. 0: 1,
	// which is not at all.
	Growth int64
	// MaxBan is the length of the longest ban. 0: 100 years.
	MaxBan time.Duration
}

// Penalty is made by NewPenalty, never changes, and may be used from many
// goroutines at once.
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

// Spec is what the penalty was made of.
func (p *Penalty) Spec() PenaltySpec { return p.spec }

// ID names the penalty's records in a store: penalties with the same ID share
// them. It never equals the ID of a Limit.
func (p *Penalty) ID() string { return p.id }
