package httplimit

import (
	"net/http"
	"strconv"
	"time"
)

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
