package control

import (
	"context"
	"fmt"
	"time"
)

const (
	// followEvery is how often an instance checks for changes that it missed.
	followEvery = 500 * time.Millisecond
	// followTimeout bounds one read of the documents.
	followTimeout = time.Second
)

// Follow reads the fleet's documents once before it returns, if the store answers within a second, and then
// in the background until ctx is done. Call it once.
func (c *Control) Follow(ctx context.Context) {
	if !c.shared {
		return // changes are made here, and are in force at once
	}
	c.look(ctx)
	missed := !c.read.Load() && ctx.Err() == nil
	if missed {
		c.logMissed()
	}
	if to, ok := c.documents.(Announcer); ok {
		go c.rollout.follow(ctx, to)
	}
	hints := make(chan struct{}, 1)
	go c.documents.Watch(ctx, func() {
		select {
		case hints <- struct{}{}:
		default: // one is waiting already
		}
	})
	go c.lookOn(ctx, hints, missed && c.saved.Load() != nil)
}

// lookOn reads the documents every followEvery, and at each hint, until ctx is done. savedUsed
// reports whether the saved documents are in force until the first read.
func (c *Control) lookOn(ctx context.Context, hints <-chan struct{}, savedUsed bool) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-hints:
		}
		c.look(ctx)
		if savedUsed && c.read.Load() {
			savedUsed = false
			c.log.Info("the fleet's documents were read; the saved ones are no longer used")
		}
	}
}

// logMissed logs, after a failed first read, what this instance uses instead.
func (c *Control) logMissed() {
	if at := c.saved.Load(); at != nil {
		c.log.Warn("the fleet's documents cannot be read yet; the saved ones are in force: bans, lists, overrides, switches and pushed rules", "read", at.UTC())
		return
	}
	c.log.Warn("the fleet's documents cannot be read yet, and none are saved here: bans, lists, overrides, switches and pushed rules are not in force at this instance until they can")
}

// look adopts changes, and merges and saves pending ones. If it cannot read the documents, nothing changes.
func (c *Control) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	err := c.lookAtAll(bounded)
	if err == nil {
		c.sawDocuments()
		err = c.merge(bounded)
	}
	_ = c.save() // save reports its failure itself
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		c.readErr.Store(nil)
		return
	}
	c.readErr.Store(&err)
	c.hooks.Unread(err)
}

// lookAtAll reads the clock and each document, even if one of them fails. Nearly always all
// errors have the same cause, so the first is enough.
func (c *Control) lookAtAll(ctx context.Context) error {
	clock := c.lookAtClock(ctx)
	var err error
	for _, d := range c.followed {
		if e := c.lookAt(ctx, d); e != nil && err == nil {
			err = fmt.Errorf("%s: %w", d.name, e)
		}
	}
	if err != nil {
		return err
	}
	return clock
}

// lookAtClock reads the clock of the store, if that is due.
func (c *Control) lookAtClock(ctx context.Context) error {
	moved, err := c.clock.look(ctx, c.documents)
	if err != nil {
		return err
	}
	if moved < -clockStep {
		c.mu.Lock()
		c.install() // entries that seemed to have ended were left out
		c.mu.Unlock()
	}
	if ahead, apart := c.clock.newlyApart(); apart {
		c.log.Warn("clock skew against the store; bans and overrides expire by the store's clock, tokens and log lines use this machine's",
			"ahead", ahead.Round(time.Millisecond).String())
	}
	return nil
}

// sawDocuments records that the documents were read from the store.
func (c *Control) sawDocuments() {
	c.read.Store(true)
	c.saved.Store(nil)
	if c.state != nil {
		c.state.sawDocuments(c.clock.now())
	}
}

// Unread returns why the last read of the documents failed; nil: it did not fail, or there was none.
func (c *Control) Unread() error {
	if why := c.readErr.Load(); why != nil {
		return *why
	}
	return nil
}

// lookAt adopts the newest version of a document. If the store has lost versions that this instance has seen,
// in a failover or because it was emptied, the version that was made last wins, in the store or here: a kill
// switch or a ban must not end because a server was restarted. Version numbers do not show which that is,
// because lost numbers are used again. The times of versions do, because each is later than the one before.
func (c *Control) lookAt(ctx context.Context, d *document) error {
	newest, digest, err := c.documents.Newest(ctx, d.name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	seen, old := d.seen, c.isOld(d.savedAt)
	same := newest == seen.Number && digest == seen.digest
	if same {
		d.savedAt = time.Time{}
	}
	c.mu.Unlock()
	if same {
		return nil
	}
	v := &Version{}
	if newest > 0 {
		if v, err = c.readVersion(ctx, d.name, newest); err != nil {
			return err
		}
		if v == nil {
			return fmt.Errorf("version %d is gone", newest)
		}
	}
	if !old && v.At.Before(seen.At) {
		return c.restore(ctx, d, seen, newest+1)
	}
	if !old && newest <= seen.Number && digest != seen.digest {
		// An instance that had not seen them made a change before those that had
		// could restore them.
		c.log.Warn("the store lost documents of the fleet, which have changed since: check what is missing",
			"document", d.name, "lost", seen.Number, "number", newest)
	}
	c.takeVersion(d, &seen, v)
	return nil
}

// readVersion reads a version of a document; nil: it is not kept.
func (c *Control) readVersion(ctx context.Context, name string, number int64) (*Version, error) {
	data, err := c.documents.Read(ctx, name, number)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", number, err)
	}
	if data == nil {
		return nil, nil
	}
	return parseVersion(number, data)
}

// restore writes lost versions again.
func (c *Control) restore(ctx context.Context, d *document, lost Version, number int64) error {
	written, err := c.documents.Write(ctx, d.name, number, lost.data)
	if err != nil || !written {
		return err // not written: another instance was first, and the next read sees it
	}
	c.log.Warn("the store lost documents of the fleet; restored", "document", d.name, "lost", lost.Number, "number", number)
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.seen.is(&lost) {
		d.seen.Number, d.savedAt = number, time.Time{}
	}
	return nil
}

// takeVersion puts a version in force that follows the one seen before. If another version was
// put in force meanwhile, it does nothing: that one was read later, or the next read gets a
// newer one.
func (c *Control) takeVersion(d *document, before, v *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.seen.is(before) {
		d.seen, d.savedAt = *v, time.Time{}
		d.take(v)
	}
}

// takeControls puts controls in force, with the pending changes on top. c.mu is held.
func (c *Control) takeControls(v *Version) {
	controls := v.controls()
	_, waiting := v.split(c.pending)
	_, _ = waiting.mergeInto(controls) // changes that no longer apply are dropped when merged
	c.enforce(controls)
	c.log.Info("new controls are in force", "number", v.Number)
}

// takePushed puts pushed rules in force, or records why not. c.mu is held.
func (c *Control) takePushed(v *Version) {
	if c.order != nil {
		return
	}
	if v.Number == 0 { // there are none, and the saved ones are too old
		c.takeBase(c.file, 0)
		c.log.Info("the fleet has no rules; the file's are in force", "version", c.file.Version)
		return
	}
	set, err := c.Parse(context.Background(), v.Text)
	if err != nil {
		c.refuse(err)
		c.log.Error("the fleet's rules were not taken; the previous ones stay in force", "number", v.Number, "error", err)
		return
	}
	c.takeBase(set, v.Number)
	c.hooks.Reloaded(nil)
	c.log.Info("new rules of the fleet are in force", "number", v.Number, "version", set.Version, "count", len(set.Rules))
}
