package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server/rules"
)

// Status is the state in force at an instant, and why.
type Status struct {
	Set      *rules.Set // the current set
	Base     *rules.Set // the same without controls
	Number   int64      // of the pushed rules in Base; 0: Base is the file's
	Newest   int64      // number of the newest pushed rules that were seen
	Taken    time.Time  // when Base was taken
	Refusal  *Refusal   // of rules that came after Base; nil: none were refused
	Order    *Order     // to take the file's rules; nil: none
	Controls rules.Controls
	Version  int64           // number of the fleet's version of Controls; 0: it has none
	Pending  []Change        // in force here, but not in that version
	Problems []rules.Problem // why entries of Controls have no effect
	Shared   bool            // Controls are a fleet's

	// Source is where Controls come from. Saved is when the controls of the state file were
	// read from the store; nil for other sources.
	Source Source
	Saved  *time.Time
	// Unsaved is why the state could not be saved; nil: it could, or there is no StateDir.
	Unsaved error

	why map[string]string // the problems by ID; see Problem
}

// Source is a place where controls come from.
type Source string

// The sources. An instance by itself has SourceStore.
const (
	SourceStore Source = "store"
	SourceState Source = "state_dir" // until the store was read once
	SourceNone  Source = "nowhere"   // until the store was read once, and nothing was saved
)

// Source returns where the controls come from now. It takes no lock.
func (c *Control) Source() Source {
	switch {
	case !c.shared || c.read.Load():
		return SourceStore
	case c.saved.Load() != nil:
		return SourceState
	}
	return SourceNone
}

// ClockAhead is how far the machine's clock is ahead of the store's. If the store's was not read, known is
// false, and the difference is the saved one, or 0.
func (c *Control) ClockAhead() (by time.Duration, known bool) {
	return c.clock.ahead(), c.clock.isKnown()
}

// Status returns the present state. Ended entries are left out.
func (c *Control) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{
		Set: c.Current(), Base: c.base, Number: c.number, Newest: c.rulesDoc.seen.Number,
		Taken: c.taken, Refusal: c.refusal, Order: c.order,
		Controls: *c.controls.Clone(), Version: c.controlsDoc.seen.Number, Problems: c.problems, Shared: c.shared,
		Source: c.Source(), Saved: c.saved.Load(),
	}
	s.Controls.Expire(c.clock.now(), keepLifts)
	for _, p := range c.pending {
		s.Pending = append(s.Pending, *p)
	}
	if c.state != nil {
		s.Unsaved = c.state.unsaved()
	}
	return s
}

// Changes returns the version number of the changes made at run time, as in Status, and the number of running
// manual bans. It copies nothing, so it can be called often.
func (c *Control) Changes() (version, bans int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	for i := range c.controls.Bans {
		if until := c.controls.Bans[i].Until; until.IsZero() || until.After(now) {
			bans++
		}
	}
	return c.controlsDoc.seen.Number, bans
}

// Silences are the silences in force.
func (c *Control) Silences() []rules.Silence {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, now := rules.Controls{Silences: slices.Clone(c.controls.Silences)}, c.clock.now()
	all.Expire(now, keepLifts)
	return all.Silences
}

// Problem says why an entry has no effect; empty: it has one. Not safe for concurrent use.
func (s *Status) Problem(id string) string {
	if s.why == nil { // there may be thousands of problems, and of entries
		s.why = make(map[string]string, len(s.Problems))
		for _, p := range slices.Backward(s.Problems) { // the first of an ID counts
			s.why[p.ID] = p.Text
		}
	}
	return s.why[id]
}

// Findings are the findings about the controls, and about other rules in the namespace.
func (c *Control) Findings() []rules.Finding {
	c.mu.Lock()
	found := findingsOf(&c.controls)
	c.mu.Unlock()
	return append(found, c.rollout.findings()...)
}

// findingsOf checks the changes made at run time.
func findingsOf(c *rules.Controls) (found []rules.Finding) {
	var endless, everybody ids
	for i := range c.Bans {
		b := &c.Bans[i]
		if b.Until.IsZero() {
			endless.add(b.ID)
		}
		if isEverybody(b.Network) {
			everybody.add(b.ID)
		}
	}
	for i := range c.Blocklist {
		if l := &c.Blocklist[i]; isEverybody(l.Network) {
			everybody.add(l.ID)
		}
	}
	if endless.n > 0 {
		found = append(found, rules.Finding{Code: rules.CodeBanWithoutEnd, Text: endless.String() +
			": bans by hand without an end; lift them when no longer needed, or ban again with for or until"})
	}
	if everybody.n > 0 {
		found = append(found, rules.Finding{Code: rules.CodeEverybody, Text: everybody.String() +
			": refuses every IPv4 or IPv6 client; if this is a mistake, lift the ban or remove the entry"})
	}
	return found
}

// ids lists entries, and names the first few.
type ids struct {
	n     int
	first []string
}

func (s *ids) add(id string) {
	if s.n++; len(s.first) < 5 {
		s.first = append(s.first, id)
	}
}

func (s *ids) String() string {
	text := strings.Join(s.first, ", ")
	if more := s.n - len(s.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// isEverybody reports whether a network has all addresses of IPv4 or of IPv6.
func isEverybody(network string) bool {
	p, err := address.NAT64(nil).ParseNetwork(network)
	return err == nil && p.Bits() == 0
}
