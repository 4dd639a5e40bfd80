// Package control holds the current set of an instance: its rules, with the controls on top of
// them that operators change at run time. It reads both from the documents that the fleet
// shares, writes changes to them, keeps changes that the store does not have yet, and saves the
// state for the next start.
//
// Control does all of this. Requests do not use it: Hooks.Installed passes each new set to the
// code that decides requests.
package control

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Options are the parts of a Control. All fields are required unless their comment says
// otherwise.
type Options struct {
	// File is the set of the rules file.
	File *rules.Set
	// Instance has this instance's values for expressions. New sets its Now.
	Instance *rules.Instance
	// Documents are the fleet's. nil: this instance has its own, in memory.
	Documents Documents
	// PushedRules means that rules pushed to the fleet take precedence over the file's.
	PushedRules bool
	// Namespace and Store are the fleet's: Store is an address, which may hold secrets.
	Namespace, Store string
	// StateDir is the directory for the saved state; empty: no state is saved.
	StateDir string
	Log      *slog.Logger
	Hooks    Hooks
}

// Hooks report events. Some of them are called while the Control is locked: they must not call
// it, and must not wait.
type Hooks struct {
	// Installed gets each set as it becomes the current one, one after another; the first
	// before New returns.
	Installed func(*rules.Set)
	// Lifted gets each lift of bans that comes into force, and the penalty of its rule; nil:
	// there is no such rule, or it has none.
	Lifted func(rules.Lift, *stint.Penalty)
	// Pardon removes a penalty's record of a key from the store. It may wait.
	Pardon func(ctx context.Context, key string, p *stint.Penalty) error
	// Reloaded gets nil if rules were taken, and the reason if they were refused.
	Reloaded func(error)
	// Unread gets the reason why the documents could not be read, at each failure.
	Unread func(error)
	// Unsaved gets the reason why the state could not be saved.
	Unsaved func(error)
	// Audit logs the result of a change that was made while the store was down: a warning if the change was
	// confirmed and then not made. args are as for slog.
	Audit func(level slog.Level, text string, c *Change, args ...any)
}

// Control is the current set of one instance and its sources. New makes it. It may be used from many
// goroutines at once.
type Control struct {
	instance  *rules.Instance
	unfit     error // why the first set does not fit this instance
	documents Documents
	shared    bool // others use the documents, too
	namespace string
	store     string // its name; see storeName
	stateDir  string
	log       *slog.Logger
	hooks     Hooks

	current atomic.Pointer[rules.Set]
	clock   clock
	rollout rollout
	state   *stateFile // nil: no state is saved

	// changing is held while the controls are changed or merged. It is locked before mu.
	changing sync.Mutex
	readErr  atomic.Pointer[error] // why the last read of the documents failed; nil: it did not
	// read is true once the documents were read from the store. saved is when the documents in force were
	// read from the store, if they come from the state file; else nil.
	read  atomic.Bool
	saved atomic.Pointer[time.Time]

	mu       sync.Mutex      // guards what follows
	base     *rules.Set      // the file's or the fleet's rules, without controls
	file     *rules.Set      // the newest of the file
	order    *Order          // to take the file's although the fleet has rules; nil: none
	number   int64           // of the fleet's rules in base; 0: base is the file's
	taken    time.Time       // when base was taken
	refusal  *Refusal        // of rules that came after base; nil: none were refused
	controls rules.Controls  // in force: those of controlsDoc.seen, and pending on top
	pending  changes         // that the store does not have yet
	problems []rules.Problem // of controls over base

	controlsDoc, rulesDoc document
	followed              []*document // those that are followed
}

// Order is an operator's order to an instance of a fleet to take its file's rules.
type Order struct {
	At          time.Time
	Who, Reason string
}

// Refusal is why rules were not taken.
type Refusal struct {
	At  time.Time
	Err error
}

// New returns a Control whose current set is o.File.
func New(o Options) *Control {
	c := &Control{
		instance: o.Instance, documents: o.Documents, shared: o.Documents != nil,
		namespace: o.Namespace, store: storeName(o.Store), stateDir: o.StateDir, log: o.Log, hooks: o.Hooks,
	}
	if !c.shared {
		c.documents = new(memoryDocuments)
	}
	c.rollout.ours, c.rollout.namespace, c.rollout.log = c.announcement, o.Namespace, o.Log
	c.controlsDoc = document{name: controlsDocument, take: c.takeControls}
	c.rulesDoc = document{name: rulesDocument, take: c.takePushed}
	c.followed = []*document{&c.controlsDoc}
	if o.PushedRules {
		c.followed = append(c.followed, &c.rulesDoc)
	}
	c.instance.Now = c.clock.now
	first := o.File
	if set, err := first.On(c.instance); err == nil {
		first = set
	} else {
		c.unfit = err
	}
	c.file = first
	c.takeBase(first, 0)
	return c
}

// Open installs the saved state. Call it once, before Follow. An error means that the rules do
// not fit this instance, or that StateDir cannot be used.
func (c *Control) Open() error {
	if c.unfit != nil {
		return c.unfit
	}
	return c.openState()
}

// Close saves the state, and logs each change that waits for the store. Call it once.
func (c *Control) Close() {
	level, text := slog.LevelWarn, "audit: lost, because this instance ends before the store is back"
	if c.save() == nil && c.state != nil {
		level, text = slog.LevelInfo, "audit: kept for the next start, because this instance ends before the store is back"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		c.hooks.Audit(level, text, p)
	}
	if c.state != nil {
		c.state.dir.close()
	}
}

// Now is the time of the fleet, by which entries of the controls end.
func (c *Control) Now() time.Time { return c.clock.now() }

// SetClock replaces the clock of the machine, for tests; nil: time.Now. Call it before Open and
// Follow.
func (c *Control) SetClock(machine func() time.Time) { c.clock.wall = machine }

// Current is the current set. It takes no lock.
func (c *Control) Current() *rules.Set { return c.current.Load() }

// SetFile takes the rules of the file. If rules were pushed to the fleet and there is no order
// to take the file's, the pushed ones stay, and it returns false. An error names the secrets of
// the rules that this instance does not have; then the previous rules stay.
func (c *Control) SetFile(set *rules.Set) (taken bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if set, err = set.On(c.instance); err != nil {
		c.refuse(err)
		return false, err
	}
	c.file = set
	if c.number > 0 {
		return false, nil
	}
	c.takeBase(set, 0)
	c.hooks.Reloaded(nil)
	return true, nil
}

// RefuseFile records why new rules of the file were not taken.
func (c *Control) RefuseFile(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse(err)
}

// UseFile takes the file's rules, regardless of rules pushed to the fleet, until UsePushed. It does not call
// the store, because it is used when the store is down or has wrong rules.
func (c *Control) UseFile(o Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = &o
	c.takeBase(c.file, 0)
}

// UsePushed ends an order of UseFile, if there is one.
func (c *Control) UsePushed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order != nil {
		c.order = nil
		c.takePushed(&c.rulesDoc.seen)
	}
}

// refuse records why rules were not taken. c.mu is held.
func (c *Control) refuse(err error) {
	c.refusal = &Refusal{time.Now(), err}
	c.hooks.Reloaded(err)
}

// takeBase puts the controls over other rules: the pushed version with that number, or the
// file's for 0. c.mu is held.
func (c *Control) takeBase(base *rules.Set, number int64) {
	c.base, c.number, c.taken, c.refusal = base, number, time.Now(), nil
	c.install()
}

// enforce replaces the controls in force. c.mu is held.
func (c *Control) enforce(controls *rules.Controls) {
	known := make(map[rules.Lift]bool, len(c.controls.Lifts))
	for _, l := range c.controls.Lifts {
		known[l] = true
	}
	c.controls = *controls
	c.install()
	for _, l := range c.controls.Lifts {
		if !known[l] {
			c.hooks.Lifted(l, penaltyOf(c.base, l.Rule))
		}
	}
}

// install makes base with controls the current set. c.mu is held.
func (c *Control) install() {
	var set *rules.Set
	set, c.problems = c.base.With(&c.controls)
	c.current.Store(set)
	c.hooks.Installed(set)
}

// announcement describes the rules in force, without changes made at run time.
func (c *Control) announcement() announcement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return announcementOf(c.base)
}

// penaltyOf is the penalty of the rule of a name; nil: there is none.
func penaltyOf(set *rules.Set, name string) *stint.Penalty {
	for _, r := range set.Rules {
		if r.Name == name {
			return r.Penalty
		}
	}
	return nil
}
