package server

import (
	"context"
	"net/http"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/dashboard"
	"github.com/stintdev/stint/server/internal/admin"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

// Documents keeps a fleet's shared state: a few named documents, each in versions with numbers from 1.
// redislimit.Store.Documents returns one. It may be used from many goroutines at once.
//
// If it is also an Announcer, instances learn which rules the others have. If it implements Reports, the
// fleet shares reports through it; otherwise each instance reports to itself alone.
type Documents interface {
	// Now returns the fleet's time, by one clock for all instances. Entries of documents end by it.
	Now(ctx context.Context) (time.Time, error)
	// Newest returns the number of a document's newest version and the SHA-1 of its text,
	// in hexadecimal digits; 0 and "" if it has none.
	Newest(ctx context.Context, name string) (number int64, digest string, err error)
	// Read returns a version, or nil if there is none or it is no longer kept. At least the
	// newest 50 are kept.
	Read(ctx context.Context, name string, number int64) ([]byte, error)
	// Write adds text as the version with that number, if the newest version has the number
	// before; otherwise it changes nothing and returns false. After an error, the version
	// may have been written.
	Write(ctx context.Context, name string, number int64, text []byte) (bool, error)
	// Watch calls changed, from one goroutine, when a document may have changed, until ctx is done. It may
	// miss changes, so the Server also polls Newest.
	Watch(ctx context.Context, changed func())
}

// Announcer is implemented by Documents through which instances tell each other which rules
// they have.
type Announcer interface {
	// Announce records a text of this instance, and returns the texts that instances announced in about the
	// last 30 seconds, each once, including this one.
	Announce(ctx context.Context, text string) ([]string, error)
}

// Reports is implemented by Documents through which the instances of a fleet share reports. A report has a
// name and parts; parts expire, and losing one does no harm. Names have 1 to 64 characters of a–z 0–9 _ -,
// names of parts up to 200 bytes.
type Reports interface {
	// Report writes a part of a report, replacing its former text. It expires after keep, by the store's
	// clock. A report has at most 1,000 parts: if there are more, those that expire first are dropped. text
	// has at most 256 KiB.
	Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error
	// Reported returns the parts of a report that have not expired, by their names.
	Reported(ctx context.Context, name string) (map[string][]byte, error)
	// Claim claims a name for keep, and reports whether who owns it now: it was free, or who owned it
	// already, and the claim is extended. Of several callers that claim one name, one gets true.
	Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error)
}

var (
	_ control.Documents = Documents(nil)
	_ control.Announcer = Announcer(nil)
	_ reports.Reports   = Reports(nil)
)

// newControl returns the source of this server's current set. The first set is installed then.
func newControl(s *Server, c *Config) *control.Control {
	return control.New(control.Options{
		File:        c.Rules,
		Instance:    &s.own,
		Documents:   c.Documents,
		PushedRules: s.settings.RulesFrom == config.FromFleet,
		Namespace:   s.settings.Namespace,
		Store:       s.settings.Store,
		StateDir:    s.settings.StateDir,
		Log:         s.watch.Log,
		Hooks: control.Hooks{
			Installed: s.installed,
			Lifted:    s.lifted,
			Pardon: func(ctx context.Context, key string, p *stint.Penalty) error {
				_, err := s.store.Limiter.Pardon(ctx, key, p)
				return err
			},
			Reloaded: s.watch.Metrics.Reloaded,
			Unread: func(err error) {
				s.watch.Metrics.SyncFailures.Inc()
				s.watch.Sampled.Failure("the fleet's documents cannot be read; this instance keeps what it has", err)
			},
			Unsaved: func(err error) {
				s.watch.Metrics.StateFailures.Inc()
				s.watch.Sampled.Failure("the state for the next start cannot be written to state_dir", err)
			},
			Audit: s.admin.audit.Merged,
		},
	})
}

// newAudit makes the record of changes.
func newAudit(s *Server) *admin.Audit {
	trail := &admin.Trail{Reports: s.reports, Host: hostname(), Now: func() time.Time {
		if s.control == nil { // it is under construction, and has lost a change
			return time.Now()
		}
		return s.control.Now()
	}, Failed: func(err error) {
		s.watch.Sampled.Failure("changes cannot be written for GET /v1/audit; the log has them", err)
	}}
	return &admin.Audit{Log: s.watch.Log, Dropped: s.watch.Metrics.AuditDropped.Inc, Trail: trail, Shown: s.watch.Privacy.ShownKey}
}

// Rules returns the rules in force, including changes made at run time.
func (s *Server) Rules() *rules.Set { return s.door.Rules() }

// SetRules puts the rules of a file in force, for every request from now on. Counts stay if the rule's name
// and the limit's algorithm, period and sub-windows are unchanged; metrics stay if the rule's name is
// unchanged. Changes made at run time stay in force on top of the rules.
//
// SetRules returns false if the fleet has rules of its own (Settings.RulesFrom): these stay in force, unless
// an operator ordered this instance to use the file's. It returns an error, and keeps the former rules, if
// the rules need secrets or lists that this instance does not have.
func (s *Server) SetRules(set *rules.Set) (taken bool, err error) { return s.control.SetFile(set) }

// RulesRefused records that a reload failed because the new rules were wrong or could not
// be read. The former rules stay in force.
func (s *Server) RulesRefused(err error) { s.control.RefuseFile(err) }

// installed makes set the current one. It is not called concurrently.
func (s *Server) installed(set *rules.Set) {
	s.watch.Install(set)
	s.store.Fleet.ForgetDenials() // under the new set, refusals may have other numbers
}

// lifted makes this instance forget a ban that was lifted. The store has forgotten it already.
func (s *Server) lifted(l rules.Lift, p *stint.Penalty) {
	s.watch.Bans.Lift(l.Rule, string(l.Key))
	s.store.Fleet.Forget(&stint.Request{Asks: []stint.Ask{{Key: string(l.Key), Penalty: p}}})
}

// newAdmin is the handler of the admin API.
func newAdmin(s *Server, c *Config) http.Handler {
	pages := &offenderPages{s.offenders, s.watch}
	api := &admin.API{
		Control:     s.control,
		PushedRules: s.settings.RulesFrom == config.FromFleet,
		Limiter:     s.store.Limiter,
		Lookup:      s.explainer.Lookup,
		Forget:      s.store.Fleet.Forget,
		Explain: func(ctx context.Context, body []byte) (*adminapi.Explanation, error) {
			in, err := ReadInput(body)
			if err != nil {
				return nil, err
			}
			return s.Explain(ctx, in)
		},
		Offenders:       pages.topOffenders,
		OffenderHistory: pages.offenderHistory,

		Preview: s.previewer.Preview,
		Program: c.Program,
		Started: time.Now(),
		Store: func(ctx context.Context, shared bool) adminapi.StoreStatus {
			return s.store.Status(ctx, shared, s.control.ClockAhead)
		},
		Footprint: &s.footprint,
		Findings:  s.Findings,
		Settings:  s.settings.InForce,
		Callers:   s.admin.callers,
		Refused:   s.door.RefusedCaller,
		Audit:     s.admin.audit,
		Bytes:     s.admin.bytes,
		Alerts:    s.alerts,
		Live:      s.live,
	}
	if s.settings.Admin.Dashboard {
		api.Dashboard = dashboard.Handler()
	}
	return api.Handler()
}

// Admin returns the admin API, which docs/admin-api.yaml describes. It shows and changes a running Server.
func (s *Server) Admin() http.Handler { return s.admin.handler }
