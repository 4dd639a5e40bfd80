package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/rules"
)

// Announcer is Documents by which instances tell each other which rules they have.
// redislimit.Documents is one.
type Announcer interface {
	// Announce says a text, and returns the texts that instances have said in the
	// last 30 seconds or so, each once, this among them.
	Announce(ctx context.Context, text string) ([]string, error)
}

// roll is which rules other instances have than this one, and since when.
type roll struct {
	mu     sync.Mutex
	unlike map[string]unlike // by version
	told   atomic.Bool       // the log has told of the finding that is open
}

// unlike are rules that are not ours.
type unlike struct {
	announcement
	since time.Time // that both were there at once
}

// announcement is what an instance says of its rules.
type announcement struct {
	Version string   `json:"version"`
	Rules   []string `json:"rules"` // the first of their names, sorted
	Count   int      `json:"count"`
}

const (
	announceEvery = 10 * time.Second
	// mostNames is how many names of rules are told.
	mostNames = 100
	// rollOut is how long instances may have different rules before that is a
	// finding: new ones reach a fleet within it. Rules that have no name in common
	// are hardly two versions of one file, and are told earlier.
	rollOut       = 10 * time.Minute
	strangersMeet = time.Minute
)

func announcementOf(set *rules.Set) announcement {
	a := announcement{Version: set.Version, Count: len(set.Rules)}
	for _, r := range set.Rules {
		a.Rules = append(a.Rules, r.Name)
	}
	slices.Sort(a.Rules)
	a.Rules = a.Rules[:min(len(a.Rules), mostNames)]
	return a
}

// stranger tells whether a and b have no rule in common, as far as they tell.
func (a *announcement) stranger(b *announcement) bool {
	if a.Count == 0 || b.Count == 0 || a.Count > len(a.Rules) || b.Count > len(b.Rules) {
		return false
	}
	return !slices.ContainsFunc(a.Rules, func(name string) bool { return slices.Contains(b.Rules, name) })
}

// followRoll says which rules this instance has, and hears which others have, until
// ctx is done.
func (s *Server) followRoll(ctx context.Context, to Announcer) {
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	for {
		s.callRoll(ctx, to)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// callRoll does it once. Where nothing is heard, for want of an answer or of a
// permission, what was known stays.
func (s *Server) callRoll(ctx context.Context, to Announcer) {
	ours := s.announcement()
	text, err := json.Marshal(ours)
	if err != nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	all, err := to.Announce(bounded, string(text))
	if err != nil {
		return
	}
	now := time.Now()
	s.roll.mu.Lock()
	before := s.roll.unlike
	s.roll.unlike = map[string]unlike{}
	for _, text := range all {
		var theirs announcement
		if json.Unmarshal([]byte(text), &theirs) != nil || theirs.Version == ours.Version {
			continue
		}
		since := now
		if u, known := before[theirs.Version]; known {
			since = u.since
		}
		s.roll.unlike[theirs.Version] = unlike{theirs, since}
	}
	s.roll.mu.Unlock()
	s.tellUnlike()
}

// announcement is that of the rules that decide here, without what was changed at run
// time.
func (s *Server) announcement() announcement {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	return announcementOf(s.live.base)
}

// tellUnlike logs the finding when it comes up.
func (s *Server) tellUnlike() {
	found := s.unlikeFindings()
	if len(found) > 0 && !s.roll.told.Swap(true) {
		s.log.Warn(found[0].Text, "code", found[0].Code)
	}
	if len(found) == 0 {
		s.roll.told.Store(false)
	}
}

// unlikeFindings tells of rules in the namespace that have been unlike ours for longer
// than a roll-out takes.
func (s *Server) unlikeFindings() []rules.Finding {
	ours, now := s.announcement(), time.Now()
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	var texts []string
	for version, u := range s.roll.unlike {
		age := now.Sub(u.since)
		switch {
		case u.Version == ours.Version:
		case ours.stranger(&u.announcement) && age >= strangersMeet:
			texts = append(texts, fmt.Sprintf("version %s has no rule in common with this instance (%s)", version, someOf(u.Rules)))
		case age >= rollOut:
			texts = append(texts, fmt.Sprintf("version %s has been there for more than %s", version, rollOut))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	slices.Sort(texts)
	where := ""
	if n := s.settings.Namespace; n != "" {
		where = " " + n
	}
	return []rules.Finding{{Code: rules.CodeUnlikeRules, Text: fmt.Sprintf("instances in the namespace%s have other rules than this one, of version %s: %s; "+
		"they share bans, the kill switch and counts of rules of equal names: if they are another service, give each a namespace of its own", where, ours.Version, strings.Join(texts, ", "))}}
}

// someOf are the first few of some names.
func someOf(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " and others"
}
