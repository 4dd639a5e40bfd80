package httplimit

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/spelling"
)

// problem is the body of a refusal; see Problem. It contains nothing that the client sent,
// such as keys or headers.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title,omitempty"` // a status without a name has none
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Outcome    string `json:"outcome,omitempty"`
	LimitName  string `json:"limit_name,omitempty"`
	Limit      string `json:"limit,omitempty"`
	Unit       string `json:"unit,omitempty"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds, as in the header
	Violations int64  `json:"violations,omitempty"`
	WarnAfter  int64  `json:"warn_after,omitempty"`
	BanAfter   int64  `json:"ban_after,omitempty"`
	amount     int64  // of the limit
	// Error is for clients of OpenAI and Anthropic, which report only this.
	Error *apiError `json:"error,omitempty"`

	format  *ErrorFormat // nil: that of the request's context
	counted bool         // a limit or a ban refuses
	answer  *Answer      // nil: nothing was decided
}

// apiError is an error for clients of OpenAI and Anthropic, with a type of Anthropic and a code of
// OpenAI.
type apiError struct {
	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// apiKey is the context key which marks requests of clients of OpenAI or Anthropic.
type apiKey struct{}

// with returns r, marked so that problems have the error that clients of d read.
func (d Dialect) with(r *http.Request) *http.Request {
	if d&(OpenAI|Anthropic) == 0 {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), apiKey{}, true))
}

func (p *problem) apiError() *apiError {
	e := &apiError{Type: "api_error", Message: p.Detail}
	status := p.Status
	if p.counted { // whatever status its format has
		status = http.StatusTooManyRequests
	}
	switch status {
	case http.StatusForbidden:
		e.Type = "permission_error"
	case http.StatusNotFound:
		e.Type = "not_found_error"
	case http.StatusTooManyRequests:
		e.Type, e.Code = "rate_limit_error", "rate_limit_exceeded"
	case http.StatusServiceUnavailable:
		e.Type = "overloaded_error"
	case http.StatusGatewayTimeout:
		e.Type = "timeout_error"
	default:
		if status < 500 {
			e.Type = "invalid_request_error"
		}
	}
	return e
}

// Problem answers r with problem details (RFC 9457, application/problem+json), as
// Middleware answers requests that it refuses, and with Cache-Control: no-store. detail
// is a sentence for the client. Within GRPC, the answer to a gRPC request is a gRPC
// status. Within CORS, pages of other origins can read the answer.
//
// A Middleware adds these members, each where it applies: outcome ("limited", "warned",
// "banned", "blocked" or "overloaded"; all are refusals), limit_name, limit (its text),
// unit (what it counts), retry_after (seconds), and if the refusal counts as a violation, violations,
// warn_after and ban_after. With the dialects OpenAI and Anthropic, each problem has error; see
// OpenAI.
//
// If the context of r has an ErrorFormat, Problem answers in that; see WithErrorFormat.
func Problem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p := problem{Status: status, Detail: detail}
	p.write(w, r)
}

func (p *problem) write(w http.ResponseWriter, r *http.Request) {
	if p.format == nil {
		p.format, _ = r.Context().Value(formatKey{}).(*ErrorFormat)
	}
	if r.Context().Value(grpcKey{}) != nil {
		p.writeGRPC(w.Header())
		w.WriteHeader(http.StatusOK)
		return
	}
	h := w.Header()
	// A handler around this one may have set these for a response that will not come.
	for _, name := range [...]string{"Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, name)
	}
	contentType, body := p.formatted(h, r)
	if body == nil {
		contentType, body = "application/problem+json", p.document(r)
	}
	h["Content-Type"] = []string{contentType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	// A cache must not give this client's answer to others, even if it caches errors.
	h["Cache-Control"] = []string{"no-store"}
	if c := corsOf(r); c != nil {
		c.set(h, internals{}.Origin(r), h)
		if h[allowOrigin] != nil {
			expose(h, h, p.format.HasHeader)
		}
	}
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that is gone needs no answer
	}
}

// document returns the problem details.
func (p *problem) document(r *http.Request) []byte {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	if r.Context().Value(apiKey{}) != nil {
		p.Error = p.apiError()
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return append(body, '\n')
}

// refusal returns the problem for an Answer that does not pass.
func refusal(a *Answer, d Dialect, retryAfter int64) *problem {
	if a.Blocked {
		p := &problem{Status: http.StatusForbidden, Outcome: "blocked", Detail: a.Message, answer: a}
		if p.Detail == "" {
			p.Detail = "This request is not accepted."
		}
		return p
	}
	p := &problem{Status: http.StatusTooManyRequests, Detail: a.Message, RetryAfter: retryAfter, format: a.Format, counted: true, answer: a}
	if a.Outcome > stint.Allowed {
		p.Outcome = a.Outcome.String()
	}
	if a.Limit != nil && d != NoHeaders {
		p.LimitName, p.Limit, p.Unit, p.amount = a.Limit.Spec().Name, a.Limit.Terms(), a.decidingUnit(), a.Limit.Spec().Amount
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

// Detail returns the sentence for a client that a refuses, as in problem details: Message, or a
// sentence made from the Decision. retryAfter is when to retry; 0: no wait would help.
func (internals) Detail(a *Answer, d Dialect, retryAfter time.Duration) string {
	return refusal(a, d, int64((retryAfter+time.Second-1)/time.Second)).Detail
}

// sentence returns the detail for an Answer without a Message.
func (p *problem) sentence(a *Answer) string {
	s := "Too many requests."
	switch {
	case !a.Busy:
	case a.Limit.Spec().Algorithm == stint.InFlight:
		s = "Too many requests are in flight."
	default:
		s = "Requests in flight hold what is left."
	}
	switch a.Outcome {
	case stint.Warned:
		s = "Too many requests. If this continues, you will be banned."
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
		s += " The limit is " + p.Limit
		if p.Unit != "" && p.Unit != "requests" {
			s += ", in " + p.Unit
		}
		s += "."
	}
	switch {
	case p.RetryAfter == 0 && a.Outcome == stint.Banned: // a ban without end
	case p.RetryAfter == 0:
		s += " This request costs more than the limit allows at once."
	default:
		s += " Retry after " + spelling.Several(p.RetryAfter, "second") + "."
	}
	return s
}

// Overloaded is the error of a Decide for a request that this process, not the client,
// has no capacity for. The request is answered with 503 and Retry-After, and
// Middleware.Undecided is not called.
type Overloaded struct {
	// RetryAfter is when to retry. The client gets it in whole seconds, at least 1.
	RetryAfter time.Duration
}

// Error returns a text for the log.
func (o *Overloaded) Error() string {
	return "this instance is overloaded: retry after " + o.RetryAfter.String()
}

// Is is for errors.Is: packages of this module that know no HTTP ask so whether an error is an Overloaded.
func (o *Overloaded) Is(target error) bool { return target == friend.ErrOverloaded }

// Refuse answers r with 503, Retry-After and problem details with the outcome
// "overloaded". It does not read r's body. If an HTTP/1 request has one, it closes the
// connection, because net/http would otherwise read up to 256 KiB of the body before it
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
		Detail:     "The server is overloaded and accepts no more requests right now.",
		Outcome:    "overloaded",
		RetryAfter: seconds,
	}
	p.write(w, r)
}
