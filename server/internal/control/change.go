package server

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
)

// mostRivals is how many changes by others, one after another, a change gives way
// to. Changes are made by people; so many at once are made by a mistake.
const mostRivals = 50

// maxDocument is the size of the largest document, in bytes, as Redis takes it.
const maxDocument = 4 << 20

// changeTimeout bounds how long a change waits for the documents before it is made
// at this instance alone.
const changeTimeout = time.Second

// change is a change of the controls.
type change[T any] struct {
	action, reason string
	edit           editor[T]
}

// commit makes a change, on top of what others change at the same time. Once it
// returns, this instance goes by the change, and the others soon do. Where the store
// does not answer, the change is made at this instance alone, and alone is why; it is
// merged when the store is back.
func commit[T any](s *Server, c *call, ch change[T]) (replaced T, alone, err error) {
	p := &pending{
		ID: newID(), Who: c.who.Name, Action: ch.action, Reason: ch.reason, At: s.clock.now().UTC(), Edit: anyEdit[T]{ch.edit},
	}
	alone, err = s.commit(c.Context(), p, func(now *rules.Controls) ([]string, error) {
		before, ids, err := ch.edit.edit(now)
		if err == nil {
			replaced = before
		}
		return ids, err
	})
	return replaced, alone, err
}

// commit makes the change p, whose edit is first done by edit.
func (s *Server) commit(ctx context.Context, p *pending, edit func(*rules.Controls) ([]string, error)) (alone, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	var refused *callError
	applied := false
	if alone = s.unseen(); alone == nil {
		ctx, cancel := context.WithTimeout(ctx, changeTimeout)
		defer cancel()
		for range mostRivals {
			written, err := s.write(ctx, p, func(now *rules.Controls) ([]string, error) {
				ids, err := edit(now)
				applied = err == nil
				return ids, err
			})
			if written || errors.As(err, &refused) {
				_ = s.save() // which says by itself that it fails
				return nil, err
			}
			if alone = err; err != nil {
				break
			}
		}
		if alone == nil {
			return nil, &callError{status: http.StatusConflict, detail: "Others change so much at the same time that this change found no gap. Nothing was changed."}
		}
	}
	if err = s.changeAlone(p, edit); err == nil {
		return &aloneError{alone, s.save() == nil && s.keeper != nil}, nil
	}
	if applied && errors.As(err, &refused) && refused.status == http.StatusNotFound {
		// What it removes was there a moment ago: its writing went unanswered, but was
		// done, and this instance has seen that by now.
		return nil, nil
	}
	return alone, err
}

// write writes the next version of the controls: what waits to be merged and then p,
// which is nil if there is only what waits. written is false where another instance
// was faster. An error that is no *callError is the store's; then it may have been
// written.
func (s *Server) write(ctx context.Context, p *pending, edit func(*rules.Controls) ([]string, error)) (written bool, err error) {
	// The rules, too: a rule that was pushed just now, elsewhere, can be changed here.
	for _, f := range s.live.followed {
		if err := s.lookAt(ctx, f); err != nil {
			return false, err
		}
	}
	s.live.mu.Lock()
	base, seen, waiting := s.live.base, s.live.controls.seen, slices.Clone(s.live.pending)
	s.live.mu.Unlock()
	controls := seen.controls()
	if !s.shared || s.clock.isKnown() {
		controls.Expire(s.clock.now().Add(-clockSlack), keepLifts)
	}
	before := compact(controls)
	done, rest := seen.split(waiting)
	merged, dropped := mergeInto(controls, rest)
	v := &version{At: seen.after(s.clock.now()), number: seen.number + 1}
	if p != nil {
		if err := tryEdit(base, controls, edit); err != nil {
			return false, err
		}
		merged = append(merged, p)
	}
	for _, m := range merged {
		if err := m.Edit.inStore(ctx, s); err != nil {
			return false, err
		}
	}
	if p == nil && compact(controls) == before {
		// What waited was dropped, or is there: its writing went unanswered.
		s.settle(&seen, nil, len(waiting), append(done, merged...), dropped)
		return true, nil
	}
	v.Author, v.Note, v.Controls = merged.authors(), merged.actions(), controls
	v.apply(&seen, merged)
	if err := v.encode(); err != nil {
		return false, err
	}
	if len(v.data) > maxDocument {
		err := errTooLarge(len(v.data))
		if p == nil {
			s.giveUp(&seen, waiting, err)
		}
		return false, err
	}
	if written, err = s.documents.Write(ctx, controlsDocument, v.number, v.data); !written {
		return false, err
	}
	if p != nil {
		merged = merged[:len(merged)-1]
	}
	s.settle(&seen, v, len(waiting), append(done, merged...), dropped)
	return true, nil
}

func errTooLarge(size int) error {
	return impossible("", "all that is changed at run time would take %d bytes: at most %d; remove what has had its day", size, maxDocument)
}

// tryEdit edits controls, which must work under base.
func tryEdit(base *rules.Set, controls *rules.Controls, edit func(*rules.Controls) ([]string, error)) error {
	ids, err := edit(controls)
	if err != nil {
		return err
	}
	_, problems := base.With(controls)
	for _, p := range problems {
		if slices.Contains(ids, p.ID) {
			return impossible("", "%s", p.Text)
		}
	}
	return nil
}

// clockSlack is for how long what has ended by the clock of the store stays among the
// controls: that clock may be set back, or another server's may count after a failover,
// and then it has not ended yet.
const clockSlack = time.Hour

// note is that of an entry which c's caller makes now, by the time of the fleet.
func (c *call) note(n *adminapi.Term, now time.Time) (rules.Note, error) {
	now = now.UTC()
	note := rules.Note{ID: newID(), Reason: n.Reason, Author: c.who.Name, At: now}
	switch {
	case n.For != "" && n.Until != "":
		return note, impossible("for", "for and until cannot both be given")
	case n.For != "":
		d, err := stint.ParsePeriod(n.For)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return note, impossible("for", "%s", err)
		}
		note.Until = now.Add(d)
	case n.Until != "":
		until, err := time.Parse(time.RFC3339, n.Until)
		if err != nil {
			return note, impossible("until", "%.60q: want a time such as 2030-01-31T15:04:05Z", n.Until)
		}
		if !until.After(now) {
			return note, impossible("until", "%s is past", n.Until)
		}
		if note.Until = until.UTC(); note.Until.Year() > 9999 {
			return note, impossible("until", "%s is after the year 9999", n.Until)
		}
	}
	return note, nil
}

// newID is an entry's. It is short, for people type it; that it is unique among the
// entries of a fleet, a few thousand, is all that is asked of it.
func newID() string { return strings.ToLower(rand.Text()[:10]) }

// take removes the entry with an ID from a list and returns it. what names it.
func take[E any](list *[]E, note func(*E) *rules.Note, what, id string) (e E, err error) {
	i := slices.IndexFunc(*list, func(e E) bool { return note(&e).ID == id })
	if i < 0 {
		return e, notFound("There is no %s with the id %.40q; it may have ended.", what, id)
	}
	e = (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return e, nil
}

func overrideNote(o *rules.Override) *rules.Note { return &o.Note }
func listedNote(l *rules.Listed) *rules.Note     { return &l.Note }
func banNote(b *rules.Ban) *rules.Note           { return &b.Note }
