package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/rules"
)

// pending is a change of the controls that is in force at this instance and that the
// store has not got yet. It is an edit and not a whole document, so that it goes on
// top of what others have changed meanwhile: of two changes of one entry at two
// instances, the one that is merged later wins.
//
// They are kept in memory alone: an instance that ends before its store is back takes
// them with it.
type pending struct {
	who, action, reason string
	at                  time.Time
	edit                func(*rules.Controls) (ids []string, err error)
	store               func(context.Context) error // nil: nothing; see change
}

// pendings are changes, the oldest first.
type pendings []*pending

// maxPending is how many changes wait for the store at most.
const maxPending = 1000

// authors are who made the changes, each once.
func (all pendings) authors() string {
	return all.each(func(p *pending) string { return p.who })
}

// actions are what the changes did, each once.
func (all pendings) actions() string {
	return all.each(func(p *pending) string { return p.action })
}

func (all pendings) each(text func(*pending) string) string {
	var texts []string
	for _, p := range all {
		if t := text(p); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, ", ")
}

// droppedEdit is a change that does not apply any more, and why.
type droppedEdit struct {
	*pending
	why error
}

// mergeInto makes the changes that wait to controls, as far as they still apply.
func mergeInto(controls *rules.Controls, waiting []*pending) (merged pendings, dropped []droppedEdit) {
	for _, p := range waiting {
		before := controls.Clone()
		if _, err := p.edit(controls); err != nil {
			*controls = *before
			dropped = append(dropped, droppedEdit{p, err})
			continue
		}
		merged = append(merged, p)
	}
	return merged, dropped
}

// unseen is why what the fleet shares could not be seen when this instance looked
// last; nil: it could, or nobody has looked.
func (s *Server) unseen() error {
	if why := s.syncError.Load(); why != nil {
		return *why
	}
	return nil
}

// changeAlone makes a change at this instance, to be merged when the store is back.
func (s *Server) changeAlone(p *pending, edit func(*rules.Controls) ([]string, error)) error {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if len(s.live.pending) >= maxPending {
		return &callError{status: http.StatusServiceUnavailable, detail: fmt.Sprintf(
			"The store does not answer, and %d changes wait for it already. Nothing was changed.", maxPending)}
	}
	controls := s.live.now.Clone()
	if err := tryEdit(s.live.base, controls, edit); err != nil {
		return err
	}
	v := version{Controls: controls}
	if err := v.encode(); err != nil {
		return err
	}
	if len(v.data) > maxDocument {
		return errTooLarge(len(v.data))
	}
	s.live.pending = append(s.live.pending, p)
	s.enforce(controls)
	return nil
}

// merge writes what waits, if anything does. The documents answer.
func (s *Server) merge(ctx context.Context) error {
	s.live.mu.Lock()
	n := len(s.live.pending)
	s.live.mu.Unlock()
	if n == 0 {
		return nil
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	for range mostRivals {
		if written, err := s.write(ctx, nil, nil); written || err != nil {
			return err
		}
	}
	return nil // others change so much; the next look tries again
}

// giveUp drops the changes that wait. s.changing is held.
func (s *Server) giveUp(seen *version, waiting []*pending, why error) {
	var dropped []droppedEdit
	for _, p := range waiting {
		dropped = append(dropped, droppedEdit{p, why})
	}
	s.settle(seen, nil, len(waiting), nil, dropped)
}

// alonePrefix and aloneSuffix say, around the reason, where a change is in force.
const (
	alonePrefix = "in force at this instance alone, for the store does not answer: "
	aloneSuffix = "; it is merged when the store is back, and lost if this instance ends before"
)

// aloneText says why a change is in force at this instance alone; empty: it is not.
func aloneText(alone error) string {
	if alone == nil {
		return ""
	}
	return alonePrefix + alone.Error() + aloneSuffix
}

// settle ends the waiting of the first n changes: they were merged into v, which
// follows seen, or dropped. v is nil where nothing had to be written. s.changing is
// held.
func (s *Server) settle(seen, v *version, n int, merged pendings, dropped []droppedEdit) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.live.pending = slices.Delete(s.live.pending, 0, n)
	f := &s.live.controls
	if v != nil && f.seen.is(seen) { // else a version that is made on v has been seen already
		f.seen = *v
	}
	s.takeControls(&f.seen)
	for _, p := range merged {
		s.auditMerged("audit: merged", p, "number", f.seen.number)
	}
	for _, d := range dropped {
		s.auditMerged("audit: not merged, for it does not apply any more", d.pending, "error", d.why)
	}
}
