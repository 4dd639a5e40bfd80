package server

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/stintdev/stint/rules"
)

// editor is an edit of controls. It is data, so that it can be kept in a file until the
// store is back.
type editor[T any] interface {
	kind() string // its name in files
	// edit makes all of the change, or nothing. It is called with a copy of the newest
	// controls, perhaps several times, and later once more where the store is away; so it
	// writes nowhere else, and an edit of what it has edited already comes to the same or
	// fails. It returns what it replaced, and the IDs of what it changed, which must not
	// be a problem under the rules of now.
	edit(now *rules.Controls) (replaced T, ids []string, err error)
	// inStore does what is to be done in the store before the edit is written.
	inStore(context.Context, *Server) error
}

// edit is an editor whose replaced entries nobody asks for.
type edit interface {
	kind() string
	apply(now *rules.Controls) (ids []string, err error)
	inStore(context.Context, *Server) error
	// data is the editor.
	data() any
}

// anyEdit makes an edit of an editor.
type anyEdit[T any] struct{ editor[T] }

func (e anyEdit[T]) apply(now *rules.Controls) ([]string, error) {
	_, ids, err := e.edit(now)
	return ids, err
}

func (e anyEdit[T]) data() any { return e.editor }

// decoded reads an edit that is an E.
func decoded[E editor[T], T any](text []byte) (edit, error) {
	var e E
	err := json.Unmarshal(text, &e)
	return anyEdit[T]{e}, err
}

// editKinds reads each kind of edit, by its name in files.
var editKinds = map[string]func([]byte) (edit, error){
	banEdit{}.kind():        decoded[banEdit],
	unbanEdit{}.kind():      decoded[unbanEdit],
	liftEdit{}.kind():       decoded[liftEdit],
	overrideEdit{}.kind():   decoded[overrideEdit],
	unoverrideEdit{}.kind(): decoded[unoverrideEdit],
	listEdit{}.kind():       decoded[listEdit],
	unlistEdit{}.kind():     decoded[unlistEdit],
	switchEdit{}.kind():     decoded[switchEdit],
}

// inNoStore is the part of an editor that does nothing in the store.
type inNoStore struct{}

func (inNoStore) inStore(context.Context, *Server) error { return nil }

// banEdit puts in a ban by hand, in place of those of the same key or network.
type banEdit struct {
	Ban rules.Ban
	inNoStore
}

func (banEdit) kind() string { return "ban" }

func (e banEdit) edit(now *rules.Controls) ([]rules.Ban, []string, error) {
	replaced := takeBans(now, &e.Ban)
	now.Bans = append(now.Bans, e.Ban)
	return replaced, []string{e.Ban.ID}, nil
}

// takeBans removes the bans by hand of the key or network of ban, and returns them.
func takeBans(now *rules.Controls, ban *rules.Ban) (taken []rules.Ban) {
	now.Bans = slices.DeleteFunc(now.Bans, func(b rules.Ban) bool {
		is := b.Rule == ban.Rule && b.Key == ban.Key && b.Network == ban.Network
		if is {
			taken = append(taken, b)
		}
		return is
	})
	return taken
}

// unbanEdit lifts a ban by hand.
type unbanEdit struct {
	ID string
	inNoStore
}

func (unbanEdit) kind() string { return "lift_ban" }

func (e unbanEdit) edit(now *rules.Controls) (rules.Ban, []string, error) {
	gone, err := take(&now.Bans, banNote, "ban by hand", e.ID)
	return gone, nil, err
}

// liftEdit lifts, at an instant, every ban of a key under a rule, by hand and by the
// rule's penalty, or the bans by hand of a network.
type liftEdit struct {
	Rule    string
	Key     rules.Key `json:",omitempty"`
	Network string
	At      time.Time
}

func (liftEdit) kind() string { return "lift_bans" }

func (e liftEdit) edit(now *rules.Controls) ([]rules.Ban, []string, error) {
	byHand := takeBans(now, &rules.Ban{Rule: e.Rule, Key: e.Key, Network: e.Network})
	lift := rules.Lift{Rule: e.Rule, Key: e.Key, At: e.At}
	switch {
	case e.Rule == "" && len(byHand) == 0:
		return nil, nil, notFound("There is no ban by hand of the network %s.", e.Network)
	case e.Rule != "" && !slices.Contains(now.Lifts, lift):
		now.Lifts = append(now.Lifts, lift)
	}
	return byHand, nil, nil
}

// inStore forgets what the penalty of the rule holds against the key.
func (e liftEdit) inStore(ctx context.Context, s *Server) error {
	r, err := s.rule(e.Rule)
	if err != nil || r.Penalty == nil { // nor has the store anything, of a rule that is gone
		return nil
	}
	return s.limiter.Pardon(ctx, string(e.Key), r.Penalty)
}

// overrideEdit puts in an override, in place of those for the same.
type overrideEdit struct {
	Override rules.Override
	inNoStore
}

func (overrideEdit) kind() string { return "override" }

func (e overrideEdit) edit(now *rules.Controls) (replaced []rules.Override, ids []string, err error) {
	o := &e.Override
	now.Overrides = slices.DeleteFunc(now.Overrides, func(other rules.Override) bool {
		is := other.Rule == o.Rule && other.Key == o.Key && other.Tier == o.Tier
		if is {
			replaced = append(replaced, other)
		}
		return is
	})
	now.Overrides = append(now.Overrides, *o)
	return replaced, []string{o.ID}, nil
}

// unoverrideEdit removes an override.
type unoverrideEdit struct {
	ID string
	inNoStore
}

func (unoverrideEdit) kind() string { return "remove_override" }

func (e unoverrideEdit) edit(now *rules.Controls) (rules.Override, []string, error) {
	gone, err := take(&now.Overrides, overrideNote, "override", e.ID)
	return gone, nil, err
}

// listEdit puts an entry on a list.
type listEdit struct {
	List  string
	Entry rules.Listed
	inNoStore
}

func (listEdit) kind() string { return "list" }

func (e listEdit) edit(now *rules.Controls) (any, []string, error) {
	all := listIn(now, e.List)
	if !slices.ContainsFunc(*all, func(other rules.Listed) bool { return other.ID == e.Entry.ID }) {
		*all = append(*all, e.Entry)
	}
	return nil, []string{e.Entry.ID}, nil
}

// unlistEdit takes an entry off a list.
type unlistEdit struct {
	List, ID string
	inNoStore
}

func (unlistEdit) kind() string { return "take_off_list" }

func (e unlistEdit) edit(now *rules.Controls) (rules.Listed, []string, error) {
	gone, err := take(listIn(now, e.List), listedNote, "entry of the "+e.List, e.ID)
	return gone, nil, err
}

// knownList is an error for what is no name of a list.
func knownList(name string) error {
	if name != "safelist" && name != "blocklist" {
		return notFound("There is no list %.40q: there are safelist and blocklist.", name)
	}
	return nil
}

// listIn is the list of a name that knownList knows.
func listIn(now *rules.Controls, name string) *[]rules.Listed {
	if name == "safelist" {
		return &now.Safelist
	}
	return &now.Blocklist
}

// switchEdit sets the kill switch and modes of rules; nil: back to the file's.
type switchEdit struct {
	SetEnabled bool // Enabled is to be set, perhaps to nil
	Enabled    *bool
	Modes      map[string]*rules.Mode
	inNoStore
}

func (switchEdit) kind() string { return "switch" }

func (e switchEdit) edit(now *rules.Controls) (_ any, ids []string, err error) {
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
		ids = append(ids, name) // not those of before: their rules may be gone
	}
	return nil, ids, nil
}
