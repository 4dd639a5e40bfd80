package httplimit

import (
	"net/http"

	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
)

// Internal is for Stint's own packages, such as rpclimit and server. Others cannot create its
// argument.
func Internal(friend.Of) internals { return internals{} }

// internals has methods that packages of Stint need and users do not. Most are in the file of their
// subject.
type internals struct{}

// SetQueue sets which requests take the turn of a if its client leaves while it waits. The zero
// Queue: none.
func (internals) SetQueue(a *Answer, q places.Queue) { a.queue = q }

// SetCORS sets the CORS headers of c in h, the headers of an answer to a page of an origin. limits, which
// may be h, has the headers about limits that the page may read. It does nothing if c is nil.
func (internals) SetCORS(c *CORS, h http.Header, origin string, limits http.Header) {
	c.set(h, origin, limits)
}

// AnswerPreflight answers the preflight r as c says.
func (internals) AnswerPreflight(c *CORS, w http.ResponseWriter, r *http.Request) {
	c.answerPreflight(w, r)
}
