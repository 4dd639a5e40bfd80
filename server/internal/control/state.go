package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keeper keeps, in a file for the next start, which may find the store away, the newest
// versions that this instance has seen of what the fleet shares, and the changes that
// the store has not got.
type keeper struct {
	mu   sync.Mutex // held while the file is written
	dir  *stateDir
	has  string    // what was written last: see contents; empty: nothing was
	at   time.Time // kept.At of that
	read time.Time // when the documents were read last, by the time of the fleet
	// taken is when the file was read, by the machine's clock.
	taken time.Time
	// failure is why the last writing failed; nil: it did not. What failed to be written
	// then, at missedAt, is missed, as has tells what is there.
	failure  atomic.Pointer[error]
	missed   string
	missedAt time.Time
}

// kept is what the file holds.
type kept struct {
	// Namespace and Store are those of the fleet.
	Namespace, Store string
	// At is when the documents were last read from the store, by the time of the fleet,
	// but for an hour.
	At time.Time
	// Ahead is how far the clock of the machine was ahead of the store's then.
	Ahead     time.Duration
	Documents map[string]keptVersion
	Pending   []json.RawMessage
}

// keptVersion is a version of a document.
type keptVersion struct {
	Number int64
	Data   []byte
}

const (
	// refreshKept is how old At becomes while the store answers.
	refreshKept = time.Hour
	// retryKept is how long the same is not written again where that failed.
	retryKept = 5 * time.Second
	// trustKept is how long ago the documents may have been read for what is kept of
	// them to count as what this instance has seen: to be written again where the store
	// has lost it. What is older gives way to whatever the store has, for a store that
	// somebody emptied on purpose must not get back what held long ago.
	trustKept = 24 * time.Hour
)

// storeName is the address of a store, with its database, without what may be secret.
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

// openState opens the directory for state, if the settings have one, and puts in force
// what is kept there.
func (s *Server) openState() error {
	if s.settings.StateDir == "" {
		return nil
	}
	store := storeName(s.settings.Store)
	dir, failed, err := openStateDir(s.settings.StateDir, s.settings.Namespace+"\n"+store)
	if err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	s.keeper = &keeper{dir: dir}
	if failed != nil {
		s.keepFailed(failed)
	}
	k := &kept{}
	data, err := dir.read()
	if errors.Is(err, errNoState) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, k)
	}
	if err == nil && (k.Namespace != s.settings.Namespace || k.Store != store) {
		err = fmt.Errorf("it is of the namespace %q in %s", k.Namespace, k.Store)
	}
	if err != nil {
		s.log.Error("the file of state cannot be used, and is set aside", "file", dir.path(), "error", errors.Join(err, dir.setAside()))
		return nil
	}
	return s.takeKept(k)
}

// takeKept puts in force what is kept, until the store answers.
func (s *Server) takeKept(k *kept) error {
	waiting := s.readPending(k)
	if s.shared {
		s.clock.assume(k.Ahead)
	}
	s.keeper.read, s.keeper.taken = k.At, s.clock.machine()
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.live.pending = waiting
	for _, f := range s.live.followed {
		in, ok := k.Documents[f.name]
		if !ok {
			continue
		}
		v, err := parseVersion(in.Number, in.Data)
		if err != nil {
			s.log.Error("a document that was kept cannot be read", "document", f.name, "error", err)
			continue
		}
		if !s.shared { // the documents of this instance begin with it
			v.number = 1
			if _, err := s.documents.Write(context.Background(), f.name, v.number, v.data); err != nil {
				return err
			}
		}
		f.seen, f.kept = *v, k.At
		f.take(v)
	}
	if len(waiting) > 0 {
		s.takeControls(&s.live.controls.seen)
	}
	if s.shared {
		s.standIn.Store(&k.At)
	}
	return nil
}

// isOld tells whether what was read from the store at an instant, and kept, was too old
// to be trusted when this instance started: by the clock of the store, once that was read.
func (s *Server) isOld(read time.Time) bool {
	if read.IsZero() {
		return false
	}
	ran := s.clock.machine().Sub(s.keeper.taken)
	return s.clock.now().Add(-ran).Sub(read) > trustKept
}

// readPending reads the changes that k has.
func (s *Server) readPending(k *kept) (all pendings) {
	for _, text := range k.Pending {
		p := &pending{}
		if err := json.Unmarshal(text, p); err != nil || len(all) == maxPending {
			s.auditMerged("audit: lost, for it cannot be read from the file of state", p, "error", err)
			continue
		}
		all = append(all, p)
	}
	return all
}

// save writes what is to be kept, if it is not there yet. An error is told here.
func (s *Server) save() error {
	if s.keeper == nil {
		return nil
	}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	k, mark, err := s.contents()
	if err == nil && mark == s.keeper.has && k.At.Sub(s.keeper.at) < refreshKept && s.keeper.failure.Load() == nil {
		return nil
	}
	if why := s.keeper.failure.Load(); why != nil && mark == s.keeper.missed && time.Since(s.keeper.missedAt) < retryKept {
		return *why
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(k)
	}
	if err == nil {
		err = s.keeper.dir.write(body)
	}
	if err != nil {
		s.keeper.missed, s.keeper.missedAt = mark, time.Now()
		s.keepFailed(err)
		return err
	}
	s.keeper.has, s.keeper.at = mark, k.At
	if s.keeper.failure.Swap(nil) != nil {
		s.log.Info("what the next start needs can be kept again", "file", s.keeper.dir.path())
	}
	return nil
}

// contents is what is to be kept now, and a mark that tells it from what is not the
// same.
func (s *Server) contents() (k *kept, mark string, err error) {
	k = &kept{Namespace: s.settings.Namespace, Store: storeName(s.settings.Store), At: s.keeper.read, Documents: map[string]keptVersion{}}
	if s.shared {
		k.Ahead = s.clock.ahead()
	} else {
		k.At = s.clock.now()
	}
	var b strings.Builder
	s.live.mu.Lock()
	for _, f := range s.live.followed {
		if f.seen.data != nil {
			k.Documents[f.name] = keptVersion{f.seen.number, f.seen.data}
			fmt.Fprintf(&b, "%s %d %s\n", f.name, f.seen.number, f.seen.digest)
		}
	}
	waiting := slices.Clone(s.live.pending)
	s.live.mu.Unlock()
	for _, p := range waiting {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, "", err
		}
		k.Pending = append(k.Pending, text)
		b.WriteString(p.ID + "\n")
	}
	return k, b.String(), nil
}

// keepFailed tells, now and then, that the file could not be written.
func (s *Server) keepFailed(err error) {
	s.keeper.failure.Store(&err)
	s.metrics.stateFailures.Inc()
	s.complainOf("what the next start needs while the store is away cannot be kept in state_dir", err)
}

// sawDocuments notes that the documents were read from the store.
func (s *Server) sawDocuments() {
	first := !s.documentsRead.Swap(true)
	stoodIn := s.standIn.Swap(nil)
	if first && stoodIn != nil && s.missed.Load() {
		s.log.Info("what the fleet shares was read; what was kept of it does not stand in any more")
	}
	if s.keeper != nil {
		s.keeper.mu.Lock()
		s.keeper.read = s.clock.now()
		s.keeper.mu.Unlock()
	}
}

// missDocuments tells, after the first look at the documents failed, by what this
// instance goes.
func (s *Server) missDocuments() {
	s.missed.Store(true)
	if at := s.standIn.Load(); at != nil {
		s.log.Warn("what the fleet shares cannot be read yet; what was kept of it stands in: bans, lists, overrides, switches and pushed rules", "read", at.UTC())
		return
	}
	s.log.Warn("what the fleet shares cannot be read yet, and nothing of it is kept here: its bans, lists, overrides, switches and pushed rules are not in force at this instance until it can")
}

// controlsFrom is where what was changed at run time comes from: "store", "state_dir",
// or "nowhere" while it was not read.
func (s *Server) controlsFrom() string {
	switch {
	case !s.shared || s.documentsRead.Load():
		return fromStore
	case s.standIn.Load() != nil:
		return fromStateDir
	}
	return fromNowhere
}

// The places where controls come from.
const (
	fromStore    = "store"
	fromStateDir = "state_dir"
	fromNowhere  = "nowhere"
)
