package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// statusJSON is how this instance is.
type statusJSON struct {
	Program  string             `json:"program"`
	Started  time.Time          `json:"started"`
	Rules    rulesStatusJSON    `json:"rules"`
	Controls controlsStatusJSON `json:"controls"`
	Store    storeStatusJSON    `json:"store"`
	Memory   memoryJSON         `json:"memory"`
	Findings []rules.Finding    `json:"findings"`
}

type rulesStatusJSON struct {
	Source  string       `json:"source"`
	Version string       `json:"version"`
	Number  int64        `json:"number"`
	Count   int          `json:"count"`
	Enabled bool         `json:"enabled"`
	Taken   time.Time    `json:"taken"`
	Refused *refusedJSON `json:"refused,omitempty"`
	// Ordered is the order by which an instance of a fleet takes its file's rules.
	Ordered *orderJSON `json:"ordered,omitempty"`
}

type refusedJSON struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

type controlsStatusJSON struct {
	Number   int64                `json:"number"`
	Problems []controlProblemJSON `json:"problems"`
	// Source is where they come from; see Server.controlsFrom. Read is when those of
	// state_dir were read from the store, and StateError why nothing can be kept there.
	Source     string     `json:"source"`
	Read       *time.Time `json:"read,omitempty"`
	StateError string     `json:"state_error,omitempty"`
	// Pending are the changes that are in force at this instance alone.
	Pending []pendingJSON `json:"pending"`
}

type pendingJSON struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
}

type controlProblemJSON struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

type storeStatusJSON struct {
	Kind   string `json:"kind"`
	OK     bool   `json:"ok"`
	Shared bool   `json:"shared"`
	Error  string `json:"error,omitempty"`
	// Of a store that may fail: see stint.Fallback.
	Breaker   string `json:"breaker,omitempty"`
	Instances int64  `json:"instances,omitempty"`
	// Decides is "store", or "on_store_error" where rules decide without it.
	Decides string `json:"decides"`
	// Hears tells whether what other instances undo is heard; nil: no refusal is to be
	// remembered.
	Hears     *bool  `json:"hears,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ClockAhead is how far this machine's clock is ahead of the store's; nil: the
	// store's was not read.
	ClockAhead *int64 `json:"clock_ahead_us,omitempty"`
}

// memoryJSON is what the instance holds at most.
type memoryJSON struct {
	Bytes int64         `json:"bytes"`
	From  string        `json:"from"`
	Sum   int64         `json:"sum"`
	Parts []holdingJSON `json:"parts"`
}

type holdingJSON struct {
	Name  string `json:"name"`
	Most  int64  `json:"most"`
	Bytes int64  `json:"bytes"`
}

func (s *Server) showStatus(c *call) (int, any, error) {
	now := s.state()
	j := statusJSON{
		Program: s.program,
		Started: s.started.UTC(),
		Rules: rulesStatusJSON{
			Source: now.source(), Version: now.set.Version, Number: now.number,
			Count: len(now.set.Rules), Enabled: now.set.Enabled, Taken: now.taken.UTC(),
		},
		Controls: controlsStatusJSON{Number: now.changed, Source: s.controlsFrom(), Read: s.standIn.Load(), Problems: []controlProblemJSON{}, Pending: []pendingJSON{}},
		Store:    s.storeStatus(c.Context()),
		Memory:   memoryJSON{s.holdings.Memory, s.holdings.From, s.holdings.Sum(), []holdingJSON{}},
		Findings: append([]rules.Finding{}, s.Findings()...),
	}
	for _, p := range s.holdings.Parts {
		j.Memory.Parts = append(j.Memory.Parts, holdingJSON{p.Name, p.Most, p.Most * p.Each})
	}
	j.Rules.Ordered = now.ordered.json()
	if now.refused != nil {
		j.Rules.Refused = &refusedJSON{now.refused.at.UTC(), now.refused.err.Error()}
	}
	if s.keeper != nil {
		if err := s.keeper.failure.Load(); err != nil {
			j.Controls.StateError = (*err).Error()
		}
	}
	for _, p := range now.pending {
		j.Controls.Pending = append(j.Controls.Pending, pendingJSON{p.At, p.Who, p.Action, p.Reason})
	}
	for _, p := range now.problems {
		j.Controls.Problems = append(j.Controls.Problems, controlProblemJSON(p))
	}
	return http.StatusOK, j, nil
}

// storeStatus tells of the store what is known, and asks it where nothing speaks
// against it.
func (s *Server) storeStatus(ctx context.Context) storeStatusJSON {
	j := storeStatusJSON{Kind: "memory", Shared: s.shared, Decides: "store"}
	if _, ok := s.limiter.Store.(*stint.Memory); !ok && s.limiter.Store != nil {
		// What stands before the rest of its address, in which a password may be.
		scheme, _, isURL := strings.Cut(s.settings.Store, "://")
		if j.Kind = scheme; !isURL {
			j.Kind = fmt.Sprintf("%T", s.limiter.Store) // of a program that serves by itself
		}
	}
	if s.fallback != nil {
		j.Breaker, j.Instances = s.fallback.State().String(), s.fallback.Live()
		j.Namespace = s.settings.Namespace
	}
	if s.clock.isKnown() {
		ahead := s.clock.ahead().Microseconds()
		j.ClockAhead = &ahead
	}
	if s.denials != nil {
		hears := s.denials.Hears()
		j.Hears = &hears
	}
	err := s.storeError()
	if err == nil && s.fallback != nil && s.fallback.State() != stint.PartlyOpen { // what was true a second ago may not be now
		bounded, cancel := context.WithTimeout(ctx, viewTimeout)
		defer cancel()
		err = s.storeDecides(bounded)
	}
	if j.OK = err == nil; err != nil {
		j.Error = err.Error()
		if s.fallback != nil {
			j.Decides = "on_store_error"
		}
	}
	return j
}
