package httplimit

import (
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Refuse answers r and returns true if err is or wraps a *stint.RefusedError, for example from a
// stint.Guard in the handler; otherwise it writes nothing:
//
//	user, err := loadUser(r.Context(), id)
//	if httplimit.XRateLimit.Refuse(w, r, err) {
//		return
//	}
//
// It answers like a Middleware with the Dialect d: 429 with Retry-After, the headers of d, and problem
// details or the ErrorFormat of the context of r, with the Message of the error. If Limiter.Instance refused,
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
