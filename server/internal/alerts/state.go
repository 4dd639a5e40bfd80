package alerts

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// The states of an alert. While the condition is not known, Unknown is shown instead of any state but firing;
// the state itself stays.
const (
	isOK      = "ok"
	isPending = "pending"
	isFiring  = "firing"
	isUnknown = "unknown"
)

// state is the state of an alert about a condition, as it is kept in the report.
type state struct {
	Is    string    `json:"is"`
	Since time.Time `json:"since"`
	// Unknown means that the condition was not known when it was last evaluated.
	Unknown bool     `json:"unknown,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	// Fired is when the alert last fired, and Resolved when that ended; zero: it has not.
	Fired    time.Time `json:"fired,omitzero"`
	Resolved time.Time `json:"resolved,omitzero"`
	// Past are the last ended firings, the newest first.
	Past []firing `json:"past,omitempty"`
	// Severity and Labels are those with which it fired, for the message about its
	// end, when the rules may no longer have the alert.
	Severity string            `json:"severity,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// firing is from when an alert fired until it no longer did.
type firing struct {
	Fired    time.Time `json:"fired"`
	Resolved time.Time `json:"resolved"`
}

// mostPast is how many firings of an alert are kept.
const mostPast = 5

// step applies an evaluation of a.
func (s *state) step(a *rules.Alert, holds, known bool, now time.Time) {
	if s.Is == "" {
		s.Is, s.Since = isOK, now
	}
	if s.Unknown = !known; s.Unknown {
		return
	}
	if holds && s.Is == isOK {
		s.Is, s.Since = isPending, now
	}
	switch {
	case holds && s.Is == isPending && now.Sub(s.Since) >= a.For:
		s.Is, s.Since = isFiring, now
		s.Fired, s.Resolved = now, time.Time{}
		s.Severity, s.Labels = a.Severity, a.Labels
	case !holds && s.Is != isOK:
		s.end(now)
	}
}

// end makes an alert that is pending or firing ok.
func (s *state) end(now time.Time) {
	if s.Is == isFiring {
		s.Resolved = now
		s.Past = append([]firing{{s.Fired, now}}, s.Past[:min(len(s.Past), mostPast-1)]...)
	}
	s.Is, s.Since = isOK, now
}

// shown is the state for people.
func (s *state) shown() string {
	switch {
	case s == nil || s.Is == "", s.Unknown && s.Is != isFiring:
		return isUnknown
	}
	return s.Is
}

// sent is the last message to a webhook about an alert: that it fired then, and perhaps that this is over.
type sent struct {
	Fired    time.Time `json:"fired"`
	Resolved bool      `json:"resolved,omitempty"`
	At       time.Time `json:"at"`
}

// due reports whether to send a webhook something about s; last was sent before. again is after how long a
// firing alert is sent again; 0: never.
func (s *state) due(last sent, again time.Duration, now time.Time) bool {
	firing := s.Resolved.IsZero()
	switch {
	case s.Fired.IsZero():
		return false
	case !last.Fired.Equal(s.Fired):
		return true
	case !firing:
		return !last.Resolved
	}
	return again > 0 && now.Sub(last.At) >= again
}
