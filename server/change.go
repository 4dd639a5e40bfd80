package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// mostRivals is how many changes by others, one after another, a change gives way
// to. Changes are made by people; so many at once are made by a mistake.
const mostRivals = 50

// maxDocument is the size of the largest document, in bytes, as Redis takes it.
const maxDocument = 4 << 20

// change edits the controls of the fleet, on top of what others change at the same
// time: all of the edit, or nothing. edit may be called several times, each time
// with a copy of the newest controls; it returns the IDs of what it changed, which
// must not be a problem under the rules of now. Once change returns, this instance
// goes by the change, and the others soon do.
func (s *Server) change(c *call, action string, edit func(*rules.Controls) (ids []string, err error)) error {
	for range mostRivals {
		written, err := s.tryChange(c, action, edit)
		if written || err != nil {
			return err
		}
	}
	return &callError{status: http.StatusConflict, detail: "Others change so much at the same time that this change found no gap. Nothing was changed."}
}

func (s *Server) tryChange(c *call, action string, edit func(*rules.Controls) ([]string, error)) (written bool, err error) {
	// The rules, too: a rule that was pushed just now, elsewhere, can be changed here.
	for _, f := range s.live.followed {
		if err := s.lookAt(c.Context(), f); err != nil {
			return false, unavailable(err)
		}
	}
	s.live.mu.Lock()
	base, controls, seen := s.live.base, s.live.now.Clone(), s.live.controls.seen
	s.live.mu.Unlock()
	controls.Expire(time.Now().Add(-clockSlack), keepLifts)
	ids, err := edit(controls)
	if err != nil {
		return false, err
	}
	_, problems := base.With(controls)
	for _, p := range problems {
		if slices.Contains(ids, p.ID) {
			return false, impossible("", "%s", p.Text)
		}
	}
	v := &version{Author: c.who.Name, Note: action, At: seen.after(), Controls: controls, number: seen.number + 1}
	if err := v.encode(); err != nil {
		return false, err
	}
	if len(v.data) > maxDocument {
		return false, impossible("", "all that is changed at run time would take %d bytes: at most %d; remove what has had its day", len(v.data), maxDocument)
	}
	if written, err = s.documents.Write(c.Context(), controlsDocument, v.number, v.data); err != nil {
		s.auditUnknown(c, action, "", err)
		return false, unavailable(fmt.Errorf("whether the change was made is not known: %w", err))
	}
	if written {
		s.takeVersion(&s.live.controls, &seen, v)
	}
	return written, nil
}

// clockSlack is for how long what has ended stays among the controls: by a clock that
// is behind this one it has not ended yet, and must not end because another
// instance made a change.
const clockSlack = time.Hour

// noteInput is what a caller says of an entry.
type noteInput struct {
	spell, until, reason string
}

func (n *noteInput) fields() []field {
	return []field{textField("for", &n.spell), textField("until", &n.until), reasonField("reason", &n.reason)}
}

// note is the entry's own, made now by c's caller.
func (n *noteInput) note(c *call) (rules.Note, error) {
	now := time.Now().UTC()
	note := rules.Note{ID: newID(), Reason: n.reason, Author: c.who.Name, At: now}
	switch {
	case n.spell != "" && n.until != "":
		return note, impossible("for", "for and until cannot both be given")
	case n.spell != "":
		d, err := stint.ParsePeriod(n.spell)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return note, impossible("for", "%s", err)
		}
		note.Until = now.Add(d)
	case n.until != "":
		until, err := time.Parse(time.RFC3339, n.until)
		if err != nil {
			return note, impossible("until", "%.60q: want a time such as 2030-01-31T15:04:05Z", n.until)
		}
		if !until.After(now) {
			return note, impossible("until", "%s is past", n.until)
		}
		if note.Until = until.UTC(); note.Until.Year() > 9999 {
			return note, impossible("until", "%s is after the year 9999", n.until)
		}
	}
	return note, nil
}

// newID is an entry's. It is short, for people type it; that it is unique among the
// entries of a fleet, a few thousand, is all that is asked of it.
func newID() string { return strings.ToLower(rand.Text()[:10]) }

// take removes the entry with an ID from a list and returns it.
func take[E any](list *[]E, note func(*E) *rules.Note, id string) (E, bool) {
	i := slices.IndexFunc(*list, func(e E) bool { return note(&e).ID == id })
	if i < 0 {
		var none E
		return none, false
	}
	e := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return e, true
}

func noEntry(what, id string) error {
	return notFound("There is no %s with the id %.40q; it may have ended.", what, id)
}

func overrideNote(o *rules.Override) *rules.Note { return &o.Note }
func listedNote(l *rules.Listed) *rules.Note     { return &l.Note }
func banNote(b *rules.Ban) *rules.Note           { return &b.Note }
