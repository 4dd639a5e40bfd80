// Package server is the rate limiter as a service: a gateway, which limits HTTP requests
// and passes them on to upstreams, and a check API, which only answers whether a request
// may pass. Both decide through Server.Decide. An admin API shows and changes a running Server.
//
// [Load] makes a Server from a file, for a program that puts it before its own handlers with [Server.Wrap].
// [New] makes one from a [Config]: settings and rules that package config has read, and a stint.Limiter over
// any Store. [Server.Run] serves the listeners of the settings.
package server

import (
	"context"
	stdlog "log"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/admin"
	"github.com/stintdev/stint/server/internal/alerts"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/claims"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/dry"
	"github.com/stintdev/stint/server/internal/gateway"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/internal/lists"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/lookup"
	"github.com/stintdev/stint/server/internal/offenders"
	"github.com/stintdev/stint/server/internal/recent"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/internal/storage"
	"github.com/stintdev/stint/server/internal/watch"
	"github.com/stintdev/stint/server/rules"
)

// Config has the parts of a Server. Only Rules must be given.
type Config struct {
	Settings config.Settings
	// Rules must be given.
	Rules *rules.Set
	// Limiter decides. nil: one in memory. The Server puts the layers of package fleet
	// before its Store. If the Store is a fleet.Store, the Server replaces its layers by
	// its own. Its Observe is called for all asks of the rules, also in shadow mode.
	Limiter *stint.Limiter
	// Documents keeps changes made at run time, for the whole fleet. nil: this instance keeps them in memory,
	// until it ends.
	Documents Documents
	// Log receives failures, and changes by the admin API. Its Handler must not block, because requests log,
	// too: see LogWriter. nil: slog.Default.
	Log *slog.Logger
	// AccessLog receives the lines of Settings.Log.Access. Its Handler must not block
	// either. nil: Log.
	AccessLog *slog.Logger
	// LogDropped returns how many lines of the log were dropped, for the metrics. nil:
	// unknown.
	LogDropped func() int64
	// TracerProvider makes the spans, for a program that uses OpenTelemetry itself. nil: spans are made and
	// sent as Settings.Traces says.
	TracerProvider trace.TracerProvider
	// Program is the name and version of the program, for the admin API.
	Program string
	// Calls is how Envoy's rate limit service, if one runs beside the Server, decides calls.
	Calls Calls
	// Findings returns findings about things other than rules, for Server.Findings. nil: there are none.
	Findings func() []rules.Finding
	// NoFollow keeps Load from calling Server.Follow, for a program that calls it later. New never calls it.
	NoFollow bool
}

// Server decides requests by rules. New and Load make it. It may be used from many
// goroutines at once.
type Server struct {
	settings config.Settings

	// The rules, which are in watch, and this instance's part in them.
	control *control.Control // the source of rules
	own     rules.Instance   // this instance's values for expressions
	claims  *claims.Reader   // nil: tokens of clients are not read

	store   *storage.Storage
	door    *door.Door // what all doors share
	check   *check.API
	gateway *gateway.Gateway

	// Reports, live numbers, offenders, previews, alerts. id names this instance in reports; it is new with
	// each start.
	reports   Reports
	id        string
	live      *live.Live
	offenders *offenders.Counter // counts offenders; nil: nothing does

	explainer *dry.Explainer
	previewer *dry.Previewer
	alerts    *alerts.Alerts

	admin adminDoor

	// Bounds.
	footprint     config.Footprint
	headerTimeout time.Duration // for a client to send the headers of a request

	// Logs, metrics, traces and findings.
	watch    *watch.Watch
	errorLog *stdlog.Logger         // to watch.Sampled
	found    func() []rules.Finding // beside the rules; nil: nothing is
	dropped  func() int64           // lines of log; nil: not known

	life  lifetime
	files openFiles
}

// adminDoor is the admin API, and who may call it.
type adminDoor struct {
	handler http.Handler
	audit   *admin.Audit
	callers *auth.Authenticator
	bytes   *inflight.Bytes // separate, so that operators can call when the rest is used up
}

// lifetime is the time until Close.
type lifetime struct {
	ctx           context.Context // ends with Close
	end           context.CancelFunc
	stopping      atomic.Bool
	follow, close sync.Once
}

// New returns a Server. Close, or the end of Run, stops its background work.
func New(c Config) *Server {
	s := &Server{
		settings: c.Settings,
		found:    c.Findings,
		dropped:  c.LogDropped,

		headerTimeout: 10 * time.Second,
	}
	s.life.ctx, s.life.end = context.WithCancel(context.Background())
	s.footprint = s.settings.FitMemory()
	s.admin.bytes = inflight.NewUndivided(config.AdminBytes)
	log, accessLog := c.Log, c.AccessLog
	if log == nil {
		log = slog.Default()
	}
	if accessLog == nil {
		accessLog = log
	}
	s.watch = watch.New(watch.Options{
		Log: log, Refusals: uint32(s.settings.Log.Refusals), HashKeys: s.settings.HashKeys,
		Webhooks: webhookNames(&s.settings), Listeners: []string{gatewayListener, checkListener, adminListener},
	})
	s.watch.Metrics.Registry.MustRegister(liveCollector{s}, findingsCollector(s.Findings))
	s.door = &door.Door{
		Settings: &s.settings, Watch: s.watch, Callers: auth.ForCheck(&s.settings), Calls: c.Calls,
	}
	s.errorLog = stdlog.New(s.watch.Sampled, "", 0)
	s.admin.callers = auth.ForAdmin(&s.settings.Admin, s.door.ClientKey)
	s.check = &check.API{Door: s.door}
	s.gateway = gateway.New(s.door, gateway.Options{AccessLog: accessLog, ErrorLog: s.errorLog})
	s.reports, s.id = Reports(new(reports.Memory)), control.NewID()
	s.watch.Tracing, s.files.tracesWrong = newTracing(s, &c)
	s.store = storage.New(c.Limiter, &s.settings, &s.footprint, s.watch, func(l *stint.Limit, err error) { s.watch.Current().Lost(l, err) })
	s.door.Admission = door.NewAdmission(&s.settings, s.door.ClientOf, s.watch.Metrics, s.watch.Sampled)
	s.door.Decider = newDecider(s)
	s.files.certificates.watch = s.watch
	s.files.secrets = newSecretFiles(&c.Settings)
	s.own.Secrets, s.own.Lists, s.own.Allow = s.files.secrets.to, s.settings.KnownLists(), s.settings.AllowAmbiguous
	fetch := claims.NewClient(&s.settings)
	s.files.lists = lists.New(s.settings.Lists, fetch, s.watch.Log, s.own.Lists)
	s.watch.Metrics.Registry.MustRegister(s.files.lists)
	if j := c.Settings.JWT; j != nil {
		s.claims = claims.New(j, claims.Options{
			Client: fetch, Log: s.watch.Log, Bytes: s.footprint.TokenBytes(),
			Valid: s.watch.Metrics.TokensValid.Inc, Invalid: s.watch.Metrics.TokensInvalid.Inc, Failed: s.watch.Metrics.KeysFailed.Inc,
		})
		s.door.TrustedClaims = s.claims.Trusted
		s.own.Claims, s.own.TokenHeader = s.claims.Of, s.claims.Header
	}
	if shared, ok := c.Documents.(Reports); ok {
		s.reports = shared
	}
	s.watch.Privacy.Reports, s.watch.Privacy.ID = s.reports, s.id
	var recorder *recent.Recorder
	if n := s.settings.RecentRequests; n > 0 {
		recorder = recent.New(n, dry.PreviewWindow)
	}
	s.admin.audit = newAudit(s)
	s.control = newControl(s, &c)
	s.offenders = newOffenders(s)
	keys := &lookup.Lookup{Limiter: s.store.Limiter, Fleet: s.store.Fleet, Local: s.store.Local, Down: s.store.Err, Probe: s.store.Decides}
	s.explainer = &dry.Explainer{Door: s.door, Lookup: keys, Claims: s.claims, Routed: s.routed}
	s.previewer = dry.NewPreviewer(s.door, recorder, func() rules.Controls { return s.control.Status().Controls })
	s.live = newLive(s, &c)
	s.alerts = newAlerts(s)
	s.watch.Start(s.alerts, s.offenders, recorder)
	s.admin.handler = newAdmin(s, &c)
	return s
}

// Close stops the background work. Run does it, too.
func (s *Server) Close() {
	s.life.end()
	s.live.Close()
	s.store.Fleet.Close()
	s.life.close.Do(func() {
		if s.offenders != nil {
			s.offenders.Close()
		}
		s.control.Close()
		s.admin.audit.Trail.Close()
		s.watch.Refusals.FlushAll(s.watch.Current())
		s.watch.Tracing.Close()
		s.gateway.Transports.CloseIdle()
		if s.store.Closes != nil {
			s.store.Closes()
		}
	})
}
