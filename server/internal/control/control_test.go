package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

const twoRules = `
rules:
  - {name: login, key: client.ip, limits: [2 per 1m], penalty: {ban_after: 3, ban_for: 1h}}
  - {name: api, key: attrs.user, limits: [10 per 1m]}
`

// newControl is a Control by itself, with hooks that do nothing but what the options say.
func newControl(t *testing.T, o Options) *Control {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(twoRules))
	if err != nil {
		t.Fatal(err)
	}
	o.File, o.Instance, o.Log = set, &rules.Instance{}, slog.New(slog.DiscardHandler)
	h := &o.Hooks
	if h.Installed == nil {
		h.Installed = func(*rules.Set) {}
	}
	if h.Lifted == nil {
		h.Lifted = func(rules.Lift, *stint.Penalty) {}
	}
	h.Pardon = func(context.Context, string, *stint.Penalty) error { return nil }
	h.Reloaded, h.Unread, h.Unsaved = func(error) {}, func(error) {}, func(error) {}
	h.Audit = func(slog.Level, string, *Change, ...any) {}
	return New(o)
}

// Each set that is installed is the current one, also the first.
func TestInstalled(t *testing.T) {
	var installed []*rules.Set
	var lifted []rules.Lift
	c := newControl(t, Options{Hooks: Hooks{
		Installed: func(set *rules.Set) { installed = append(installed, set) },
		Lifted: func(l rules.Lift, p *stint.Penalty) {
			if p == nil {
				t.Error("the rule has a penalty")
			}
			lifted = append(lifted, l)
		},
	}})
	off := false
	for i, e := range []Edit{
		AddBan{rules.Ban{Note: rules.Note{ID: "b"}, Network: "192.0.2.0/24"}},
		Switch{SetEnabled: true, Enabled: &off},
		LiftBans{Target{Rule: "login", Key: "192.0.2.1"}, time.Now()},
	} {
		done, err := c.Change(t.Context(), Change{Who: "ann", Action: "a", Edit: e})
		if err != nil || done.Alone != nil {
			t.Fatal(done, err)
		}
		if len(installed) != i+2 || installed[i+1] != c.Current() || installed[i+1] == installed[i] {
			t.Errorf("%T: %d installed", e, len(installed))
		}
	}
	if c.Current().Enabled || len(lifted) != 1 || lifted[0].Key != "192.0.2.1" {
		t.Error(c.Current().Enabled, lifted)
	}
	if s := c.Status(); s.Set != c.Current() || s.Version != 3 || len(s.Controls.Bans) != 1 || s.Source != SourceStore {
		t.Errorf("%+v", s)
	}
}

// What cannot be in force, or is not there, changes nothing and installs nothing.
func TestRefused(t *testing.T) {
	n := 0
	c := newControl(t, Options{Hooks: Hooks{Installed: func(*rules.Set) { n++ }}})
	for _, x := range []struct {
		edit Edit
		want Reason
	}{
		{AddBan{rules.Ban{Note: rules.Note{ID: "b"}, Rule: "none", Key: "k"}}, Invalid},
		{AddOverride{rules.Override{Note: rules.Note{ID: "o"}, Rule: "api", Tier: "silver", Times: 2}}, Invalid},
		{AddListed{"greylist", rules.Listed{Note: rules.Note{ID: "l"}, Network: "192.0.2.1"}}, NotFound},
		{RemoveBan{"b"}, NotFound},
		{AddSilence{rules.Silence{Note: rules.Note{ID: "s"}, Alert: "none"}}, Invalid},
		{RemoveOverride{"o"}, NotFound},
		{RemoveSilence{"s"}, NotFound},
		{RemoveListed{"safelist", "l"}, NotFound},
		{LiftBans{Target: Target{Network: "192.0.2.0/24"}}, NotFound},
	} {
		_, err := c.Change(t.Context(), Change{Edit: x.edit})
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Reason != x.want || refused.Text == "" {
			t.Errorf("%#v: %v", x.edit, err)
		}
	}
	if s := c.Status(); n != 1 || s.Version != 0 || !reflect.DeepEqual(s.Controls, rules.Controls{}) {
		t.Errorf("%d sets, %+v", n, s)
	}
}

// edits are one of each kind, in an order in which each applies.
func edits() []Edit {
	shadow, on := rules.Shadow, true
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	note := func(id string) rules.Note { return rules.Note{ID: id, Author: "ann", At: at} }
	return []Edit{
		AddBan{rules.Ban{Note: note("b1"), Rule: "login", Key: "192.0.2.1"}},
		AddBan{rules.Ban{Note: note("b2"), Rule: "login", Key: "192.0.2.1"}},
		AddBan{rules.Ban{Note: note("b3"), Network: "203.0.113.0/24"}},
		RemoveBan{"b2"},
		LiftBans{Target{Rule: "login", Key: "192.0.2.1"}, at},
		LiftBans{Target{Network: "203.0.113.0/24"}, at},
		AddOverride{rules.Override{Note: note("o1"), Rule: "api", Tier: "gold", Times: 2}},
		AddOverride{rules.Override{Note: note("o2"), Rule: "api", Tier: "gold", Limits: []string{"5 per 1s"}}},
		RemoveOverride{"o2"},
		AddListed{"safelist", rules.Listed{Note: note("l1"), Network: "192.0.2.9"}},
		AddListed{"blocklist", rules.Listed{Note: note("l2"), Match: "true"}},
		RemoveListed{"safelist", "l1"},
		AddSilence{rules.Silence{Note: note("s1")}},
		AddSilence{rules.Silence{Note: note("s2"), Alert: "store"}},
		AddSilence{rules.Silence{Note: note("s3"), Alert: "store"}},
		RemoveSilence{"s3"},
		Switch{SetEnabled: true, Enabled: &on, Modes: map[string]*rules.Mode{"api": &shadow, "login": nil}},
		Switch{SetEnabled: true},
	}
}

// A ban that was saved in another form of its network is lifted, or replaced, as any other.
func TestFormsOfNetworks(t *testing.T) {
	for _, saved := range []string{"203.0.113.1", "203.0.113.1/32", "::ffff:203.0.113.1", "64:ff9b::cb00:7101", "2002:cb00:7101::/48"} {
		now := rules.Controls{Bans: []rules.Ban{{Note: rules.Note{ID: "old"}, Network: saved}, {Note: rules.Note{ID: "other"}, Network: "203.0.113.2"}}}
		for _, e := range []Edit{LiftBans{Target: Target{Network: "203.0.113.1"}}, AddBan{rules.Ban{Note: rules.Note{ID: "new"}, Network: "203.0.113.1"}}} {
			gone, _, err := e.apply(now.Clone())
			if err != nil || len(gone.Bans) != 1 || gone.Bans[0].ID != "old" {
				t.Errorf("%s, %T: %+v are gone, %v", saved, e, gone.Bans, err)
			}
		}
	}
}

// An edit that was saved and read again does the same; one that is made again comes to
// the same, or is refused and changes nothing; and what it has replaced is gone.
func TestEdits(t *testing.T) {
	kinds := map[string]bool{}
	var now rules.Controls
	for _, e := range edits() {
		kinds[e.kind()] = true
		text, err := json.Marshal(&Change{ID: "1", Edit: e})
		if err != nil {
			t.Fatal(err)
		}
		var read Change
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		before, other := now.Clone(), now.Clone()
		replaced, _, err := e.apply(&now)
		if err != nil {
			t.Fatalf("%#v: %v", e, err)
		}
		if _, _, err := read.Edit.apply(other); err != nil || !reflect.DeepEqual(other, &now) {
			t.Errorf("%s: read again it makes\n%+v\nof\n%+v: %v", text, other, now, err)
		}
		is, gone := entries(&now), entries(before)
		gone = slices.DeleteFunc(gone, func(id string) bool { return slices.Contains(is, id) })
		if had := entries(&replaced); !slices.Equal(had, gone) {
			t.Errorf("%#v: replaced %q, and %q are gone", e, had, gone)
		}
		again := now.Clone()
		if _, _, err := e.apply(again); !reflect.DeepEqual(again, &now) {
			t.Errorf("%#v: made again it changes\n%+v\nto\n%+v: %v", e, now, again, err)
		}
	}
	if len(kinds) != len(editKinds) {
		t.Errorf("%d kinds of %d were looked at", len(kinds), len(editKinds))
	}
}

// entries are the IDs of c's entries.
func entries(c *rules.Controls) (ids []string) {
	for _, b := range c.Bans {
		ids = append(ids, b.ID)
	}
	for _, o := range c.Overrides {
		ids = append(ids, o.ID)
	}
	for _, s := range c.Silences {
		ids = append(ids, s.ID)
	}
	for _, l := range slices.Concat(c.Safelist, c.Blocklist) {
		ids = append(ids, l.ID)
	}
	return ids
}

// A kind that a later release has saved is an error that names it.
func TestEditOfAnotherKind(t *testing.T) {
	var c Change
	if err := json.Unmarshal([]byte(`{"ID":"1","Who":"ann","Kind":"magic","Edit":{}}`), &c); err == nil || !strings.Contains(err.Error(), "magic") || c.Who != "ann" {
		t.Errorf("%+v, %v", c, err)
	}
}

// encoded is an edit that counts how often it is encoded.
type encoded struct {
	Switch
	times *int
}

func (e encoded) MarshalJSON() ([]byte, error) {
	*e.times++
	return []byte("{}"), nil
}

// What waits is encoded when it is written, and not at each look.
func TestStateIsEncodedOnce(t *testing.T) {
	c := newControl(t, Options{StateDir: t.TempDir()})
	if err := c.Open(); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	times := 0
	add := func(id string) {
		c.mu.Lock()
		c.pending = append(c.pending, &Change{ID: id, Edit: encoded{times: &times}})
		c.mu.Unlock()
	}
	save := func(want int) {
		t.Helper()
		for range 5 {
			if err := c.save(); err != nil {
				t.Fatal(err)
			}
		}
		if times != want {
			t.Errorf("encoded %d times, want %d", times, want)
		}
	}
	add("1")
	save(1)
	add("2")
	save(3) // both, once
}

// A relative path, by which the next start may look elsewhere, is refused, and nothing is
// made there.
func TestRelativeStateDir(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"state", "./state", "../state"} {
		c := newControl(t, Options{StateDir: dir})
		if err := c.Open(); err == nil || !strings.Contains(err.Error(), "want an absolute path") {
			t.Errorf("%s: %v", dir, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s was made", dir)
		}
	}
	dir, err := filepath.Abs("state")
	if err != nil {
		t.Fatal(err)
	}
	c := newControl(t, Options{StateDir: dir})
	if err := c.Open(); err != nil {
		t.Error(err)
	}
	c.Close()
}
