package server

import (
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint/rules"
)

// live is what the rules that decide are made of: a set, from the file or from the
// fleet, and the controls that are in force on top of it.
type live struct {
	mu sync.Mutex // held while any of this changes

	base     *rules.Set      // the file's or the fleet's, without controls
	file     *rules.Set      // the newest of the file
	ordered  *order          // to take the file's though the fleet has rules; nil: nobody gave it
	number   int64           // of the fleet's version; 0: base is the file's
	taken    time.Time       // when base was
	refused  *refusal        // of rules that came after base
	now      rules.Controls  // those of controls.seen, with what is pending
	pending  pendings        // changes that the store has not got
	problems []rules.Problem // of now under base

	controls, rules followed
	followed        []*followed // those of them that are
}

// order is who told this instance to take its file's rules, and why.
type order struct {
	at          time.Time
	who, reason string
}

// refusal is why rules were not taken.
type refusal struct {
	at  time.Time
	err error
}

// Rules is the set that decides now, with what was changed at run time.
func (s *Server) Rules() *rules.Set { return s.set.Load().Set }

// SetRules makes the rules of a file decide, for every request that comes from now
// on. Counts are kept where a rule's name and a limit's algorithm, period and
// sub-windows are as before, and so are the metrics of a rule whose name is. What
// was changed at run time stays in force on top of them. Where the fleet has rules
// of its own (Settings.RulesFrom), they go on deciding, unless this instance was told
// otherwise, and it returns false. An error tells which secrets the rules name that this
// instance does not have; then those of before stay, too.
func (s *Server) SetRules(set *rules.Set) (taken bool, err error) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if set, err = set.On(&s.own); err != nil {
		s.refuse(err)
		return false, err
	}
	s.live.file = set
	if s.live.number > 0 {
		return false, nil
	}
	s.live.take(set, 0)
	s.install()
	s.metrics.reloadsTaken.Inc()
	return true, nil
}

// RulesRefused says that a reload came to nothing, because the new rules were wrong
// or could not be read; those that decide stay.
func (s *Server) RulesRefused(err error) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.refuse(err)
}

func (s *Server) refuse(err error) {
	s.live.refused = &refusal{time.Now(), err}
	s.metrics.reloadsFailed.Inc()
}

func (l *live) take(base *rules.Set, number int64) {
	l.base, l.number, l.taken, l.refused = base, number, time.Now(), nil
}

// install makes base with the controls serve. s.live.mu is held.
func (s *Server) install() {
	set, problems := s.live.base.With(&s.live.now)
	s.live.problems = problems
	before := s.set.Swap(s.metrics.serve(set))
	if before != nil {
		s.metrics.forget(before.Set, set)
	}
	if s.denials != nil { // what was refused may have other numbers now
		s.denials.ForgetAll()
	}
}

// newLifts are the lifts of now that before did not have.
func newLifts(before, now []rules.Lift) []rules.Lift {
	seen := make(map[rules.Lift]bool, len(before))
	for _, l := range before {
		seen[l] = true
	}
	return slices.DeleteFunc(slices.Clone(now), func(l rules.Lift) bool { return seen[l] })
}

// lifted forgets what this instance remembers of a ban that was lifted. The store
// has forgotten it already.
func (s *Server) lifted(l rules.Lift) {
	s.bans.lift(l.Rule, string(l.Key))
	s.undone(string(l.Key))
	for _, r := range s.live.base.Rules {
		if r.Name == l.Rule && r.Penalty != nil && s.fallback != nil {
			s.fallback.Forget(string(l.Key), r.Penalty)
		}
	}
}

// undone forgets what this instance remembers of a key that the store knows better.
func (s *Server) undone(key string) {
	if s.denials != nil {
		s.denials.Forget(key)
	}
}

// keepLifts is how long lifts stay among the controls: long enough for an instance
// that was cut off to see them when it is back.
const keepLifts = time.Hour

// state is what is in force at an instant.
type state struct {
	set, base *rules.Set
	number    int64 // of the fleet's rules that decide; 0: they are a file's
	newest    int64 // of the fleet's rules that were seen
	taken     time.Time
	refused   *refusal
	ordered   *order
	controls  rules.Controls // those that have not ended
	changed   int64          // number of their version
	pending   pendings       // which that version does not have
	problems  []rules.Problem
	why       map[string]string // problems by ID; see problem
}

func (s *Server) state() state {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	l := &s.live
	now := state{s.Rules(), l.base, l.number, l.rules.seen.number, l.taken, l.refused, l.ordered, *l.now.Clone(), l.controls.seen.number, slices.Clone(l.pending), l.problems, nil}
	now.controls.Expire(s.clock.now(), keepLifts)
	return now
}
