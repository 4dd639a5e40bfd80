package rules

import (
	"maps"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

// The bounds of a Controls. Entries beyond them have no effect and are reported as problems.
const (
	MaxBans      = 10_000
	MaxOverrides = 10_000
	// MaxListedNetworks and MaxListedMatches are for each of the two lists.
	MaxListedNetworks = 1_000
	MaxListedMatches  = 100
	MaxLifts          = 1_000
	MaxSilences       = 1_000
)

// Controls are changes at run time on top of a rules file: switches, overrides, lists, bans
// and silences. Set.With applies them. In JSON they are the document that a fleet shares. The zero
// Controls changes nothing.
type Controls struct {
	// Enabled is the kill switch; nil: as in the file.
	Enabled *bool `json:"enabled,omitempty"`
	// Modes are modes by rule name; other rules have the file's mode.
	Modes     map[string]Mode `json:"modes,omitempty"`
	Overrides []Override      `json:"overrides,omitempty"`
	Safelist  []Listed        `json:"safelist,omitempty"`
	Blocklist []Listed        `json:"blocklist,omitempty"`
	Bans      []Ban           `json:"bans,omitempty"`
	Silences  []Silence       `json:"silences,omitempty"`
	// Lifts are the bans that were lifted by hand recently, so that every instance forgets them.
	Lifts []Lift `json:"lifts,omitempty"`
}

// Note says who made an entry, when, why, and for how long.
type Note struct {
	// ID is unique among all entries of a Controls.
	ID     string    `json:"id"`
	Reason string    `json:"reason,omitempty"`
	Author string    `json:"author,omitempty"`
	At     time.Time `json:"at"`
	// Until is when the entry ends by itself; zero: it does not.
	Until time.Time `json:"until,omitzero"`
}

// Override gives other limits under a rule to one key, or to a tier. If two apply, the key's counts; of two
// for the same key or tier, the later in the list.
type Override struct {
	Note
	Rule string `json:"rule"`
	// It is for a key or for a tier: exactly one of them is given.
	Key  Key    `json:"key,omitempty"`
	Tier string `json:"tier,omitempty"`
	// Times multiplies the amount, burst and debt of each limit that would apply otherwise; Limits, texts as
	// in a file, replaces all of them. Exactly one of the two is given.
	Times  int64    `json:"times,omitempty"`
	Limits []string `json:"limits,omitempty"`
}

// Listed is an entry of the safelist or the blocklist: either a network (or an address) that contains the
// client's address, or an expression as in a file.
type Listed struct {
	Note
	Network string `json:"network,omitempty"`
	Match   string `json:"match,omitempty"`
}

// Ban is a manual ban: of a key under a rule, or of all clients in a network (or at an
// address). With a zero Until it does not end.
type Ban struct {
	Note
	Rule    string `json:"rule,omitempty"`
	Key     Key    `json:"key,omitempty"`
	Network string `json:"network,omitempty"`
}

// Silence mutes an alert: no message is sent about it meanwhile.
type Silence struct {
	Note
	// Alert is the name of the alert; empty: all.
	Alert string `json:"alert,omitempty"`
}

// Lift says that violations and bans of a key under a rule's penalty were forgotten.
type Lift struct {
	Rule string    `json:"rule"`
	Key  Key       `json:"key"`
	At   time.Time `json:"at"`
}

// Problem is an entry of Controls that has no effect.
type Problem struct {
	// ID is the entry's; for an entry of Modes, the name of the rule.
	ID string
	// Text says why it has none.
	Text string
}

// left is how long n still applies; stint.Never: without an end; not positive: it has ended.
func (n *Note) left(i *Instance) time.Duration {
	if n.Until.IsZero() {
		return stint.Never
	}
	return n.Until.Round(0).Sub(i.now())
}

func (n *Note) endedAt(now time.Time) bool { return !n.Until.IsZero() && !now.Before(n.Until) }

func (n *Note) outlasts(other *Note) bool {
	return !other.Until.IsZero() && (n.Until.IsZero() || n.Until.After(other.Until))
}

func (n *Note) note() *Note { return n }

func (c *Controls) isZero() bool {
	return c.Enabled == nil && len(c.Modes)+len(c.Overrides)+len(c.Safelist)+len(c.Blocklist)+len(c.Bans)+len(c.Silences)+len(c.Lifts) == 0
}

// Clone returns a copy of c that shares nothing with it; nil of nil.
func (c *Controls) Clone() *Controls {
	if c == nil {
		return nil
	}
	d := *c
	if c.Enabled != nil {
		enabled := *c.Enabled
		d.Enabled = &enabled
	}
	d.Modes = maps.Clone(c.Modes)
	d.Overrides = slices.Clone(c.Overrides)
	for i := range d.Overrides {
		d.Overrides[i].Limits = slices.Clone(d.Overrides[i].Limits)
	}
	d.Safelist = slices.Clone(c.Safelist)
	d.Blocklist = slices.Clone(c.Blocklist)
	d.Bans = slices.Clone(c.Bans)
	d.Silences = slices.Clone(c.Silences)
	d.Lifts = slices.Clone(c.Lifts)
	return &d
}

// Expire removes from c the entries that have ended by now, and the lifts that are older
// than keepLifts.
func (c *Controls) Expire(now time.Time, keepLifts time.Duration) {
	c.Overrides = slices.DeleteFunc(c.Overrides, func(o Override) bool { return o.endedAt(now) })
	ended := func(l Listed) bool { return l.endedAt(now) }
	c.Safelist = slices.DeleteFunc(c.Safelist, ended)
	c.Blocklist = slices.DeleteFunc(c.Blocklist, ended)
	c.Bans = slices.DeleteFunc(c.Bans, func(b Ban) bool { return b.endedAt(now) })
	c.Silences = slices.DeleteFunc(c.Silences, func(s Silence) bool { return s.endedAt(now) })
	c.Lifts = slices.DeleteFunc(c.Lifts, func(l Lift) bool { return now.Sub(l.At) > keepLifts })
}
