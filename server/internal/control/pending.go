package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
)

// pending is a change of the controls that is in force at this instance and that the
// store has not got yet. It is an edit and not a whole document, so that it goes on
// top of what others have changed meanwhile: of two changes of one entry at two
// instances, the one that is merged later wins.
//
// Where the settings have a StateDir they are kept there, too; else an instance that
// ends before its store is back takes them with it.
type pending struct {
	// ID goes with the change into version.Applied, by which a change whose writing went
	// unanswered is known again, so that it is not made twice.
	ID                  string
	Who, Action, Reason string
	At                  time.Time
	Edit                edit
}

// keptPending is a pending in a file.
type keptPending struct {
	ID, Who, Action, Reason string
	At                      time.Time
	Kind                    string // one of editKinds
	Edit                    json.RawMessage
}

// MarshalJSON is p as UnmarshalJSON reads it.
func (p *pending) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(p.Edit.data())
	if err != nil {
		return nil, err
	}
	return json.Marshal(keptPending{p.ID, p.Who, p.Action, p.Reason, p.At, p.Edit.kind(), text})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *pending) UnmarshalJSON(text []byte) error {
	var k keptPending
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	*p = pending{ID: k.ID, Who: k.Who, Action: k.Action, Reason: k.Reason, At: k.At}
	read := editKinds[k.Kind]
	if read == nil {
		return fmt.Errorf("unknown kind of change %.40q", k.Kind)
	}
	var err error
	p.Edit, err = read(k.Edit)
	return err
}

// pendings are changes, the oldest first.
type pendings []*pending

// maxPending is how many changes wait for the store at most.
const maxPending = 1000

// authors are who made the changes, each once.
func (all pendings) authors() string {
	return all.each(func(p *pending) string { return p.Who })
}

// actions are what the changes did, each once.
func (all pendings) actions() string {
	return all.each(func(p *pending) string { return p.Action })
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
		if _, err := p.Edit.apply(controls); err != nil {
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

// split parts the changes that v, or a version before it, has already from the others.
func (v *version) split(waiting pendings) (done, rest pendings) {
	for _, p := range waiting {
		if slices.Contains(v.Applied, p.ID) {
			done = append(done, p)
		} else {
			rest = append(rest, p)
		}
	}
	return done, rest
}

// apply notes that v was made by all, on top of before.
func (v *version) apply(before *version, all pendings) {
	v.Applied = slices.Clone(before.Applied)
	for _, p := range all {
		v.Applied = append(v.Applied, p.ID)
	}
	if old := len(v.Applied) - maxPending; old > 0 {
		v.Applied = v.Applied[old:]
	}
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

// aloneError is why a change is in force at this instance alone.
type aloneError struct {
	error
	kept bool // it outlives this process
}

// reach says where a change is in force: alone is why at this instance alone, nil if it
// is not.
func reach(alone error) adminapi.Reach {
	if alone == nil {
		return adminapi.Reach{}
	}
	text := "in force at this instance alone, for the store does not answer: " + alone.Error() + "; it is merged when the store is back, and "
	var is *aloneError
	if errors.As(alone, &is) && is.kept {
		return adminapi.Reach{Pending: text + "kept in state_dir if this instance ends before"}
	}
	return adminapi.Reach{Pending: text + "lost if this instance ends before"}
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
