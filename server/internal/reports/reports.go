// Package reports lets the instances of a fleet share counts, offenders and alerts. Reports expire.
package reports

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// Reports stores reports. A report has a name and parts, which instances write and all read.
// It may be used from many goroutines at once. Losing a report must do no harm: stores may
// be flushed.
type Reports interface {
	// Report writes a part of a report, replacing its former text. It expires after keep, by the store's
	// clock. A report has at most MaxParts parts: if there are more, those that expire first are dropped.
	// text has at most MaxText bytes.
	Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error
	// Reported returns the parts of a report that have not expired, by their names.
	Reported(ctx context.Context, name string) (map[string][]byte, error)
	// Claim claims a name for keep, and reports whether who owns it now: it was free, or who owned it
	// already, and the claim is extended. Of several callers that claim one name, one gets true.
	Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error)
}

const (
	// MaxParts is how many parts a report has at most.
	MaxParts = 1000
	// MaxText is the length of the longest part, in bytes.
	MaxText = 256 << 10

	maxKeep = 366 * 24 * time.Hour
)

// Memory keeps the reports of a single instance. The zero Memory is empty.
type Memory struct {
	mu     sync.Mutex
	parts  map[string]map[string]part // by name of the report, and of the part
	claims map[string]claim
	now    func() time.Time // nil: time.Now
}

type part struct {
	text []byte
	ends time.Time
}

type claim struct {
	who  string
	ends time.Time
}

func (m *Memory) time() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

// Report implements Reports.
func (m *Memory) Report(_ context.Context, name, of string, text []byte, keep time.Duration) error {
	if err := check(name, of, keep); err != nil {
		return err
	}
	if len(text) > MaxText {
		return fmt.Errorf("report %s: a part of %d bytes: at most %d", name, len(text), MaxText)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.time()
	if m.parts == nil {
		m.parts = map[string]map[string]part{}
	}
	all := m.parts[name]
	if all == nil {
		all = map[string]part{}
		m.parts[name] = all
	}
	all[of] = part{bytes.Clone(text), now.Add(keep)}
	m.drop(now)
	for len(all) > MaxParts {
		first := ""
		for name, p := range all {
			if c := p.ends.Compare(all[first].ends); first == "" || c < 0 || c == 0 && name < first {
				first = name
			}
		}
		delete(all, first)
	}
	return nil
}

// drop removes expired parts.
func (m *Memory) drop(now time.Time) {
	for name, all := range m.parts {
		for of, p := range all {
			if !p.ends.After(now) {
				delete(all, of)
			}
		}
		if len(all) == 0 {
			delete(m.parts, name)
		}
	}
	for name, c := range m.claims {
		if !c.ends.After(now) {
			delete(m.claims, name)
		}
	}
}

// Reported implements Reports.
func (m *Memory) Reported(_ context.Context, name string) (map[string][]byte, error) {
	if err := check(name, "any", maxKeep); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.time()
	all := map[string][]byte{}
	for of, p := range m.parts[name] {
		if p.ends.After(now) {
			all[of] = bytes.Clone(p.text)
		}
	}
	return all, nil
}

// Claim implements Reports.
func (m *Memory) Claim(_ context.Context, name, who string, keep time.Duration) (bool, error) {
	if err := check(name, who, keep); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.time()
	m.drop(now)
	if c, ok := m.claims[name]; ok && c.who != who {
		return false, nil
	}
	if m.claims == nil {
		m.claims = map[string]claim{}
	}
	m.claims[name] = claim{who, now.Add(keep)}
	return true, nil
}

// check returns an error for arguments that no store accepts.
func check(name, part string, keep time.Duration) error {
	ok := len(name) >= 1 && len(name) <= 64
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	switch {
	case !ok:
		return fmt.Errorf("report or claim %.80q: a name must be 1 to 64 of a–z 0–9 _ -", name)
	case len(part) < 1 || len(part) > 200:
		return fmt.Errorf("report or claim %s: the name of a part or claimant has %d bytes: must be 1 to 200", name, len(part))
	case keep <= 0 || keep > maxKeep:
		return fmt.Errorf("report or claim %s: kept for %s: must be more than 0, at most %s", name, keep, maxKeep)
	}
	return nil
}
