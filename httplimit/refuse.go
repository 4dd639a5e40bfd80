package httplimit

import (
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Refuse answers r if err is or wraps a *stint.RefusedError, such as that of a stint.Guard in the handler,
// and returns whether it is one; otherwise nothing is written:
//
//	user, err := loadUser(r.Context(), id)
//	if httplimit.XRateLimit.Refuse(w, r, err) {
//		return
//	}
//
// The answer is that of a Middleware with the Dialect d: 429 with Retry-After, the headers of d, and problem
// details or the ErrorFormat of the context of r. It has the Message of the error. If Limiter.Instance refused,
// the answer is that of Overloaded. Call Refuse before anything is written to w.
func (d Dialect) Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	decision, message, ok := stint.Internal(friend.Of{}).Refused(err)
	if !ok {
		return false
	}
	r = d.with(r)
	if decision.By == stint.ByInstance {
		(&Overloaded{RetryAfter: decision.RetryAfter}).Refuse(w, r)
		return true
	}
	a := Answer{Decision: decision, Message: message}
	retryAfter := d.set(w.Header(), &a)
	refusal(&a, d, retryAfter).write(w, r)
	return true
}
