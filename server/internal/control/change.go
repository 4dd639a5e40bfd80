package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/server/rules"
)

const (
	// maxRivals is to how many concurrent changes by others a change gives way. People make changes; so many
	// at once are a mistake.
	maxRivals = 50
	// changeTimeout bounds how long a change waits for the documents before it is made at this
	// instance alone.
	changeTimeout = time.Second
	// expireSlack is how long an entry that has ended by the store's clock stays among the controls. That
	// clock may be set back, or be another server's after a failover, and then the entry has not ended yet.
	expireSlack = time.Hour
	// keepLifts is how long lifts stay among the controls: long enough for an instance that was
	// disconnected to see them when it is back.
	keepLifts = time.Hour
)

// Done is the result of a change.
type Done struct {
	// Replaced has the entries that the change replaced or removed.
	Replaced rules.Controls
	// Alone is the reason if the change is in force at this instance alone; nil: it is written,
	// and the other instances take it over soon.
	Alone *AloneError
}

// AloneError is why a change is in force at this instance alone.
type AloneError struct {
	error
	saved bool // it survives the end of this process
}

// Text is e for the caller who made the change; empty where e is nil.
func (e *AloneError) Text() string {
	if e == nil {
		return ""
	}
	text := "in force at this instance only, because the store does not answer: " + e.Error() + "; it is merged when the store is back, and "
	if e.saved {
		return text + "kept in state_dir if this instance ends before"
	}
	return text + "lost if this instance ends before"
}

// Reason is a kind of RefusedError.
type Reason int

// The reasons.
const (
	NotFound Reason = iota + 1 // the entry to change does not exist
	Invalid                    // the change is not valid
	Rivals                     // others make too many changes at the same time
	Full                       // too many changes wait for the store
)

// RefusedError is why a change was not made. The store is not to blame.
type RefusedError struct {
	Reason Reason
	Text   string
}

func (e *RefusedError) Error() string { return e.Text }

func refusedFor(why Reason, format string, args ...any) error {
	return &RefusedError{why, fmt.Sprintf(format, args...)}
}

func errTooLarge(size int) error {
	return refusedFor(Invalid, "all that is changed at run time would take %d bytes: at most %d; remove what has had its day", size, maxDocument)
}

// NewID is the ID of an entry. It is short, because people type it. It must be unique only
// among the entries of a fleet, a few thousand.
func NewID() string { return strings.ToLower(rand.Text()[:10]) }

// attempt is a change while it is made.
type attempt struct {
	*Change
	replaced rules.Controls // by the last edit that succeeded
	edited   bool           // one did
}

// edit edits controls, which must be valid over base.
func (a *attempt) edit(base *rules.Set, controls *rules.Controls) error {
	replaced, ids, err := a.Edit.apply(controls)
	if err != nil {
		return err
	}
	a.replaced, a.edited = replaced, true
	_, problems := base.With(controls)
	for _, p := range problems {
		if slices.Contains(ids, p.ID) {
			return refusedFor(Invalid, "%s", p.Text)
		}
	}
	return nil
}

// Change makes a change, with Who, Action, Reason and Edit given, on top of concurrent changes by others.
// When it returns, the change is in force at this instance, and soon at the others. If the store does not
// answer within a second, or is known not to answer, the change is made at this instance alone, and is merged
// when the store is back. An error is a *RefusedError, or the store's; then nothing was changed here.
func (c *Control) Change(ctx context.Context, ch Change) (Done, error) {
	ch.ID, ch.At = NewID(), c.clock.now().UTC()
	a := &attempt{Change: &ch}
	c.changing.Lock()
	defer c.changing.Unlock()
	why := c.Unread()
	if why == nil {
		var written bool
		var refused *RefusedError
		written, why = c.writeOrGiveWay(ctx, a)
		if written || errors.As(why, &refused) {
			_ = c.save() // save reports its failure itself
			return Done{Replaced: a.replaced}, why
		}
	}
	wasEdited := a.edited
	err := c.changeAlone(a)
	if err == nil {
		return Done{a.replaced, &AloneError{why, c.save() == nil && c.state != nil}}, nil
	}
	var refused *RefusedError
	if wasEdited && errors.As(err, &refused) && refused.Reason == NotFound {
		// The entry to remove was there a moment ago: the write went unanswered but succeeded,
		// and this instance has seen it by now.
		return Done{Replaced: a.replaced}, nil
	}
	return Done{}, err
}

// writeOrGiveWay writes a and the pending changes on top of concurrent changes by others. a is nil if there
// are only pending changes. An error is as of write, or Rivals.
func (c *Control) writeOrGiveWay(ctx context.Context, a *attempt) (written bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for range maxRivals {
		if written, err = c.write(ctx, a); written || err != nil {
			return written, err
		}
	}
	return false, refusedFor(Rivals, "Too many others made changes at the same time. Nothing was changed.")
}

// changeAlone makes a change at this instance, to be merged when the store is back.
func (c *Control) changeAlone(a *attempt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= maxPending {
		return refusedFor(Full, "The store does not answer, and %d changes already wait for it. Nothing was changed.", maxPending)
	}
	controls := c.controls.Clone()
	if err := a.edit(c.base, controls); err != nil {
		return err
	}
	v := Version{Controls: controls}
	if err := v.encode(); err != nil {
		return err
	}
	if len(v.data) > maxDocument {
		return errTooLarge(len(v.data))
	}
	c.pending = append(c.pending, a.Change)
	c.enforce(controls)
	return nil
}

// merge writes the pending changes, if there are any. The documents can be read.
func (c *Control) merge(ctx context.Context) error {
	c.mu.Lock()
	n := len(c.pending)
	c.mu.Unlock()
	if n == 0 {
		return nil
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	_, err := c.writeOrGiveWay(ctx, nil)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Reason == Rivals {
		return nil // the next look tries again
	}
	return err
}

// draft is the next version of the controls while it is made.
type draft struct {
	base     *rules.Set
	seen     Version         // the version that it follows
	controls *rules.Controls // of seen, with the pending changes merged
	same     string          // controls before that, as JSON
	waiting  changes         // all that were pending
	merged   changes         // of those, merged into the controls
	written  changes         // of those, in seen already
	dropped  []droppedChange // of those, no longer applicable
}

// draft begins a version that follows the last one seen.
func (c *Control) draft() *draft {
	c.mu.Lock()
	d := &draft{base: c.base, seen: c.controlsDoc.seen, waiting: slices.Clone(c.pending)}
	c.mu.Unlock()
	d.controls = d.seen.controls()
	if !c.shared || c.clock.isKnown() {
		d.controls.Expire(c.clock.now().Add(-expireSlack), keepLifts)
	}
	d.same = asJSON(d.controls)
	var rest changes
	d.written, rest = d.seen.split(d.waiting)
	d.merged, d.dropped = rest.mergeInto(d.controls)
	return d
}

// write writes the next version of the controls: the pending changes and then a, which is nil
// if there are only pending ones. written is false if another instance was faster. An error
// that is not a *RefusedError is the store's; then the version may have been written.
// c.changing is held.
func (c *Control) write(ctx context.Context, a *attempt) (written bool, err error) {
	// Look at the rules, too: a rule that was pushed just now, elsewhere, can be changed here.
	for _, d := range c.followed {
		if err := c.lookAt(ctx, d); err != nil {
			return false, err
		}
	}
	d := c.draft()
	all := d.merged
	if a != nil {
		if err := a.edit(d.base, d.controls); err != nil {
			return false, err
		}
		all = append(slices.Clip(all), a.Change)
	}
	for _, p := range all {
		if err := c.pardon(ctx, p.Edit); err != nil {
			return false, err
		}
	}
	if a == nil && asJSON(d.controls) == d.same {
		c.settle(d, nil) // the pending changes were dropped, or were written although the write went unanswered
		return true, nil
	}
	v := &Version{Number: d.seen.Number + 1, At: d.seen.after(c.clock.now()), Author: all.authors(), Note: all.actions(), Controls: d.controls}
	v.apply(&d.seen, all)
	if err := v.encode(); err != nil {
		return false, err
	}
	if len(v.data) > maxDocument {
		err := errTooLarge(len(v.data))
		if a == nil {
			c.giveUp(d, err)
		}
		return false, err
	}
	if written, err = c.documents.Write(ctx, controlsDocument, v.Number, v.data); written {
		c.settle(d, v)
	}
	return written, err
}

// pardon applies the part of an edit that concerns the store and not the controls.
func (c *Control) pardon(ctx context.Context, e Edit) error {
	lift, ok := e.(LiftBans)
	if !ok {
		return nil
	}
	p := penaltyOf(c.Current(), lift.Target.Rule)
	if p == nil { // the store has nothing for a rule that is gone
		return nil
	}
	return c.hooks.Pardon(ctx, string(lift.Target.Key), p)
}

// giveUp drops all pending changes. c.changing is held.
func (c *Control) giveUp(d *draft, why error) {
	d.merged, d.written, d.dropped = nil, nil, nil
	for _, p := range d.waiting {
		d.dropped = append(d.dropped, droppedChange{p, why})
	}
	c.settle(d, nil)
}

// settle removes d's changes from the pending ones: they were merged into v, or dropped. v is
// nil if nothing had to be written. c.changing is held.
func (c *Control) settle(d *draft, v *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = slices.Delete(c.pending, 0, len(d.waiting))
	doc := &c.controlsDoc
	if v != nil && doc.seen.is(&d.seen) { // else a version that follows v has been seen already
		doc.seen = *v
	}
	c.takeControls(&doc.seen)
	for _, p := range slices.Concat(d.written, d.merged) {
		c.hooks.Audit(slog.LevelInfo, "audit: merged", p, "number", doc.seen.Number)
	}
	for _, p := range d.dropped {
		c.hooks.Audit(slog.LevelWarn, "audit: not merged, because it no longer applies", p.Change, "error", p.why)
	}
}

// asJSON encodes v for a comparison.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
