package control

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server/rules"
)

// Edit is an edit of controls. It is data, so that it can be saved until the store is back. The
// implementations are the types of this package with a method kind.
type Edit interface {
	kind() string // its name in the state file
	// apply makes all of the edit, or nothing. It gets a copy of the newest controls, perhaps several times,
	// and again later if the store is down. So it must not write anywhere else, and a second run on its own
	// result must give the same or fail. It returns the replaced entries, and the IDs of the changed ones,
	// which must have no problem under the rules.
	apply(now *rules.Controls) (replaced rules.Controls, ids []string, err error)
}

// editKinds are the kinds of edits, by their names in the state file.
var editKinds = map[string]func([]byte) (Edit, error){
	AddBan{}.kind():         decoded[AddBan],
	RemoveBan{}.kind():      decoded[RemoveBan],
	LiftBans{}.kind():       decoded[LiftBans],
	AddOverride{}.kind():    decoded[AddOverride],
	RemoveOverride{}.kind(): decoded[RemoveOverride],
	AddListed{}.kind():      decoded[AddListed],
	RemoveListed{}.kind():   decoded[RemoveListed],
	AddSilence{}.kind():     decoded[AddSilence],
	RemoveSilence{}.kind():  decoded[RemoveSilence],
	Switch{}.kind():         decoded[Switch],
}

func decoded[E Edit](text []byte) (Edit, error) {
	var e E
	err := json.Unmarshal(text, &e)
	return e, err
}

// Target is the target of a ban: a key under a rule, or a network.
type Target struct {
	Rule    string
	Key     rules.Key `json:",omitempty"`
	Network string
}

// is reports whether b has the target t.
func (t *Target) is(b *rules.Ban) bool {
	return b.Rule == t.Rule && b.Key == t.Key && isNetwork(b.Network, t.Network)
}

// isNetwork reports whether two texts are the same network. A ban may have been saved in an older form, such
// as IPv6 for an IPv4 network.
func isNetwork(a, b string) bool {
	if a == b || a == "" || b == "" {
		return a == b
	}
	p, errA := address.NAT64(nil).ParseNetwork(a)
	q, errB := address.NAT64(nil).ParseNetwork(b)
	return errA == nil && errB == nil && p == q
}

// removeBans removes the manual bans of t, and returns them.
func (t *Target) removeBans(now *rules.Controls) (removed []rules.Ban) {
	return removeAll(&now.Bans, t.is)
}

// AddBan adds a manual ban, and replaces those of the same target.
type AddBan struct{ Ban rules.Ban }

func (AddBan) kind() string { return "ban" }

func (e AddBan) apply(now *rules.Controls) (replaced rules.Controls, ids []string, err error) {
	t := &Target{e.Ban.Rule, e.Ban.Key, e.Ban.Network}
	replaced.Bans = t.removeBans(now)
	now.Bans = append(now.Bans, e.Ban)
	return replaced, []string{e.Ban.ID}, nil
}

// RemoveBan lifts a manual ban.
type RemoveBan struct{ ID string }

func (RemoveBan) kind() string { return "lift_ban" }

func (e RemoveBan) apply(now *rules.Controls) (removed rules.Controls, ids []string, err error) {
	removed.Bans, err = remove(&now.Bans, func(b *rules.Ban) *rules.Note { return &b.Note }, "ban by hand", e.ID)
	return removed, nil, err
}

// LiftBans lifts every ban of a target at an instant: manual bans and, for a key, also bans by
// the rule's penalty in the store.
type LiftBans struct {
	Target Target
	At     time.Time
}

func (LiftBans) kind() string { return "lift_bans" }

func (e LiftBans) apply(now *rules.Controls) (lifted rules.Controls, ids []string, err error) {
	lifted.Bans = e.Target.removeBans(now)
	lift := rules.Lift{Rule: e.Target.Rule, Key: e.Target.Key, At: e.At}
	switch {
	case lift.Rule == "" && len(lifted.Bans) == 0:
		return lifted, nil, refusedFor(NotFound, "There is no ban by hand of the network %s.", e.Target.Network)
	case lift.Rule != "" && !slices.Contains(now.Lifts, lift):
		now.Lifts = append(now.Lifts, lift)
	}
	return lifted, nil, nil
}

// AddOverride adds an override, and replaces one for the same rule and key or tier.
type AddOverride struct{ Override rules.Override }

func (AddOverride) kind() string { return "override" }

func (e AddOverride) apply(now *rules.Controls) (replaced rules.Controls, ids []string, err error) {
	o := &e.Override
	replaced.Overrides = removeAll(&now.Overrides, func(other *rules.Override) bool {
		return other.Rule == o.Rule && other.Key == o.Key && other.Tier == o.Tier
	})
	now.Overrides = append(now.Overrides, *o)
	return replaced, []string{o.ID}, nil
}

// RemoveOverride removes an override.
type RemoveOverride struct{ ID string }

func (RemoveOverride) kind() string { return "remove_override" }

func (e RemoveOverride) apply(now *rules.Controls) (removed rules.Controls, ids []string, err error) {
	removed.Overrides, err = remove(&now.Overrides, func(o *rules.Override) *rules.Note { return &o.Note }, "override", e.ID)
	return removed, nil, err
}

// Listed returns the list of a name, safelist or blocklist, in c; nil: there is no such list.
func Listed(c *rules.Controls, name string) *[]rules.Listed {
	switch name {
	case "safelist":
		return &c.Safelist
	case "blocklist":
		return &c.Blocklist
	}
	return nil
}

// ListNotFound is the error for a name that Listed does not know.
func ListNotFound(name string) error {
	return refusedFor(NotFound, "There is no list %.40q: there are safelist and blocklist.", name)
}

// AddListed puts an entry on a list.
type AddListed struct {
	List  string // see Listed
	Entry rules.Listed
}

func (AddListed) kind() string { return "list" }

func (e AddListed) apply(now *rules.Controls) (replaced rules.Controls, ids []string, err error) {
	all := Listed(now, e.List)
	if all == nil {
		return replaced, nil, ListNotFound(e.List)
	}
	if !slices.ContainsFunc(*all, func(other rules.Listed) bool { return other.ID == e.Entry.ID }) {
		*all = append(*all, e.Entry)
	}
	return replaced, []string{e.Entry.ID}, nil
}

// RemoveListed takes an entry off a list.
type RemoveListed struct{ List, ID string }

func (RemoveListed) kind() string { return "take_off_list" }

func (e RemoveListed) apply(now *rules.Controls) (removed rules.Controls, ids []string, err error) {
	all := Listed(now, e.List)
	if all == nil {
		return removed, nil, ListNotFound(e.List)
	}
	*Listed(&removed, e.List), err = remove(all, func(l *rules.Listed) *rules.Note { return &l.Note }, "entry of the "+e.List, e.ID)
	return removed, nil, err
}

// AddSilence mutes an alert, or all, and replaces the silence that did.
type AddSilence struct{ Silence rules.Silence }

func (AddSilence) kind() string { return "silence" }

func (e AddSilence) apply(now *rules.Controls) (replaced rules.Controls, ids []string, err error) {
	replaced.Silences = removeAll(&now.Silences, func(s *rules.Silence) bool { return s.Alert == e.Silence.Alert })
	now.Silences = append(now.Silences, e.Silence)
	return replaced, []string{e.Silence.ID}, nil
}

// RemoveSilence removes a silence.
type RemoveSilence struct{ ID string }

func (RemoveSilence) kind() string { return "unsilence" }

func (e RemoveSilence) apply(now *rules.Controls) (removed rules.Controls, ids []string, err error) {
	removed.Silences, err = remove(&now.Silences, func(s *rules.Silence) *rules.Note { return &s.Note }, "silence", e.ID)
	return removed, nil, err
}

// Switch sets the kill switch and the modes of rules; nil: as in the file.
type Switch struct {
	SetEnabled bool // set Enabled, perhaps to nil
	Enabled    *bool
	Modes      map[string]*rules.Mode
}

func (Switch) kind() string { return "switch" }

func (e Switch) apply(now *rules.Controls) (replaced rules.Controls, ids []string, err error) {
	if e.SetEnabled {
		now.Enabled = e.Enabled
	}
	for name, mode := range e.Modes {
		if mode == nil {
			delete(now.Modes, name)
			continue
		}
		if now.Modes == nil {
			now.Modes = map[string]rules.Mode{}
		}
		now.Modes[name] = *mode
		ids = append(ids, name) // not the earlier ones: their rules may be gone
	}
	return replaced, ids, nil
}

// removeAll removes the entries for which is returns true, and returns them.
func removeAll[E any](list *[]E, is func(*E) bool) (removed []E) {
	*list = slices.DeleteFunc(*list, func(e E) bool {
		if !is(&e) {
			return false
		}
		removed = append(removed, e)
		return true
	})
	return removed
}

// remove removes the entry with an ID from a list, and returns it. what is the word for it in
// an error.
func remove[E any](list *[]E, note func(*E) *rules.Note, what, id string) (removed []E, err error) {
	removed = removeAll(list, func(e *E) bool { return note(e).ID == id })
	if len(removed) == 0 {
		return nil, refusedFor(NotFound, "There is no %s with the id %.40q; it may have ended.", what, id)
	}
	return removed, nil
}
