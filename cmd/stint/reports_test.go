package main

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// reported is server.Reports in memory, where nothing ends.
type reported struct {
	mu    sync.Mutex
	parts map[string]map[string][]byte
}

func (r *reported) Report(_ context.Context, name, part string, text []byte, _ time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[string]map[string][]byte{}
	}
	if r.parts[name] == nil {
		r.parts[name] = map[string][]byte{}
	}
	r.parts[name][part] = text
	return nil
}

func (r *reported) Reported(_ context.Context, name string) (map[string][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.parts[name]), nil
}

func (r *reported) Claim(context.Context, string, string, time.Duration) (bool, error) {
	return true, nil
}

// The shelf has the reports of the fleet, too.
func (s *shelf) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	if s.away.Load() {
		return errAway
	}
	return s.reports.Report(ctx, name, part, text, keep)
}

func (s *shelf) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if s.away.Load() {
		return nil, errAway
	}
	return s.reports.Reported(ctx, name)
}

func (s *shelf) Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error) {
	if s.away.Load() {
		return false, errAway
	}
	return s.reports.Claim(ctx, name, who, keep)
}

// audited are changes that were made through other instances of the fleet.
func audited(t *testing.T, s *shelf) {
	for _, e := range []adminapi.AuditEntry{
		{ID: "a1", At: noon.Add(-2 * time.Hour), Who: "bob", From: "192.0.2.200:4711", Action: "ban", Reason: "tries \x1b[31m passwords", Before: "", After: `{"id":"b5"}`, Host: "stint-2"},
		{ID: "a2", At: noon.Add(-time.Hour), Who: "ops", From: "192.0.2.201:4712", Action: "switch", Before: `{"enabled":true}`, After: `{"enabled":false}`, Pending: "in force at this instance only", Host: "stint-1"},
		{ID: "a3", At: noon.Add(-time.Minute), Who: "ops", Action: "switch, merged", Host: "stint-1"},
	} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.reports.Report(t.Context(), "audit", e.ID, text, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}
