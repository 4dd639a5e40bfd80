package check

import (
	"errors"
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/internal/decide"
)

// chargeAnswer is the answer to c, without rules in shadow mode unless they are wanted.
func chargeAnswer(c *decide.Charge, shadows bool) (endJSON, error) {
	if c.Err != nil {
		return endJSON{}, c.Err
	}
	j, err := answerOf(Charged, c.Calls, func(i int) bool { return !shadows && decide.IsShadow(c.Rules[i]) })
	j.Outcome = Charged // also if no rule applies
	return j, err
}

// Charged is the outcome of a charge, and Unknown that of a settlement or a renewal if no hold counts: it was
// settled before, or ran out.
const (
	Charged = "charged"
	Unknown = "unknown"
)

// answerCharge answers a check request of one charge.
func (api *API) answerCharge(w http.ResponseWriter, r *http.Request, c *decide.Charge, shadows bool) {
	j, err := chargeAnswer(c, shadows)
	if err != nil {
		if api.notCharged(err); errors.Is(err, stint.ErrRequest) {
			api.Watch.Malformed(r.Context())
		}
		refuseCharge(w, r, err)
		return
	}
	sendJSON(w, j)
}

// appendCharge appends the element of a list for c.
func (api *API) appendCharge(b []byte, r *http.Request, c *decide.Charge, shadows bool) []byte {
	j, err := chargeAnswer(c, shadows)
	if err != nil {
		if api.notCharged(err); errors.Is(err, stint.ErrRequest) {
			api.Watch.Metrics.BadRequests.Inc()
		}
		return append(b, element(r, err, refuseCharge)...)
	}
	j.Status = http.StatusOK
	return append(b, marshal(j)...)
}

func (api *API) notCharged(err error) {
	if !errors.Is(err, stint.ErrRequest) {
		api.Watch.Sampled.Failure(decide.NoStore, err)
	}
}

// refuseCharge answers with a problem: the charge was not made because of err.
func refuseCharge(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, stint.ErrRequest):
		httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
	case errors.Is(err, fleet.ErrNotCharged):
		refuseForNow(w, r, "The store does not answer right now, and nothing was charged.")
	default:
		refuseForNow(w, r, "The store does not answer right now. It may have charged some of it.")
	}
}
