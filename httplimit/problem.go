package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/stintdev/stint"
)

// problem is the body of what is refused: problem details by RFC 9457. It holds
// nothing that the client sent, neither keys nor headers.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Outcome    string `json:"outcome,omitempty"`
	LimitName  string `json:"limit_name,omitempty"`
	Limit      string `json:"limit,omitempty"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds, as in the header
	Violations int64  `json:"violations,omitempty"`
	WarnAfter  int64  `json:"warn_after,omitempty"`
	BanAfter   int64  `json:"ban_after,omitempty"`
}

// Problem answers r with problem details, as Middleware answers what it refuses.
// detail is a sentence for the client. Behind GRPC, it may be a status of gRPC.
func Problem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem{Status: status, Detail: detail}
	p.write(w, r)
}

func (p *problem) write(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(grpcKey{}) != nil {
		p.writeGRPC(w.Header())
		w.WriteHeader(http.StatusOK)
		return
	}
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	body = append(body, '\n')
	h := w.Header()
	// What wraps us may have said these of the response that will not come.
	for _, name := range [...]string{"Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, name)
	}
	h["Content-Type"] = []string{"application/problem+json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	// It is one client's answer of this moment: a cache between must not give it
	// to the next, even if it is set up to keep errors.
	h["Cache-Control"] = []string{"no-store"}
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that is gone needs no answer
	}
}

// refusal is the problem of an Answer that does not pass.
func refusal(a *Answer, d Dialect, retryAfter int64) *problem {
	if a.Blocked {
		p := &problem{Status: http.StatusForbidden, Outcome: "blocked", Detail: a.Message}
		if p.Detail == "" {
			p.Detail = "This request is not accepted."
		}
		return p
	}
	p := &problem{Status: http.StatusTooManyRequests, Detail: a.Message, RetryAfter: retryAfter}
	if a.Outcome > stint.Allowed {
		p.Outcome = a.Outcome.String()
	}
	if a.Limit != nil && d != NoHeaders {
		p.LimitName, p.Limit = a.Limit.Name(), a.Limit.Terms()
	}
	if a.Violations > 0 && d != NoHeaders {
		s := a.Penalty.Spec()
		p.Violations, p.WarnAfter, p.BanAfter = a.Violations, s.WarnAfter, s.BanAfter
	}
	if p.Detail == "" {
		p.Detail = p.sentence(a)
	}
	return p
}

func (p *problem) sentence(a *Answer) string {
	s := "Too many requests."
	switch a.Outcome {
	case stint.Warned:
		s = "Too many requests. More of them lead to a ban."
		if a.Penalty != nil && a.Penalty.Spec().BanAfter == 0 {
			s = "Too many requests. This is a warning."
		}
	case stint.Banned:
		s = "Banned because of too many requests."
	}
	if a.Cause != "" {
		s = a.Cause
	}
	if p.Limit != "" {
		s += " The limit is " + p.Limit + "."
	}
	switch {
	case p.RetryAfter == 0 && a.Outcome == stint.Banned: // for good
	case p.RetryAfter == 0:
		s += " This request costs more than is allowed at once."
	case p.RetryAfter == 1:
		s += " Retry after 1 second."
	default:
		s += " Retry after " + strconv.FormatInt(p.RetryAfter, 10) + " seconds."
	}
	return s
}

// Overloaded is an error that a Decide returns where the process, and not the
// client, is at its end. The request is answered with 503 and Retry-After, and
// OnError is not asked whether to let it pass.
type Overloaded struct {
	// RetryAfter is when to try again; the client is told whole seconds, at least 1.
	RetryAfter time.Duration
}

// Error is a sentence for the log.
func (o *Overloaded) Error() string {
	return "this instance takes no more requests at present: retry after " + o.RetryAfter.String()
}

// Refuse answers r with 503, Retry-After and problem details of the outcome
// "overloaded". It does not read r's body: where one is still to come by HTTP/1, it
// closes the connection, for net/http would wait for up to 256 KiB of it before it
// answers.
func (o *Overloaded) Refuse(w http.ResponseWriter, r *http.Request) {
	seconds := max(1, int64((o.RetryAfter+time.Second-1)/time.Second))
	h := w.Header()
	h["Retry-After"] = []string{strconv.FormatInt(seconds, 10)}
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		h["Connection"] = []string{"close"}
	}
	p := problem{
		Status:     http.StatusServiceUnavailable,
		Detail:     "This server takes no more requests at present.",
		Outcome:    "overloaded",
		RetryAfter: seconds,
	}
	p.write(w, r)
}
