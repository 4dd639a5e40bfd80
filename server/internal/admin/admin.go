package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/internal/strictjson"
)

// Admin is the admin API, which docs/admin-api.yaml describes: it shows, changes
// and undoes what is in force while everything runs.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	for pattern, e := range map[string]endpoint{
		"GET /v1/status":                  {config.ReadScope, s.showStatus},
		"GET /v1/rules":                   {config.ReadScope, s.showRules},
		"PUT /v1/rules":                   {config.WriteScope, s.pushRules},
		"POST /v1/rules/check":            {config.ReadScope, s.checkRules},
		"GET /v1/rules/versions":          {config.ReadScope, s.listVersions},
		"GET /v1/rules/versions/{number}": {config.ReadScope, s.showVersion},
		"POST /v1/rules/rollback":         {config.WriteScope, s.rollbackRules},
		"GET /v1/rules/source":            {config.ReadScope, s.showSource},
		"PUT /v1/rules/source":            {config.WriteScope, s.setSource},
		"GET /v1/switches":                {config.ReadScope, s.showSwitches},
		"PATCH /v1/switches":              {config.WriteScope, s.setSwitches},
		"GET /v1/overrides":               {config.ReadScope, s.listOverrides},
		"POST /v1/overrides":              {config.WriteScope, s.addOverride},
		"DELETE /v1/overrides/{id}":       {config.WriteScope, s.removeOverride},
		"GET /v1/lists/{list}":            {config.ReadScope, s.showList},
		"POST /v1/lists/{list}":           {config.WriteScope, s.addListed},
		"DELETE /v1/lists/{list}/{id}":    {config.WriteScope, s.removeListed},
		"GET /v1/bans":                    {config.ReadScope, s.listBans},
		"POST /v1/bans":                   {config.WriteScope, s.addBan},
		"DELETE /v1/bans/{id}":            {config.WriteScope, s.removeBan},
		"POST /v1/bans/lift":              {config.WriteScope, s.liftBans},
		"POST /v1/keys/show":              {config.ReadScope, s.showKey},
		"POST /v1/keys/reset":             {config.WriteScope, s.resetKey},
		"POST /v1/keys/refund":            {config.WriteScope, s.refundKey},
		"POST /v1/explain":                {config.ReadScope, s.explainRequest},
	} {
		mux.Handle(pattern, s.endpoint(e))
	}
	return s.guarded(mux)
}

// endpoint answers calls of those who have its scope with a status and what is to
// be written as JSON, or with an error, of which a *callError says more.
type endpoint struct {
	scope  config.Scope
	answer func(*call) (status int, body any, err error)
}

// call is one call of the admin API.
type call struct {
	*http.Request
	who auth.Caller
}

// callTimeout bounds how long a call waits for the store.
const callTimeout = 10 * time.Second

func (s *Server) endpoint(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, refused := s.adminCallers.Authenticate(r, auth.Bearer)
		if refused == nil && who.Scope < e.scope {
			refused = &auth.Error{Status: http.StatusForbidden, Detail: "This takes the scope " + e.scope.String() + "."}
		}
		if refused != nil {
			s.sampled.refusedCaller(s.adminCallers, r, who, refused)
			refused.Challenge(w.Header())
			s.refuseCall(w, &callError{status: refused.Status, detail: refused.Detail})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		room := s.adminBytes.Share(r)
		defer room.Refund()
		r.Body = http.MaxBytesReader(w, io.NopCloser(room.Reader(r.Body)), config.MaxAdminBody)
		status, body, err := e.answer(&call{r.WithContext(ctx), who})
		if err != nil {
			s.refuseCall(w, err)
			return
		}
		writeJSON(w, status, body)
	})
}

// guarded makes the answers of mux to what it does not know look like ours.
func (s *Server) guarded(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); path.Clean(p) != p {
			r = r.Clone(r.Context()) // mux would redirect it, with a page of its own
			r.URL.Path, r.URL.RawPath = "/", ""
		}
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := &statusOnly{header: http.Header{}}
		mux.ServeHTTP(probe, r)
		e := &callError{status: http.StatusNotFound, detail: "There is no such path; docs/admin-api.yaml lists them."}
		if probe.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", probe.header.Get("Allow"))
			e = &callError{status: probe.status, detail: "The methods here are " + probe.header.Get("Allow") + "."}
		}
		s.refuseCall(w, e)
	})
}

// statusOnly is a ResponseWriter that keeps nothing but status and headers.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
func (w *statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// callError is why a call came to nothing.
type callError struct {
	status   int
	detail   string
	problems []adminapi.Problem
	newest   *int64 // number of the rules' newest version, where a race was lost
}

func (e *callError) Error() string {
	return (&adminapi.Error{Detail: e.detail, Problems: e.problems}).Error()
}

func badCall(format string, args ...any) error {
	return &callError{status: http.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

// impossible is an error of a call that was understood, in a field.
func impossible(where, format string, args ...any) error {
	return &callError{
		status:   http.StatusUnprocessableEntity,
		detail:   "It was understood, but cannot be done; nothing was changed.",
		problems: []adminapi.Problem{{Where: where, Text: fmt.Sprintf(format, args...)}},
	}
}

func notFound(format string, args ...any) error {
	return &callError{status: http.StatusNotFound, detail: fmt.Sprintf(format, args...)}
}

// unavailable is an error of a call that the store did not answer.
func unavailable(err error) error {
	return &callError{status: http.StatusServiceUnavailable, detail: "The store does not answer: " + err.Error()}
}

func (s *Server) refuseCall(w http.ResponseWriter, err error) {
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
	writeJSONAs(w, "application/problem+json", e.status, adminapi.Error{
		Type: "about:blank", Title: http.StatusText(e.status), Status: e.status,
		Detail: e.detail, Newest: e.newest, Problems: e.problems,
	})
}

// json is the call's body, as JSON.
func (c *call) json() (*strictjson.Reader, error) {
	body, err := c.bytes()
	if err != nil {
		return nil, err
	}
	r, err := strictjson.New(string(body))
	if err == nil {
		err = r.Valid()
	}
	if err != nil {
		return nil, badCall("The body cannot be read: %s.", err)
	}
	return &r, nil
}

// bytes is the call's body.
func (c *call) bytes() ([]byte, error) {
	if !isJSON(c.Header) {
		return nil, &callError{status: http.StatusUnsupportedMediaType, detail: "The Content-Type must be application/json."}
	}
	body, err := io.ReadAll(c.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, inflight.ErrNoRoom):
		return nil, &callError{status: http.StatusServiceUnavailable, detail: "Too many large calls are under way."}
	case errors.As(err, &tooLarge):
		return nil, &callError{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("The body is larger than %d bytes.", config.MaxAdminBody)}
	case err != nil:
		return nil, badCall("The body cannot be read.")
	}
	return body, nil
}

// maxReason is the length of the longest reason or note, in bytes.
const maxReason = 500

func checkReason(text string) error {
	if len(text) > maxReason || strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
		return fmt.Errorf("must be one line of at most %d bytes", maxReason)
	}
	return nil
}

// reason is why a call is made that has no body, as its query tells.
func (c *call) reason() (string, error) {
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return "", badCall("The query cannot be read: %s.", err)
	}
	if len(query["reason"]) > 1 {
		return "", badCall("The parameter reason is given twice.")
	}
	reason := query.Get("reason")
	if err := checkReason(reason); err != nil {
		return "", badCall("The parameter reason %s.", err)
	}
	return reason, nil
}
