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

// maxQuestion is the size of the largest check request, in bytes, and maxChecks how
// many checks it may bring.
const (
	maxQuestion = 2 << 20
	maxChecks   = 1000
)

var errManyChecks = errors.New("more than 1,000 checks in one request")

// Check is the check API:
//
//	POST /v1/check  whether something may pass: 200, or 429 (403 if blocklisted,
//	                503 if it cannot be decided or this instance has no room);
//	                of a list of up to 1,000: 200, and a list of answers
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
// where the store did not decide; see stint.Fallback. "lease" is the store, which had
// charged it before; see stint.Leases.
//
// The path is as in an HTTP request, escapes and query included; a query of its
// own goes before that.
//
// A list of such objects is decided as if each came by itself, one after another,
// with one call of the store. Each answer is an object like that of a single check,
// problem details among them, with its status as a member, and with retry_after,
// in seconds, where a single check would have the header. An element that is
// malformed is answered with 400 in its place, and the others are decided. No header
// tells of limits. All share the shortest decision_timeout among the rules that they
// face. In a Redis Cluster, checks whose keys lie in several slots come after the
// others.
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
	body, err := readBody(w, r)
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
	all, several, err := readChecks(body)
	if err != nil {
		s.metrics.badRequests.Inc()
		if errors.Is(err, errManyChecks) {
			httplimit.Problem(w, r, http.StatusRequestEntityTooLarge, "More than 1,000 checks in one request.")
			return
		}
		httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	s.decide(r.Context(), all, time.Time{})
	if several {
		s.answerEach(w, r, all)
		return
	}
	s.answerOne(w, r, &all[0])
}

// readBody reads a check request. Of a short one the length is believed, so that it
// is read in one go.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if n := r.ContentLength; n > 0 && n <= 4<<10 {
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
}

// readChecks reads a body: one check, or a list of them. What is wrong with one of
// several is its own error; err is about all of them.
func readChecks(body []byte) (all []trial, several bool, err error) {
	r, err := readJSON(body)
	if err != nil {
		return nil, false, badInput("%w", err)
	}
	if r.peek() != '[' {
		all = make([]trial, 1)
		all[0].in, err = r.check()
		return all, false, err
	}
	type read struct {
		in  *rules.Input
		err error
	}
	var each []read
	err = r.each(func() error {
		if len(each) == maxChecks {
			return errManyChecks
		}
		start := r.at
		in, err := r.check()
		if err != nil {
			r.at = start
			r.skip()
		}
		each = append(each, read{in, err})
		return nil
	})
	all = make([]trial, len(each))
	for i := range each {
		all[i].in, all[i].err = each[i].in, each[i].err
	}
	return all, true, err
}

func (r *reader) check() (*rules.Input, error) {
	q, err := r.question()
	if err != nil {
		return nil, err
	}
	return q.input()
}

// answerOne answers a check request of one check.
func (s *Server) answerOne(w http.ResponseWriter, r *http.Request, t *trial) {
	if t.err != nil {
		t.refuse(w, r)
		return
	}
	a := s.answer(&t.Verdict)
	s.settings.Dialect.SetHeaders(w.Header(), &a)
	if s.settings.DegradedHeader {
		httplimit.SetDegraded(w.Header(), a.By)
	}
	buffer := buffers{}.Get()
	defer buffers{}.Put(buffer)
	send(w, "application/json", t.status(), append(t.appendReply(append(buffer[:0], '{')), "}\n"...))
}

// answerEach answers a check request of several checks: 200, and in the body what
// became of each.
func (s *Server) answerEach(w http.ResponseWriter, r *http.Request, all []trial) {
	room := 2
	for i := range all {
		room += 32 + all[i].size()
	}
	body := append(make([]byte, 0, room), '[')
	var by stint.Source
	for i := range all {
		t := &all[i]
		if i > 0 {
			body = append(body, ',')
		}
		if t.in == nil {
			s.metrics.badRequests.Inc()
		}
		if t.err == nil && !t.By.Counted() {
			by = max(by, t.By)
		}
		body = t.appendTo(body, r)
	}
	if s.settings.DegradedHeader {
		httplimit.SetDegraded(w.Header(), by)
	}
	send(w, "application/json", http.StatusOK, append(body, "]\n"...))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeJSONAs(w, "application/json", status, v)
}

func writeJSONAs(w http.ResponseWriter, kind string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	send(w, kind, status, append(body, '\n'))
}

func send(w http.ResponseWriter, kind string, status int, body []byte) {
	v := []string{kind, strconv.Itoa(len(body)), "no-store"}
	h := w.Header()
	h["Content-Type"], h["Content-Length"], h["Cache-Control"] = v[0:1:1], v[1:2:2], v[2:3:3]
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that is gone needs no answer
}
