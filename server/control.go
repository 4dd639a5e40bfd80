package server

import (
	"context"
	"net/http"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/admin"
	"github.com/stintdev/stint/server/internal/control"
)

// Documents is where a fleet keeps what it shares: a few documents by name, each
// in versions with numbers from 1. redislimit.Documents is one. It may be used
// from many goroutines at once.
//
// Where it is an Announcer, instances also learn which rules others have.
type Documents interface {
	// Now is the time of the fleet, by one clock, whichever instance asks. Entries of
	// documents end by it.
	Now(ctx context.Context) (time.Time, error)
	// Newest is the number of a document's newest version and the SHA-1 of its
	// text, in hexadecimal digits; 0 and "": it has none.
	Newest(ctx context.Context, name string) (number int64, digest string, err error)
	// Read returns a version; nil where there is none, or it is no longer kept.
	// At least the newest 50 are kept.
	Read(ctx context.Context, name string, number int64) ([]byte, error)
	// Write makes text the version with that number if the newest so far is the
	// one before; else it changes nothing and returns false. Where it returns an
	// error, it may have written.
	Write(ctx context.Context, name string, number int64, text []byte) (bool, error)
	// Watch calls changed, from one goroutine, when a document may have changed,
	// until ctx is done. Changes may be missed: ask Newest now and then, too.
	Watch(ctx context.Context, changed func())
}

// Announcer is Documents by which instances announce to each other which rules they have.
type Announcer interface {
	// Announce announces a text, and returns the texts that instances have announced in
	// the last 30 seconds or so, each once, this one among them.
	Announce(ctx context.Context, text string) ([]string, error)
}

var (
	_ control.Documents = Documents(nil)
	_ control.Announcer = Announcer(nil)
)

// newControl is what this server's current set comes from. Its first set is installed
// when it returns.
func (s *Server) newControl(c *Config) *control.Control {
	return control.New(control.Options{
		File:        c.Rules,
		Instance:    &s.own,
		Documents:   c.Documents,
		PushedRules: s.settings.RulesFrom == config.FromFleet,
		Namespace:   s.settings.Namespace,
		Store:       s.settings.Store,
		StateDir:    s.settings.StateDir,
		Log:         s.log,
		Hooks: control.Hooks{
			Installed: s.installed,
			Lifted:    s.lifted,
			Pardon: func(ctx context.Context, key string, p *stint.Penalty) error {
				return s.limiter.Pardon(ctx, key, p)
			},
			Reloaded: s.metrics.reloaded,
			Unread: func(err error) {
				s.metrics.syncFailures.Inc()
				s.sampled.failure("the fleet's documents cannot be read; this instance keeps what it has", err)
			},
			Unsaved: func(err error) {
				s.metrics.stateFailures.Inc()
				s.sampled.failure("the state for the next start cannot be written to state_dir", err)
			},
			Audit: s.audit.Merged,
		},
	})
}

// Rules is the set that decides now, with what was changed at run time.
func (s *Server) Rules() *rules.Set { return s.set.Load().Set }

// SetRules makes the rules of a file decide, for every request that comes from now
// on. Counts are kept where a rule's name and a limit's algorithm, period and
// sub-windows are as before, and so are the metrics of a rule whose name is. What
// was changed at run time stays in force on top of them. Where the fleet has rules
// of its own (Settings.RulesFrom), they stay in force, unless an operator has ordered this
// instance to take the file's, and it returns false. An error names the secrets of the
// rules that this instance does not have; then those of before stay, too.
func (s *Server) SetRules(set *rules.Set) (taken bool, err error) { return s.control.SetFile(set) }

// RulesRefused says that a reload came to nothing, because the new rules were wrong
// or could not be read; those that decide stay.
func (s *Server) RulesRefused(err error) { s.control.RefuseFile(err) }

// installed makes set decide. It is not called twice at once.
func (s *Server) installed(set *rules.Set) {
	before := s.set.Swap(s.metrics.serve(set))
	if before != nil {
		s.metrics.forget(before.Set, set)
	}
	s.fleet.ForgetDenials() // what was refused may have other numbers now
}

// lifted forgets what this instance remembers of a ban that was lifted. The store
// has forgotten it already.
func (s *Server) lifted(l rules.Lift, p *stint.Penalty) {
	s.bans.lift(l.Rule, string(l.Key))
	s.fleet.Forget(&stint.Request{Asks: []stint.Ask{{Key: string(l.Key), Penalty: p}}})
}

// newAdmin is the handler of the admin API.
func (s *Server) newAdmin(c *Config) http.Handler {
	api := &admin.API{
		Control:     s.control,
		PushedRules: s.settings.RulesFrom == config.FromFleet,
		Limiter:     s.limiter,
		Lookup:      s.lookup,
		Forget:      s.fleet.Forget,
		Explain: func(ctx context.Context, body []byte) (*adminapi.Explanation, error) {
			in, err := ReadInput(body)
			if err != nil {
				return nil, err
			}
			return s.Explain(ctx, in)
		},
		Program:   c.Program,
		Started:   time.Now(),
		Store:     s.storeStatus,
		Footprint: &s.footprint,
		Findings:  s.Findings,
		Callers:   s.adminCallers,
		Refused:   s.sampled.refusedCaller,
		Audit:     s.audit,
		Bytes:     s.adminBytes,
	}
	return api.Handler()
}

// Admin is the admin API, which docs/admin-api.yaml describes: it shows, changes
// and undoes what is in force while everything runs.
func (s *Server) Admin() http.Handler { return s.admin }
