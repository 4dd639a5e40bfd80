package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rules"
)

// maxQuestion is the size of the largest check request, in bytes.
const maxQuestion = 2 << 20

// Check is the check API:
//
//	POST /v1/check  whether something may pass: 200, or 429 (403 if blocklisted,
//	                503 if it cannot be decided or this instance has no room)
//	/v1/authorize   the same of the request that another proxy asks about; see
//	                examples
//	GET /healthz    200 while the process runs
//	GET /readyz     200 while it takes requests, else 503; also 503 if the store
//	                does not decide and a rule denies then
//	GET /metrics    what is counted here, for Prometheus; see docs/metrics.md
//
// A check request is a JSON object of any of these, each known to the rules by
// the same name; what is left out or null is not known, but for cost, which is 1
// then:
//
//	{"operation": "export", "cost": 3, "attrs": {"plan": "free", "size": 12},
//	 "client": "192.0.2.1",
//	 "request": {"method": "GET", "path": "/a%20b?c=d", "host": "example.com",
//	             "headers": {"accept": "*/*", "via": ["a", "b"]}, "query": {"c": "d"}}}
//
// The answer says "by": "local" or "policy", of the whole and of each decision,
// where the store did not decide; see stint.Fallback.
//
// The path is as in an HTTP request, escapes and query included; a query of its
// own goes before that.
func (s *Server) Check() http.Handler {
	mux := http.NewServeMux()
	at, other := &s.instance.check, &s.instance.gateway
	mux.Handle("POST /v1/check", s.capped(at, other, http.HandlerFunc(s.check)))
	mux.Handle("/v1/authorize", s.authorize())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.metrics.handler(s.errorLog))
	return mux
}

func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if err != nil {
		s.metrics.badRequests.Inc()
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			httplimit.Problem(w, r, http.StatusRequestEntityTooLarge, "The body is larger than 2 MiB.")
			return
		}
		httplimit.Problem(w, r, http.StatusBadRequest, "The body cannot be read.")
		return
	}
	v, err := s.ask(r, body)
	if o, is := isOverloaded(err); is {
		o.Refuse(w, r)
		return
	}
	switch {
	case errors.Is(err, stint.ErrRequest):
		httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
		return
	case err != nil:
		w.Header().Set("Retry-After", "1")
		httplimit.Problem(w, r, http.StatusServiceUnavailable, "It cannot be decided at present.")
		return
	}
	a := s.answer(&v)
	s.settings.Dialect.SetHeaders(w.Header(), &a)
	if s.settings.DegradedHeader {
		httplimit.SetDegraded(w.Header(), a.By)
	}
	status := http.StatusOK
	switch {
	case a.Blocked:
		status = http.StatusForbidden
	case !a.Allowed:
		status = http.StatusTooManyRequests
	}
	writeJSON(w, status, v.reply())
}

// ask decides what the body of a check request asks.
func (s *Server) ask(r *http.Request, body []byte) (Verdict, error) {
	in, err := ReadInput(body)
	if err != nil {
		s.metrics.badRequests.Inc()
		return Verdict{}, err
	}
	return s.Decide(r.Context(), in, time.Time{})
}

// never is stint.Never in JSON.
const never = -1

// decisionJSON is a decision in JSON. Durations are µs; −1 is never.
type decisionJSON struct {
	Allowed    bool  `json:"allowed"`
	Limit      int64 `json:"limit"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_us"`
	ResetAfter int64 `json:"reset_after_us"`
	Delay      int64 `json:"delay_us"`
}

func toJSON(d *stint.Decision) decisionJSON {
	j := decisionJSON{
		Allowed:    d.Allowed,
		Remaining:  d.Remaining,
		RetryAfter: d.RetryAfter.Microseconds(),
		ResetAfter: d.ResetAfter.Microseconds(),
		Delay:      d.Delay.Microseconds(),
	}
	if d.Limit != nil {
		j.Limit = d.Limit.Capacity()
	}
	if d.RetryAfter == stint.Never {
		j.RetryAfter = never
	}
	return j
}

// namedJSON is the decision of one limit, with what it is.
type namedJSON struct {
	Rule string `json:"rule"`
	Text string `json:"limit_text"`
	Mode string `json:"mode"`
	By   string `json:"by,omitempty"`
	decisionJSON
}

// replyJSON is the answer to a check request.
type replyJSON struct {
	Outcome string `json:"outcome"`
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"`
	By      string `json:"by,omitempty"`
	decisionJSON
	BanLeft   int64       `json:"ban_left_us"`
	Decisions []namedJSON `json:"decisions"`
}

func (v *Verdict) reply() replyJSON {
	r := replyJSON{
		Outcome:      v.outcome(),
		By:           sayBy(&v.Decision),
		decisionJSON: toJSON(&v.Decision),
		BanLeft:      v.BanLeft.Microseconds(),
		Decisions:    []namedJSON{},
	}
	if v.BanLeft == stint.Never {
		r.BanLeft = never
	}
	if v.Rule != nil {
		r.Rule = v.Rule.Name
		if !v.Allowed {
			r.Message = v.Rule.Message
		}
	}
	for i := range v.Each {
		if v.Each[i].Outcome == 0 {
			continue // in shadow mode, and the store failed
		}
		j := namedJSON{Rule: v.Rules[i].Name, Mode: v.Rules[i].Mode.String(), By: sayBy(&v.Each[i]), decisionJSON: toJSON(&v.Each[i])}
		if v.Each[i].Limit != nil {
			j.Text = v.Each[i].Limit.String()
		}
		r.Decisions = append(r.Decisions, j)
	}
	return r
}

// sayBy is who decided, local or policy; "": the store did.
func sayBy(d *stint.Decision) string {
	if d.By == stint.ByStore {
		return ""
	}
	return d.By.String()
}

// outcome is "allowed", "limited", "warned", "banned" or "blocked".
func (v *Verdict) outcome() string {
	if v.List == rules.Blocked {
		return "blocked"
	}
	return v.Outcome.String()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeJSONAs(w, "application/json", status, v)
}

func writeJSONAs(w http.ResponseWriter, kind string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that is gone needs no answer
}
