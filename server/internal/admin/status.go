package admin

import (
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

func (a *API) showStatus(c *call) (int, any, error) {
	now := a.Control.Status()
	j := adminapi.Status{
		Program: a.Program,
		Started: a.Started.UTC(),
		Rules: adminapi.RulesStatus{
			Source: sourceOf(&now), Version: now.Set.Version, Number: now.Number,
			Count: len(now.Set.Rules), Enabled: now.Set.Enabled, Taken: now.Taken.UTC(),
		},
		Controls: adminapi.ControlsStatus{Number: now.Version, Source: string(now.Source), Read: now.Saved, Problems: []adminapi.ControlProblem{}, Pending: []adminapi.PendingChange{}},
		Store:    a.Store(c.Context(), now.Shared),
		Memory:   adminapi.MemoryStatus{Bytes: a.Footprint.Memory, From: a.Footprint.From, Sum: a.Footprint.Sum(), Parts: []adminapi.MemoryPart{}},
		Findings: append([]rules.Finding{}, a.Findings()...),
	}
	for _, p := range a.Footprint.Parts {
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

func (a *API) showSettings(*call) (int, any, error) {
	all := a.Settings()
	j := adminapi.Settings{Settings: make([]adminapi.Setting, len(all))}
	for i, s := range all {
		j.Settings[i] = adminapi.Setting(s)
	}
	return http.StatusOK, j, nil
}
