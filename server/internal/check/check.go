// Package check is the check API: single checks, lists, holds that are settled or renewed, and charges.
package check

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/inflight"
)

// MaxBody is the size of the largest check request in bytes, and MaxChecks the number of
// checks in it.
const (
	MaxBody   = 2 << 20
	MaxChecks = 1000
)

var errManyChecks = errors.New("more than 1,000 checks in one request")

// API answers the calls of the check API. It may be used from many goroutines at once.
type API struct{ *door.Door }

// Checks answers POST /v1/check.
func (api *API) Checks() http.Handler {
	return api.Guard(api.Capped(api.Watch.Tracing.Requests("check", nil, http.HandlerFunc(api.check))))
}

// Settlements answers POST /v1/settle.
func (api *API) Settlements() http.Handler {
	return api.Guard(api.Capped(api.Watch.Tracing.Requests("settle", nil, api.endHolds(stint.HoldSettle))))
}

// Renewals answers POST /v1/renew.
func (api *API) Renewals() http.Handler {
	return api.Guard(api.Capped(api.Watch.Tracing.Requests("renew", nil, api.endHolds(stint.HoldRenew))))
}

// Guard admits only callers who may use the check API.
func (api *API) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, err := api.Callers.Authenticate(r, auth.Bearer); err != nil {
			api.RefusedCaller(api.Callers, r, who, err)
			err.Challenge(w.Header())
			httplimit.Problem(w, r, err.Status, err.Detail)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (api *API) check(w http.ResponseWriter, r *http.Request) {
	shadows, wrong := readShadow(r)
	if wrong != "" {
		api.Watch.Malformed(r.Context())
		httplimit.Problem(w, r, http.StatusBadRequest, wrong)
		return
	}
	room := api.Admission.Bytes.Share(r)
	defer room.Refund()
	body, ok := api.readJSON(w, r, &room)
	if !ok {
		return
	}
	b := batches.Get().(*batch)
	defer b.free()
	several, err := b.read(body)
	if err != nil {
		api.refuseBody(w, r, err)
		return
	}
	for _, q := range b.inputs {
		api.Calls.Set(q.Descriptors)
	}
	api.Decide(r.Context(), b.requests, time.Time{}, shadows)
	api.Decider.Charge(r.Context(), b.charges)
	if several {
		api.answerEach(w, r, b, shadows)
		return
	}
	api.answerOne(w, r, b, shadows)
}

// readBody reads a check request. It believes Content-Length unless that is large, to read the
// body in one go. It reserves memory for the bytes that it keeps and for their decoded form.
func readBody(w http.ResponseWriter, r *http.Request, room *inflight.Share) (string, error) {
	n := r.ContentLength
	if n > 0 && n <= door.SmallBody {
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)
		return string(body), err
	}
	if err := room.Take(door.BufferSize); err != nil {
		return "", err
	}
	buffer := door.Buffers{}.Get()
	defer door.Buffers{}.Put(buffer)
	if n > 0 && n <= door.BufferSize {
		if _, err := io.ReadFull(r.Body, buffer[:n]); err != nil {
			return "", err
		}
		body := string(buffer[:n])
		return body, room.Take(door.DecodedBytes(body))
	}
	var body strings.Builder
	if _, err := io.CopyBuffer(&body, room.Reader(http.MaxBytesReader(w, r.Body, MaxBody)), buffer); err != nil {
		return "", err
	}
	return body.String(), room.Take(door.DecodedBytes(body.String()))
}

// answerOne answers a check request of one check.
func (api *API) answerOne(w http.ResponseWriter, r *http.Request, b *batch, shadows bool) {
	if len(b.charges) > 0 {
		api.answerCharge(w, r, &b.charges[0], shadows)
		return
	}
	t := &b.requests[0]
	if t.Err != nil {
		refuse(t, w, r)
		return
	}
	a := api.Answer(t)
	api.Settings.Dialect.SetHeaders(w.Header(), &a)
	if api.Settings.DegradedHeader {
		httplimit.Internal(friend.Of{}).SetDegraded(w.Header(), a.By)
	}
	if api.Settings.ViolationsHeader {
		httplimit.Internal(friend.Of{}).SetViolations(w.Header(), &a.Decision)
	}
	if !t.Allowed {
		httplimit.Internal(friend.Of{}).SetID(w.Header(), t.ID)
	}
	b.answer = append(appendReply(append(b.answer[:0], '{'), t, shadows), "}\n"...)
	send(w, "application/json", statusOf(t), b.answer)
}

// answerEach answers a check request of several checks: 200, and each result in the body.
func (api *API) answerEach(w http.ResponseWriter, r *http.Request, b *batch, shadows bool) {
	room := 2
	for i := range b.requests {
		room += 32 + sizeOf(&b.requests[i].Verdict)
	}
	charges := b.charges
	answer := append(slices.Grow(b.answer[:0], room), '[')
	var by stint.Source
	for i := range b.requests {
		t := &b.requests[i]
		if i > 0 {
			answer = append(answer, ',')
		}
		if t.In == nil && t.Err == nil {
			answer = api.appendCharge(answer, r, &charges[0], shadows)
			charges = charges[1:]
			continue
		}
		if t.In == nil {
			api.Watch.Metrics.BadRequests.Inc()
		}
		if t.Err == nil && !stint.Internal(friend.Of{}).IsShared(t.By) {
			by = max(by, t.By)
		}
		answer = appendElement(answer, t, r, shadows)
	}
	b.answer = append(answer, "]\n"...)
	if api.Settings.DegradedHeader {
		httplimit.Internal(friend.Of{}).SetDegraded(w.Header(), by)
	}
	send(w, "application/json", http.StatusOK, b.answer)
}

func send(w http.ResponseWriter, kind string, status int, body []byte) {
	v := []string{kind, strconv.Itoa(len(body)), "no-store"}
	h := w.Header()
	h["Content-Type"], h["Content-Length"], h["Cache-Control"] = v[0:1:1], v[1:2:2], v[2:3:3]
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may have left
}

// readShadow reports whether a check asks for the answers of rules in shadow mode. wrong is the error in the
// query; empty: none.
func readShadow(r *http.Request) (asked bool, wrong string) {
	if r.URL.RawQuery == "" {
		return false, ""
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false, "The query cannot be read: " + err.Error() + "."
	}
	switch values := query["shadow"]; {
	case values == nil, len(values) == 1 && values[0] == "false":
		return false, ""
	case len(values) == 1 && values[0] == "true":
		return true, ""
	}
	return false, "The parameter shadow must be true or false."
}
