// Package reports is how the instances of a fleet tell each other what they have seen:
// counts, offenders, alerts. What is reported ends by itself.
package reports

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Reports stores reports. A report has a name and parts, which instances write and all read.
// It may be used from many goroutines at once. Losing a report must do no harm: stores may
// be flushed.
type Reports interface {
	// Report writes a part of a report, in place of the part before. It ends after keep, by
	// the store's clock. A report has at most MaxParts parts: if there are more, those that
	// end first are dropped. text has at most MaxText bytes.
	Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error
	// Reported returns the parts of a report that have not ended, by their names.
	Reported(ctx context.Context, name string) (map[string][]byte, error)
	// Claim claims a name for keep, and reports whether who has it now: because it was free,
	// or because who had it already, whose claim it extends. So of many callers that claim
	// one name, one gets true.
	Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error)
}

const (
	// MaxParts is how many parts a report has at most.
	MaxParts = 1000
	// MaxText is the length of the longest part, in bytes.
	MaxText = 256 << 10
)

// Memory keeps the reports of a single instance. The zero Memory is empty.
type Memory struct {
	mu     sync.Mutex
	parts  map[string]map[string]part // by name of the report, and of the part
	claims map[string]claim
}

type part struct {
	text []byte
	ends time.Time
}

type claim struct {
	who  string
	ends time.Time
}

// Report implements Reports.
func (m *Memory) Report(_ context.Context, name, of string, text []byte, keep time.Duration) error {
	if len(text) > MaxText {
		return fmt.Errorf("report %s: a part of %d bytes: at most %d", name, len(text), MaxText)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
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
			if first == "" || p.ends.Before(all[first].ends) {
				first = name
			}
		}
		delete(all, first)
	}
	return nil
}

// drop removes what has ended.
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
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	all := map[string][]byte{}
	for of, p := range m.parts[name] {
		if p.ends.After(now) {
			all[of] = slices.Clone(p.text)
		}
	}
	return all, nil
}

// Claim implements Reports.
func (m *Memory) Claim(_ context.Context, name, who string, keep time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
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
