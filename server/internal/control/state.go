package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stateFile is the file in which an instance saves its state for the next start, when the store may be down:
// the newest versions of the fleet's documents that it has seen, and the changes that the store does not have
// yet.
type stateFile struct {
	dir    *stateDir
	loaded time.Time // when the file was read, by the machine's clock

	mu      sync.Mutex // held while the file is written; guards what follows
	has     string     // the mark of the last write; empty: none
	at      time.Time  // savedState.At of that write
	read    time.Time  // when the documents were last read, by the time of the fleet
	lost    string     // the mark of the last failed write, at lostAt
	lostAt  time.Time
	failure atomic.Pointer[error] // why the last write failed; nil: it did not
}

// savedState is the content of the file.
type savedState struct {
	// Namespace and Store are the fleet's.
	Namespace, Store string
	// At is when the documents were last read from the store, by the time of the fleet, to
	// within an hour.
	At time.Time
	// Ahead is how far the clock of the machine was ahead of the store's then.
	Ahead     time.Duration
	Documents map[string]savedVersion
	Pending   []json.RawMessage // each a Change
}

// savedVersion is a version of a document.
type savedVersion struct {
	Number int64
	Data   []byte
	digest string
}

const (
	// refreshState bounds the age of At while the store answers.
	refreshState = time.Hour
	// retryState is the pause before a failed write of the same state is repeated.
	retryState = 5 * time.Second
	// trustState bounds the age of saved documents that count as seen by this instance, and are written again
	// if the store has lost them. Older versions give way to the store's: a store that was emptied on purpose
	// must not get back old documents.
	trustState = 24 * time.Hour
)

// storeName is the address of a store, with its database, without secrets.
func storeName(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return address
	}
	rest, parameters, _ := strings.Cut(rest, "?")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	if query, err := url.ParseQuery(parameters); err == nil && query.Get("db") != "" {
		rest += "?db=" + query.Get("db")
	}
	return scheme + "://" + rest
}

// openState opens the directory for the state, if there is one, and puts the saved state in
// force.
func (c *Control) openState() error {
	if c.stateDir == "" {
		return nil
	}
	dir, failed, err := openStateDir(c.stateDir, c.namespace+"\n"+c.store)
	if err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	c.state = &stateFile{dir: dir}
	if failed != nil {
		c.unsaved(failed)
	}
	s := &savedState{}
	data, err := dir.read()
	if errors.Is(err, errNoState) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err == nil && (s.Namespace != c.namespace || s.Store != c.store) {
		err = fmt.Errorf("it belongs to namespace %q in %s", s.Namespace, s.Store)
	}
	if err != nil {
		c.log.Error("the state file cannot be used, and was set aside", "file", dir.path(), "error", errors.Join(err, dir.setAside()))
		return nil
	}
	return c.takeState(s)
}

// takeState puts the saved state in force, until the store answers.
func (c *Control) takeState(s *savedState) error {
	waiting := c.readPending(s.Pending)
	if c.shared {
		c.clock.assume(s.Ahead)
	}
	c.state.read, c.state.loaded = s.At, c.clock.machine()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = waiting
	for _, d := range c.followed {
		saved, ok := s.Documents[d.name]
		if !ok {
			continue
		}
		v, err := parseVersion(saved.Number, saved.Data)
		if err != nil {
			c.log.Error("a saved document cannot be read", "document", d.name, "error", err)
			continue
		}
		if !c.shared { // this instance's documents start with it
			v.Number = 1
			if _, err := c.documents.Write(context.Background(), d.name, v.Number, v.data); err != nil {
				return err
			}
		}
		d.seen, d.savedAt = *v, s.At
		d.take(v)
	}
	if len(waiting) > 0 {
		c.takeControls(&c.controlsDoc.seen)
	}
	if c.shared {
		c.saved.Store(&s.At)
	}
	return nil
}

// readPending reads changes that were saved.
func (c *Control) readPending(texts []json.RawMessage) (all changes) {
	for _, text := range texts {
		p := &Change{}
		if err := json.Unmarshal(text, p); err != nil || len(all) == maxPending {
			c.hooks.Audit(slog.LevelWarn, "audit: lost, because it cannot be read from the state file", p, "error", err)
			continue
		}
		all = append(all, p)
	}
	return all
}

// isOld reports whether saved documents, read at this instant, were too old to be trusted when this instance
// started: by the store's clock, once that was read.
func (c *Control) isOld(read time.Time) bool {
	if read.IsZero() {
		return false
	}
	ran := c.clock.machine().Sub(c.state.loaded)
	return c.clock.now().Add(-ran).Sub(read) > trustState
}

// save writes the state, if the file does not have it yet. It reports an error by
// Hooks.Unsaved.
func (c *Control) save() error {
	f := c.state
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, pending := c.savedState(f.read)
	mark := s.mark(pending)
	failure := f.failure.Load()
	switch {
	case failure == nil && mark == f.has && s.At.Sub(f.at) < refreshState:
		return nil
	case failure != nil && mark == f.lost && time.Since(f.lostAt) < retryState:
		return *failure
	}
	if err := f.write(s, pending); err != nil {
		f.lost, f.lostAt = mark, time.Now()
		c.unsaved(err)
		return err
	}
	f.has, f.at = mark, s.At
	if f.failure.Swap(nil) != nil {
		c.log.Info("the state for the next start can be saved again", "file", f.dir.path())
	}
	return nil
}

// savedState returns the state to save, without the pending changes, which are not encoded yet. read is when
// the documents were read.
func (c *Control) savedState(read time.Time) (*savedState, changes) {
	s := &savedState{Namespace: c.namespace, Store: c.store, At: read, Documents: map[string]savedVersion{}}
	if c.shared {
		s.Ahead = c.clock.ahead()
	} else {
		s.At = c.clock.now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.followed {
		if d.seen.data != nil {
			s.Documents[d.name] = savedVersion{d.seen.Number, d.seen.data, d.seen.digest}
		}
	}
	return s, append(changes(nil), c.pending...)
}

// unsaved reports that the state could not be saved.
func (c *Control) unsaved(err error) {
	c.state.failure.Store(&err)
	c.hooks.Unsaved(err)
}

// mark is equal for equal states. It is made from the identifiers of their parts, without encoding, because
// it is computed at each read of the documents.
func (s *savedState) mark(pending changes) string {
	var b strings.Builder
	for _, name := range [...]string{controlsDocument, rulesDocument} {
		if v, ok := s.Documents[name]; ok {
			fmt.Fprintf(&b, "%s %d %s\n", name, v.Number, v.digest)
		}
	}
	for _, p := range pending {
		b.WriteString(p.ID + "\n")
	}
	return b.String()
}

// write writes s, with the pending changes. f.mu is held.
func (f *stateFile) write(s *savedState, pending changes) error {
	for _, p := range pending {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		s.Pending = append(s.Pending, text)
	}
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return f.dir.write(body)
}

// sawDocuments records when the documents were read from the store.
func (f *stateFile) sawDocuments(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = at
}

// unsaved is why the last write failed; nil: it did not.
func (f *stateFile) unsaved() error {
	if err := f.failure.Load(); err != nil {
		return *err
	}
	return nil
}
