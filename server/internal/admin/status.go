package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
)

func (s *Server) showStatus(c *call) (int, any, error) {
	now := s.control.Status()
	j := adminapi.Status{
		Program: s.program,
		Started: s.started.UTC(),
		Rules: adminapi.RulesStatus{
			Source: sourceOf(&now), Version: now.Set.Version, Number: now.Number,
			Count: len(now.Set.Rules), Enabled: now.Set.Enabled, Taken: now.Taken.UTC(),
		},
		Controls: adminapi.ControlsStatus{Number: now.Version, Source: string(now.Source), Read: now.Saved, Problems: []adminapi.ControlProblem{}, Pending: []adminapi.PendingChange{}},
		Store:    s.storeStatus(c.Context(), now.Shared),
		Memory:   adminapi.MemoryStatus{Bytes: s.footprint.Memory, From: s.footprint.From, Sum: s.footprint.Sum(), Parts: []adminapi.MemoryPart{}},
		Findings: append([]rules.Finding{}, s.Findings()...),
	}
	for _, p := range s.footprint.Parts {
		j.Memory.Parts = append(j.Memory.Parts, adminapi.MemoryPart{Name: p.Name, Most: p.Most, Bytes: p.Most * p.Each})
	}
	j.Rules.Ordered = (*adminapi.Order)(now.Order)
	if now.Refusal != nil {
		j.Rules.Refused = &adminapi.RefusedRules{At: now.Refusal.At.UTC(), Error: now.Refusal.Err.Error()}
	}
	if now.Unsaved != nil {
		j.Controls.StateError = now.Unsaved.Error()
	}
	for _, p := range now.Pending {
		j.Controls.Pending = append(j.Controls.Pending, adminapi.PendingChange{At: p.At, Who: p.Who, Action: p.Action, Reason: p.Reason})
	}
	for _, p := range now.Problems {
		j.Controls.Problems = append(j.Controls.Problems, adminapi.ControlProblem(p))
	}
	return http.StatusOK, j, nil
}

// storeStatus tells of the store what is known, and asks it where nothing speaks
// against it.
func (s *Server) storeStatus(ctx context.Context, shared bool) adminapi.StoreStatus {
	j := adminapi.StoreStatus{Kind: "memory", Shared: shared, Decides: "store"}
	if s.fleet.IsLayered() {
		// What stands before the rest of its address, in which a password may be.
		scheme, _, isURL := strings.Cut(s.settings.Store, "://")
		if j.Kind = scheme; !isURL {
			j.Kind = fmt.Sprintf("%T", s.limiter.Store) // of a program that serves by itself
		}
	}
	if s.fleet.IsLayered() {
		j.Breaker, j.Instances = s.fleet.State().String(), s.fleet.Live()
		j.Namespace = s.settings.Namespace
	}
	if by, known := s.control.ClockAhead(); known {
		ahead := by.Microseconds()
		j.ClockAhead = &ahead
	}
	if s.remembers() {
		hears := s.fleet.Connected()
		j.Hears = &hears
	}
	err := s.storeError()
	if err == nil && s.fleet.IsLayered() && s.fleet.State() != fleet.PartlyOpen { // what was true a second ago may not be now
		bounded, cancel := context.WithTimeout(ctx, viewTimeout)
		defer cancel()
		err = s.storeDecides(bounded)
	}
	if j.OK = err == nil; err != nil {
		j.Error = err.Error()
		if s.fleet.IsLayered() {
			j.Decides = "on_store_error"
		}
	}
	return j
}
