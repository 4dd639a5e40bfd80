package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// ConflictError means that rules were not pushed because the version that they should follow is not the
// newest.
type ConflictError struct {
	After  int64    // the version that they should follow
	Newest *Version // nil: there is none
}

func (e *ConflictError) Error() string {
	if e.Newest == nil {
		return fmt.Sprintf("There is no version %d: nothing was pushed yet. Push after 0.", e.After)
	}
	return fmt.Sprintf("The newest version is %d, pushed by %s at %s, not %d. Nothing was changed.",
		e.Newest.Number, e.Newest.Author, e.Newest.At.Format(time.RFC3339), e.After)
}

// ErrUnknown is wrapped by the error of a push that the store did not answer.
var ErrUnknown = errors.New("it is unknown whether the rules were pushed")

// Parse compiles rules that will be or were pushed, for this instance.
func (c *Control) Parse(ctx context.Context, text string) (*rules.Set, error) {
	set, err := rules.ParseContext(ctx, []rules.File{{Name: "rules", Data: []byte(text)}})
	if err != nil {
		return nil, err
	}
	return set.On(c.instance)
}

// PushRules makes v the fleet's next version after the version after, and puts it in force here. v has
// Author, Note and Text, and the text was parsed. An error is a *ConflictError, a *RefusedError, or the
// store's, which may wrap ErrUnknown.
func (c *Control) PushRules(ctx context.Context, v Version, after int64) (*Version, error) {
	if why := c.Unread(); why != nil {
		return nil, why
	}
	if err := c.lookAt(ctx, &c.rulesDoc); err != nil {
		return nil, err
	}
	c.mu.Lock()
	v.At, v.Number = c.rulesDoc.seen.after(c.clock.now()), after+1
	c.mu.Unlock()
	if err := v.encode(); err != nil {
		return nil, err
	}
	if len(v.data) > maxDocument {
		return nil, refusedFor(Invalid, "with its escapes in JSON it takes %d bytes: at most %d", len(v.data), maxDocument)
	}
	written, err := c.documents.Write(ctx, rulesDocument, v.Number, v.data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if !written {
		number, _, err := c.documents.Newest(ctx, rulesDocument)
		if err != nil {
			return nil, err
		}
		conflict := &ConflictError{After: after}
		if number > 0 {
			if conflict.Newest, err = c.readVersion(ctx, rulesDocument, number); err != nil {
				return nil, err
			}
		}
		return nil, conflict
	}
	_ = c.lookAt(ctx, &c.rulesDoc) // if it fails, the next read sees it
	return &v, nil
}

// RulesVersion is a version of the pushed rules; nil: there is none, or it is no longer
// kept. An error is the store's.
func (c *Control) RulesVersion(ctx context.Context, number int64) (*Version, error) {
	if why := c.Unread(); why != nil {
		return nil, why
	}
	return c.readVersion(ctx, rulesDocument, number)
}

// RulesVersions returns the newest versions of the pushed rules, the newest first, no more than most. An
// error is the store's.
func (c *Control) RulesVersions(ctx context.Context, most int) (all []*Version, err error) {
	if why := c.Unread(); why != nil {
		return nil, why
	}
	newest, _, err := c.documents.Newest(ctx, rulesDocument)
	if err != nil {
		return nil, err
	}
	for n := newest; n > 0 && n > newest-int64(most); n-- {
		v, err := c.readVersion(ctx, rulesDocument, n)
		if err != nil {
			return nil, err
		}
		if v == nil {
			break // older ones are no longer kept either
		}
		all = append(all, v)
	}
	return all, nil
}
