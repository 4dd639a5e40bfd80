package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/stintdev/stint/rules"
)

// The documents that a fleet shares.
const (
	rulesDocument    = "rules"
	controlsDocument = "controls"
)

// version is what stands in a version of either document.
type version struct {
	Author string    `json:"author"`
	Note   string    `json:"note,omitempty"`
	At     time.Time `json:"at"`
	// Text is the rules file, Controls what was changed at run time: one of them.
	Text     string          `json:"text,omitempty"`
	Controls *rules.Controls `json:"controls,omitempty"`
	// Applied are the IDs of the changes of the controls that made this version and those
	// before it, the newest 1,000.
	Applied []string `json:"applied,omitempty"`

	number int64
	data   []byte // as it is stored
	digest string // of data
}

// followed is the version of a document that this instance has seen last.
type followed struct {
	name string
	seen version // its number is 0: none
	// kept is when seen was read from the store, where it came from the file of state and
	// the store was not seen since; else zero.
	kept time.Time
	take func(*version)
}

const (
	// followEvery is how often an instance asks whether it missed a change.
	followEvery = 500 * time.Millisecond
	// followTimeout bounds one look at the documents.
	followTimeout = time.Second
)

// Follow takes over what the fleet shares, asks whether the store decides, and fetches the
// keys of tokens, once before it returns, if they answer within a second, and then again
// and again, until ctx is done; so it does with the files that Open has read. Run does it;
// it is for those who serve the handlers by themselves, and to be called once.
func (s *Server) Follow(ctx context.Context) {
	var first sync.WaitGroup
	defer first.Wait()
	go s.watchFiles(ctx)
	first.Go(func() { s.claims.follow(ctx) })
	if s.fallback != nil {
		go s.fallback.Follow(ctx)
		first.Go(func() { s.feelPulse(ctx) })
		go s.followPulse(ctx)
	}
	if !s.shared {
		return // changes are made here, and are in force when they are made
	}
	s.look(ctx)
	if !s.documentsRead.Load() && ctx.Err() == nil {
		s.missDocuments()
	}
	if to, ok := s.documents.(Announcer); ok {
		go s.followRoll(ctx, to)
	}
	hints := make(chan struct{}, 1)
	go s.documents.Watch(ctx, func() {
		select {
		case hints <- struct{}{}:
		default: // one is waiting already
		}
	})
	go func() {
		ticker := time.NewTicker(followEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			case <-hints:
			}
			s.look(ctx)
		}
	}()
}

// look takes over what has changed. Where it cannot see, everything stays.
func (s *Server) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	clock := s.lookAtClock(bounded)
	var err error // one, for nearly always all have the same cause
	for _, f := range s.live.followed {
		if e := s.lookAt(bounded, f); e != nil && err == nil {
			err = fmt.Errorf("%s: %w", f.name, e)
		}
	}
	if err == nil {
		err = clock
	}
	if err == nil {
		s.sawDocuments()
		err = s.merge(bounded)
	}
	_ = s.save() // which says by itself that it fails
	if ctx.Err() == nil {
		s.saw(err)
	}
	if err != nil && ctx.Err() == nil {
		s.metrics.syncFailures.Inc()
		s.complainOf("what the fleet shares cannot be seen, so this instance keeps what it has", err)
	}
}

// saw remembers how a look at the documents went.
func (s *Server) saw(err error) {
	if err == nil {
		s.syncError.Store(nil)
	} else {
		s.syncError.Store(&err)
	}
}

// lookAt takes over the newest version of a document. Where the store has lost
// versions that this instance has seen, in a failover or because it was emptied,
// what was changed last, there or here, goes on: a kill switch or a ban must not
// end because a server was restarted. Numbers cannot tell, for those that were lost
// are given again; the instants of changes can, for each is later than that of the
// change which it was made on.
func (s *Server) lookAt(ctx context.Context, f *followed) error {
	newest, digest, err := s.documents.Newest(ctx, f.name)
	if err != nil {
		return err
	}
	s.live.mu.Lock()
	seen, old := f.seen, s.isOld(f.kept)
	if newest == seen.number && digest == seen.digest {
		f.kept = time.Time{}
		s.live.mu.Unlock()
		return nil
	}
	s.live.mu.Unlock()
	v := &version{}
	if newest > 0 {
		if v, err = s.readVersion(ctx, f.name, newest); err != nil {
			return err
		}
		if v == nil {
			return fmt.Errorf("version %d is gone", newest)
		}
	}
	if !old && v.At.Before(seen.At) {
		return s.restore(ctx, f, seen, newest+1)
	}
	if !old && newest <= seen.number && digest != seen.digest {
		// Somebody who had not seen them was faster with a change than those who
		// had were with restoring them.
		s.log.Warn("the store had lost what the fleet shares, and it was changed since: see what is missing",
			"document", f.name, "lost", seen.number, "number", newest)
	}
	s.takeVersion(f, &seen, v)
	return nil
}

// restore writes again what the store has lost.
func (s *Server) restore(ctx context.Context, f *followed, lost version, number int64) error {
	written, err := s.documents.Write(ctx, f.name, number, lost.data)
	if err != nil || !written {
		return err // not written: another instance was first, and the next look sees it
	}
	s.log.Warn("the store had lost what the fleet shares; restored", "document", f.name, "lost", lost.number, "number", number)
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if f.seen.is(&lost) {
		f.seen.number, f.kept = number, time.Time{}
	}
	return nil
}

// takeVersion puts a version in force that follows the one seen before. Where
// another was put in force meanwhile, it does nothing: that one was looked up later,
// or the next look will tell.
func (s *Server) takeVersion(f *followed, before, v *version) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if f.seen.is(before) {
		f.seen, f.kept = *v, time.Time{}
		f.take(v)
	}
}

// is tells whether both are the same version.
func (v *version) is(other *version) bool {
	return v.number == other.number && v.digest == other.digest
}

// after is an instant for the version that is made on v: now, but for clocks that
// differ.
func (v *version) after(now time.Time) time.Time {
	now = now.UTC()
	if least := v.At.Add(time.Microsecond); now.Before(least) {
		return least
	}
	return now
}

// encode makes data of what v says.
func (v *version) encode() (err error) {
	v.data, err = json.Marshal(v)
	v.digest = digest(v.data)
	return err
}

// readVersion reads a version of a document; nil: it is not kept.
func (s *Server) readVersion(ctx context.Context, name string, number int64) (*version, error) {
	data, err := s.documents.Read(ctx, name, number)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", number, err)
	}
	if data == nil {
		return nil, nil
	}
	return parseVersion(number, data)
}

// parseVersion reads a version as it is stored.
func parseVersion(number int64, data []byte) (*version, error) {
	v := &version{number: number, data: data, digest: digest(data)}
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("version %d: %w", number, err)
	}
	return v, nil
}

// controls are a copy of those in v, to be edited.
func (v *version) controls() *rules.Controls {
	if v.Controls == nil {
		return &rules.Controls{}
	}
	return v.Controls.Clone()
}

// takeControls puts controls in force, and on top of them the changes that wait to be
// merged. s.live.mu is held.
func (s *Server) takeControls(v *version) {
	controls := v.controls()
	_, waiting := v.split(s.live.pending)
	_, _ = mergeInto(controls, waiting) // what does not apply any more is dropped when it is merged
	s.enforce(controls)
	s.log.Info("controls taken", "number", v.number)
}

// enforce puts controls in force. s.live.mu is held.
func (s *Server) enforce(controls *rules.Controls) {
	before := s.live.now
	s.live.now = *controls
	s.install()
	for _, lift := range newLifts(before.Lifts, s.live.now.Lifts) {
		s.lifted(lift)
	}
}

// takeFleetRules makes the fleet's rules decide, or says why not. s.live.mu is held.
func (s *Server) takeFleetRules(v *version) {
	if s.live.ordered != nil {
		return // they are not to be taken; what decides goes on
	}
	if v.number == 0 { // there are none, and those that were kept are too old
		s.live.take(s.live.file, 0)
		s.install()
		s.log.Info("the fleet has no rules; the file's taken", "version", s.live.file.Version)
		return
	}
	set, err := s.parsePushed(context.Background(), v.Text)
	if err != nil {
		s.refuse(err)
		s.log.Error("the fleet's rules not taken; those of before stay", "number", v.number, "error", err)
		return
	}
	s.live.take(set, v.number)
	s.install()
	s.metrics.reloadsTaken.Inc()
	s.log.Info("the fleet's rules taken", "number", v.number, "version", set.Version, "count", len(set.Rules))
}

// parsePushed compiles rules that were pushed, for this instance.
func (s *Server) parsePushed(ctx context.Context, text string) (*rules.Set, error) {
	set, err := rules.ParseContext(ctx, []rules.File{{Name: "rules", Data: []byte(text)}})
	if err != nil {
		return nil, err
	}
	return set.On(&s.own)
}
