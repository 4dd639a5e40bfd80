// Package admin is the admin API, which docs/admin-api.yaml describes: it shows and changes a running server.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/alerts"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/lookup"
	"github.com/stintdev/stint/server/rules"
)

// API is the admin API of a server. It must not be changed once it is in use.
type API struct {
	Control *control.Control
	// PushedRules means that rules pushed to the fleet take precedence over the file's.
	PushedRules bool
	Limiter     *stint.Limiter // over the store, without the layers of this instance
	Lookup      *lookup.Lookup
	// Forget drops this instance's memory of keys that the store knows better; see fleet.Store.Forget.
	Forget func(*stint.Request)
	// Explain explains the check request in body.
	Explain func(ctx context.Context, body []byte) (*adminapi.Explanation, error)
	// Preview compares rules, and their text, with those in force on recent requests. It returns nil if none are
	// recorded.
	Preview func(context.Context, *rules.Set, string) (*adminapi.Preview, error)

	// Offenders and OffenderHistory answer the calls about offenders; nil without an error: they are not
	// counted.
	Offenders       func(context.Context, OffendersQuery) (*adminapi.Offenders, error)
	OffenderHistory func(context.Context, HistoryQuery) (*adminapi.History, error)

	// GET /v1/status shows these beside Control. shared is its Status.Shared.
	Program   string
	Started   time.Time
	Store     func(ctx context.Context, shared bool) adminapi.StoreStatus
	Footprint *config.Footprint
	Findings  func() []rules.Finding
	// Settings returns the server's settings, for GET /v1/settings.
	Settings func() []config.InForce

	Callers *auth.Authenticator
	// Refused logs a caller that was refused.
	Refused func(*auth.Authenticator, *http.Request, auth.Caller, error)
	Audit   *Audit
	// Bytes bounds the bodies in flight.
	Bytes *inflight.Bytes
	// Dashboard serves the page at "/" and its files below "/static/", to everybody: it has
	// no data. nil: there is no page.
	Dashboard http.Handler
	// Live has the present numbers and those of the last minutes.
	Live *live.Live
	// Alerts evaluates the alerts of the rules.
	Alerts *alerts.Alerts

	reading, writing           chan struct{} // each has one place for a call of that scope that compiles
	largeReading, largeWriting chan struct{} // each has maxLarge places for calls of that scope
}

// Handler serves the admin API.
func (a *API) Handler() http.Handler {
	a.reading, a.writing = make(chan struct{}, 1), make(chan struct{}, 1)
	a.largeReading, a.largeWriting = make(chan struct{}, maxLarge), make(chan struct{}, maxLarge)
	mux := http.NewServeMux()
	for pattern, e := range map[string]endpoint{
		"GET /v1/status":                  {config.ReadScope, a.showStatus},
		"GET /v1/settings":                {config.ReadScope, a.showSettings},
		"GET /v1/rules":                   {config.ReadScope, a.showRules},
		"PUT /v1/rules":                   {config.WriteScope, a.pushRules},
		"POST /v1/rules/check":            {config.ReadScope, a.checkRules},
		"POST /v1/rules/preview":          {config.ReadScope, a.previewRules},
		"GET /v1/rules/versions":          {config.ReadScope, a.large(a.listVersions)},
		"GET /v1/rules/versions/{number}": {config.ReadScope, a.showVersion},
		"POST /v1/rules/rollback":         {config.WriteScope, a.rollbackRules},
		"GET /v1/rules/source":            {config.ReadScope, a.showSource},
		"PUT /v1/rules/source":            {config.WriteScope, a.setSource},
		"GET /v1/audit":                   {config.ReadScope, a.large(a.showAudit)},
		"GET /v1/switches":                {config.ReadScope, a.showSwitches},
		"PATCH /v1/switches":              {config.WriteScope, a.setSwitches},
		"GET /v1/overrides":               {config.ReadScope, a.listOverrides},
		"POST /v1/overrides":              {config.WriteScope, a.addOverride},
		"DELETE /v1/overrides/{id}":       {config.WriteScope, a.removeOverride},
		"GET /v1/lists/{list}":            {config.ReadScope, a.showList},
		"POST /v1/lists/{list}":           {config.WriteScope, a.addListed},
		"DELETE /v1/lists/{list}/{id}":    {config.WriteScope, a.removeListed},
		"GET /v1/bans":                    {config.ReadScope, a.large(a.listBans)},
		"POST /v1/bans":                   {config.WriteScope, a.addBan},
		"DELETE /v1/bans/{id}":            {config.WriteScope, a.removeBan},
		"POST /v1/bans/lift":              {config.WriteScope, a.liftBans},
		"POST /v1/keys/show":              {config.ReadScope, a.showKey},
		"POST /v1/keys/reset":             {config.WriteScope, a.resetKey},
		"POST /v1/keys/refund":            {config.WriteScope, a.refundKey},
		"POST /v1/keys/release":           {config.WriteScope, a.releaseKey},
		"POST /v1/explain":                {config.ReadScope, a.explainRequest},
		"GET /v1/session":                 {config.ReadScope, a.showSession},
		"GET /v1/series":                  {config.ReadScope, a.showSeries},
		"GET /v1/instances":               {config.ReadScope, a.listInstances},
		"GET /v1/offenders":               {config.ReadScope, a.large(a.showOffenders)},
		"GET /v1/offenders/history":       {config.ReadScope, a.large(a.showOffenderHistory)},
		"GET /v1/alerts":                  {config.ReadScope, a.listAlerts},
		"POST /v1/alerts/test":            {config.WriteScope, a.testAlerts},
		"GET /v1/silences":                {config.ReadScope, a.listSilences},
		"POST /v1/silences":               {config.WriteScope, a.addSilence},
		"DELETE /v1/silences/{id}":        {config.WriteScope, a.removeSilence},
	} {
		mux.Handle(pattern, a.endpoint(e))
	}
	mux.HandleFunc("GET /v1/live", a.streamLive)
	if a.Dashboard != nil {
		mux.Handle("GET /{$}", a.Dashboard)
		mux.Handle("GET /static/", a.Dashboard)
		mux.HandleFunc("GET /static", func(w http.ResponseWriter, _ *http.Request) { refuse(w, errNoPath) }) // else a redirect
	}
	if a.Callers.HasSessions() {
		mux.HandleFunc("POST /v1/session", a.signIn)
		mux.Handle("DELETE /v1/session", a.endpoint(endpoint{config.ReadScope, a.signOut}))
	}
	return a.guarded(mux)
}

// endpoint answers calls of callers with its scope, by a status and a body to encode as JSON, or by an error,
// which may be a *callError.
type endpoint struct {
	scope  config.Scope
	answer func(*call) (status int, body any, err error)
}

// callTimeout bounds how long a call waits for the store.
const callTimeout = 10 * time.Second

func (a *API) endpoint(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, refused := a.authenticate(r, e.scope)
		if refused != nil {
			a.refuseCaller(w, r, who, refused)
			return
		}
		if err := checkQuery(r); err != nil {
			refuse(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		room := a.Bytes.Share(r)
		defer room.Refund()
		r.Body = http.MaxBytesReader(w, io.NopCloser(room.Reader(r.Body)), config.MaxAdminBody)
		about, err := decisionOf(r)
		if err != nil {
			refuse(w, err)
			return
		}
		status, body, err := e.answer(&call{r.WithContext(ctx), who, w.Header(), about})
		if err != nil {
			refuse(w, err)
			return
		}
		write(w, "application/json", status, body)
	})
}

// maxLarge is how many large reads of the store by calls of one scope run at once. One may take tens of MiB
// while it runs, such as the history of offenders.
const maxLarge = 4

// large wraps answer so that it waits until few calls of its kind run. So the holder of a read token can
// neither use up the memory with many calls nor hold up calls with a write token.
func (a *API) large(answer func(*call) (int, any, error)) func(*call) (int, any, error) {
	return func(c *call) (int, any, error) {
		places := a.largeWriting
		if c.who.Scope == config.ReadScope {
			places = a.largeReading
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			return answer(c)
		case <-c.Context().Done():
			return 0, nil, &callError{status: http.StatusServiceUnavailable, detail: "Too many large calls are in flight."}
		}
	}
}

// authenticate returns the caller of r, or why it may not make a call of that scope.
func (a *API) authenticate(r *http.Request, scope config.Scope) (auth.Caller, *auth.Error) {
	who, refused := a.Callers.Authenticate(r, auth.Bearer)
	if refused == nil && who.Scope < scope {
		refused = &auth.Error{Status: http.StatusForbidden, Detail: "This call requires the scope " + scope.String() + "."}
	}
	return who, refused
}

func (a *API) refuseCaller(w http.ResponseWriter, r *http.Request, who auth.Caller, why *auth.Error) {
	a.Refused(a.Callers, r, who, why)
	why.Challenge(w.Header())
	refuse(w, &callError{status: why.Status, detail: why.Detail})
}

var errNoPath = &callError{status: http.StatusNotFound, detail: "There is no such path; docs/admin-api.yaml lists them."}

// guarded answers requests that mux does not know with problem details. All answers have headers that keep
// browsers from showing them as a page or in a frame, and from giving them to pages of other origins. The
// dashboard replaces the policy by its own.
func (a *API) guarded(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		if p := r.URL.EscapedPath(); path.Clean(p) != p {
			r = r.Clone(r.Context()) // mux would redirect it, with a page of its own
			r.URL.Path, r.URL.RawPath = "/unknown", ""
		}
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := &statusOnly{header: http.Header{}}
		mux.ServeHTTP(probe, r)
		e := errNoPath
		if probe.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", probe.header.Get("Allow"))
			e = &callError{status: probe.status, detail: "The methods here are " + probe.header.Get("Allow") + "."}
		}
		refuse(w, e)
	})
}

// statusOnly is a ResponseWriter that keeps only status and headers.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
func (w *statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// refuse answers a call that failed with err.
func refuse(w http.ResponseWriter, err error) {
	var e *callError
	if !errors.As(err, &e) {
		switch {
		case errors.Is(err, stint.ErrRequest):
			e = &callError{status: http.StatusBadRequest, detail: err.Error()}
		case errors.Is(err, stint.ErrUnsupported):
			e = &callError{status: http.StatusNotImplemented, detail: "This store cannot do that: " + err.Error()}
		default:
			e = unavailable(err).(*callError)
		}
	}
	write(w, "application/problem+json", e.status, adminapi.Error{
		Type: "about:blank", Title: http.StatusText(e.status), Status: e.status,
		Detail: e.detail, Newest: e.newest, Problems: e.problems,
	})
}

func write(w http.ResponseWriter, kind string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller may have left
}
