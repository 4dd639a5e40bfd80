package httplimit

import (
	"net/http"

	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
)

// Internal is for Stint's own packages, such as rpclimit and server. Others cannot make its argument.
func Internal(friend.Of) internals { return internals{} }

// internals has what packages of Stint need and users do not. Most methods lie beside what they are about.
type internals struct{}

// SetQueue says which requests take the turn of a if its client leaves while it waits. The zero
// Queue: none.
func (internals) SetQueue(a *Answer, q places.Queue) { a.queue = q }

// SetCORS sets in h, the header of an answer to a page of an origin, what c says of it. limits, which may
// be h, has the headers about limits that the page may read. It does nothing if c is nil.
func (internals) SetCORS(c *CORS, h http.Header, origin string, limits http.Header) {
	c.set(h, origin, limits)
}

// AnswerPreflight answers r, which is a preflight, as c says.
func (internals) AnswerPreflight(c *CORS, w http.ResponseWriter, r *http.Request) {
	c.answerPreflight(w, r)
}
