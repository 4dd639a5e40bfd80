package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Announcer is implemented by Documents through which instances tell each other which rules they have.
type Announcer interface {
	// Announce announces a text, and returns the texts that instances announced in about the last 30 seconds,
	// each once, including this one.
	Announce(ctx context.Context, text string) ([]string, error)
}

// rollout tracks which rules other instances have, and since when.
type rollout struct {
	ours      func() announcement
	namespace string
	log       *slog.Logger

	newer  sync.Once // an instance has a newer format
	mu     sync.Mutex
	others map[string]otherRules // by version
	logged bool                  // the open finding was logged; only follow uses it
}

// otherRules are rules of other instances.
type otherRules struct {
	announcement
	since time.Time // since when they and ours have existed together
}

// announcement describes the rules of an instance.
type announcement struct {
	Format  int      `json:"format"`  // of its data in the store; 0: from before there were formats
	Version string   `json:"version"` // of the rules
	Rules   []string `json:"rules"`   // the first of their names, sorted
	Count   int      `json:"count"`
}

// format is the format of instances' data in the store. It grows when older programs would misread this one's
// data; docs/upgrades.md explains each number.
const format = 1

const (
	announceEvery = 10 * time.Second
	// maxAnnounced is how many rule names an announcement has.
	maxAnnounced = 100
	// maxRollout is how long instances may have different rules before that is a finding: new
	// rules reach a fleet within that time. Rules that have no name in common are probably not
	// two versions of one file, and are a finding after maxUnrelated.
	maxRollout   = 10 * time.Minute
	maxUnrelated = time.Minute
)

func announcementOf(set *rules.Set) announcement {
	a := announcement{Format: format, Version: set.Version, Count: len(set.Rules)}
	for _, r := range set.Rules {
		a.Rules = append(a.Rules, r.Name)
	}
	slices.Sort(a.Rules)
	a.Rules = a.Rules[:min(len(a.Rules), maxAnnounced)]
	return a
}

// isUnrelated reports whether a and b have no rule in common among the names that they list.
func (a *announcement) isUnrelated(b *announcement) bool {
	if a.Count == 0 || b.Count == 0 || a.Count > len(a.Rules) || b.Count > len(b.Rules) {
		return false
	}
	return !slices.ContainsFunc(a.Rules, func(name string) bool { return slices.Contains(b.Rules, name) })
}

// follow announces this instance's rules until ctx is done, and logs when those of others
// are a finding.
func (r *rollout) follow(ctx context.Context, to Announcer) {
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	for {
		r.announce(ctx, to)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// announce announces once. If there is no answer, because of a missing permission or a failed store, the
// known announcements stay.
func (r *rollout) announce(ctx context.Context, to Announcer) {
	ours := r.ours()
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
	r.take(ours.Version, all)
	found := r.findings()
	if len(found) > 0 && !r.logged {
		r.log.Warn(found[0].Text, "code", found[0].Code)
	}
	r.logged = len(found) > 0
}

// take records what all instances have announced, including this one, which has version ours.
func (r *rollout) take(ours string, all []string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.others
	r.others = map[string]otherRules{}
	for _, text := range all {
		var theirs announcement
		if json.Unmarshal([]byte(text), &theirs) != nil {
			continue
		}
		if theirs.Format > format {
			r.newer.Do(func() {
				r.log.Warn("another instance in the namespace keeps data in a newer format, which this one may misread: finish the upgrade soon",
					"format", format, "newer", theirs.Format, "docs", "docs/upgrades.md")
			})
		}
		if theirs.Version == ours {
			continue
		}
		since := now
		if known, ok := before[theirs.Version]; ok {
			since = known.since
		}
		r.others[theirs.Version] = otherRules{theirs, since}
	}
}

// findings has the finding that other rules have been in the namespace for longer than a roll-out takes, or
// nothing.
func (r *rollout) findings() []rules.Finding {
	ours := r.ours()
	texts := r.lasting(&ours)
	if len(texts) == 0 {
		return nil
	}
	where := ""
	if r.namespace != "" {
		where = " " + r.namespace
	}
	return []rules.Finding{{Code: rules.CodeUnlikeRules, Text: fmt.Sprintf("instances in the namespace%s have other rules than this one, of version %s: %s; "+
		"they share bans, the kill switch, and counts of rules with equal names: if they are another service, give each service its own namespace", where, ours.Version, strings.Join(texts, ", "))}}
}

// lasting describes the rules that others have had for too long, sorted.
func (r *rollout) lasting(ours *announcement) (texts []string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for version, o := range r.others {
		age := now.Sub(o.since)
		switch {
		case version == ours.Version:
		case ours.isUnrelated(&o.announcement) && age >= maxUnrelated:
			texts = append(texts, fmt.Sprintf("version %s has no rule in common with this instance (%s)", version, firstOf(o.Rules)))
		case age >= maxRollout:
			texts = append(texts, fmt.Sprintf("version %s has been in use for more than %s", version, maxRollout))
		}
	}
	slices.Sort(texts)
	return texts
}

// firstOf returns the first few of some names.
func firstOf(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " and others"
}
