package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/internal/watch"
)

// endHolds answers /v1/settle and /v1/renew: one call, or a list of up to MaxChecks.
func (api *API) endHolds(action stint.HoldAction) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		room := api.Admission.Bytes.Share(r)
		defer room.Refund()
		body, ok := api.readJSON(w, r, &room)
		if !ok {
			return
		}
		e := holdEnds{action: action}
		several, err := e.read(body)
		if err == nil && len(body) > door.SmallBody {
			err = room.Take(int64(len(e.calls)) * heldBytes)
		}
		if err != nil {
			api.refuseBody(w, r, err)
			return
		}
		ctx, cancel := decide.Outliving(r.Context())
		defer cancel()
		api.Decider.Hold(ctx, time.Time{}, e.calls)
		e.count(api.Watch.Current())
		if several {
			api.answerEnds(w, r, &e)
			return
		}
		api.answerEnd(w, r, &e)
	})
}

// holdEnds are the calls of one request, which settle or renew holds.
type holdEnds struct {
	action stint.HoldAction
	ends   []holdEnd
	calls  []stint.HoldCall // of all ends
	reader holdReader
}

// holdEnd is one hold to settle or renew.
type holdEnd struct {
	hold     *checkHold
	from, to int   // the calls that answer it
	err      error // why it cannot be read
}

// maxCalls bounds the calls of the store for one request: a hold can have hundreds of limits in few bytes.
const maxCalls = 10_000

var errManyCalls = errors.New("holds of more than 10,000 limits in one request")

var (
	settleFields = []string{"hold", "cost", "costs"}
	renewFields  = []string{"hold", "again"}
)

// read reads a body: one call, or a list. If a call of a list is wrong, its holdEnd has the
// error.
func (e *holdEnds) read(body string) (several bool, err error) {
	r, err := newInputReader(body)
	if err != nil {
		return false, err
	}
	if several = r.Peek() == '['; several {
		err = r.List(func() error { return e.readNext(r) })
	} else {
		err = e.readOne(r)
	}
	switch err = r.End(err); {
	case errors.Is(err, errManyChecks), errors.Is(err, errManyCalls):
		return several, err
	case err != nil:
		return several, BadInput("%w", err)
	}
	return several, nil
}

// count counts the settlements.
func (e *holdEnds) count(c *watch.Served) {
	if e.action != stint.HoldSettle {
		return
	}
	for i := range e.ends {
		if end := &e.ends[i]; end.err == nil {
			c.Settled(e.calls[end.from:end.to])
		}
	}
}

// readNext reads one call of a list.
func (e *holdEnds) readNext(r *inputReader) error {
	if len(e.ends) == MaxChecks {
		return errManyChecks
	}
	start := r.Mark()
	err := e.readOne(r)
	if len(e.calls) > maxCalls {
		return errManyCalls
	}
	if err == nil {
		return nil
	}
	if invalid := r.Valid(); invalid != nil {
		return invalid
	}
	r.SkipFrom(start)
	e.ends = append(e.ends, holdEnd{err: BadInput("%w", err)})
	return nil
}

// readOne reads one call, and adds it.
func (e *holdEnds) readOne(r *inputReader) error {
	fields := settleFields
	if e.action == stint.HoldRenew {
		fields = renewFields
	}
	var text string
	var again bool
	cost, costs := int64(-1), map[string]int64(nil)
	err := r.Fields(fields, func(i int) (err error) {
		switch fields[i] {
		case "hold":
			return r.name(&text)
		case "again":
			return r.ReadBool(&again)
		case "cost":
			return r.units(&cost)
		default:
			costs, err = r.costs()
			return err
		}
	})
	if err != nil {
		return err
	}
	if text == "" {
		return errors.New("hold: want the hold that /v1/check returned")
	}
	h, err := e.reader.read(text)
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	calls := h.calls(e.action)
	for i := range calls {
		c := &calls[i]
		if c.Cost = cost; cost < 0 {
			c.Cost = c.Units
		}
		if own, ok := costs[decide.RuleOf(c.Limit)]; ok {
			c.Cost = own
		}
	}
	if err := namesRules(costs, calls); err != nil {
		return err
	}
	if again {
		e.calls = append(e.calls, calls...)
		for i := range calls { // later calls find the holds that they make
			e.calls[len(e.calls)-len(calls)+i].Again = true
		}
	}
	e.ends = append(e.ends, holdEnd{hold: h, from: len(e.calls), to: len(e.calls) + len(calls)})
	e.calls = append(e.calls, calls...)
	return nil
}

// namesRules returns an error if costs names a rule that holds nothing.
func namesRules(costs map[string]int64, calls []stint.HoldCall) error {
	for rule := range costs {
		if !slices.ContainsFunc(calls, func(c stint.HoldCall) bool { return decide.RuleOf(c.Limit) == rule }) {
			return fmt.Errorf("costs: this hold has nothing of rule %.64q", rule)
		}
	}
	return nil
}

// units reads a number of units, which may be 0.
func (r *inputReader) units(to *int64) error {
	if err := r.ReadInt(to); err != nil {
		return err
	}
	if *to < 0 {
		return fmt.Errorf("%d: must not be negative", *to)
	}
	return nil
}

// costs reads an object whose values are numbers of units.
func (r *inputReader) costs() (map[string]int64, error) {
	all := map[string]int64{}
	err := r.Object(func(rule string) error {
		if _, twice := all[rule]; twice {
			return fmt.Errorf("%.64q is given twice", rule)
		}
		var n int64
		err := r.units(&n)
		all[rule] = n
		return err
	})
	return all, err
}

// endedJSON is how a key stands under a limit after a settlement, a renewal or a charge.
type endedJSON struct {
	Rule       string `json:"rule"`
	Text       string `json:"limit_text"`
	By         string `json:"by,omitempty"`
	Found      bool   `json:"found"`
	Charged    int64  `json:"charged"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	Held       int64  `json:"held"`
	ResetAfter int64  `json:"reset_after_us"`
}

// endJSON is the answer to a settlement, a renewal or a charge.
type endJSON struct {
	Status    int         `json:"status,omitempty"` // in lists
	Outcome   string      `json:"outcome"`
	Decisions []endedJSON `json:"decisions"`
}

// answerOf makes an answer from calls, without hidden ones. outcome is its outcome if one of them found
// something.
func answerOf(outcome string, calls []stint.HoldCall, hidden func(i int) bool) (endJSON, error) {
	j := endJSON{Outcome: Unknown, Decisions: make([]endedJSON, 0, len(calls))}
	for i := range calls {
		c := &calls[i]
		if c.Err != nil {
			return j, c.Err
		}
		if c.Found {
			j.Outcome = outcome
		}
		if hidden(i) {
			continue
		}
		d := endedJSON{
			Rule: decide.RuleOf(c.Limit), Text: c.Limit.Terms(), Found: c.Found, Charged: c.Charged,
			Limit: c.Limit.Capacity(), Remaining: c.Remaining, Held: c.Held, ResetAfter: c.ResetAfter.Microseconds(),
		}
		if c.By != stint.ByStore {
			d.By = c.By.String()
		}
		j.Decisions = append(j.Decisions, d)
	}
	return j, nil
}

// answer is the answer about one hold.
func (e *holdEnds) answer(end *holdEnd) (endJSON, error) {
	if end.err != nil {
		return endJSON{}, end.err
	}
	outcome := "settled"
	if e.action == stint.HoldRenew {
		outcome = "renewed"
	}
	return answerOf(outcome, e.calls[end.from:end.to], func(i int) bool { return end.hold.asks[i].shadow })
}

func (api *API) answerEnd(w http.ResponseWriter, r *http.Request, e *holdEnds) {
	j, err := e.answer(&e.ends[0])
	if err != nil {
		if errors.Is(err, stint.ErrRequest) {
			api.Watch.Malformed(r.Context())
		} else {
			api.Watch.Sampled.Failure(decide.NoStore, err)
		}
		refuseHold(w, r, err)
		return
	}
	sendJSON(w, j)
}

func (api *API) answerEnds(w http.ResponseWriter, r *http.Request, e *holdEnds) {
	all := make([]any, len(e.ends))
	for i := range e.ends {
		j, err := e.answer(&e.ends[i])
		j.Status = http.StatusOK
		switch all[i] = j; {
		case err == nil:
			continue
		case errors.Is(err, stint.ErrRequest):
			api.Watch.Metrics.BadRequests.Inc()
		default:
			api.Watch.Sampled.Failure(decide.NoStore, err)
		}
		all[i] = json.RawMessage(element(r, err, refuseHold))
	}
	sendJSON(w, all)
}

// refuseHold answers with a problem: a hold was not settled or renewed because of err.
func refuseHold(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, stint.ErrRequest) {
		httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	refuseForNow(w, r, "The store does not answer right now. Retry the call; it is idempotent.")
}

// refuseForNow answers 503.
func refuseForNow(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header().Set("Retry-After", "1")
	httplimit.Problem(w, r, http.StatusServiceUnavailable, detail)
}

// element is the problem that refuse answers for err, as an element of a list.
func element(r *http.Request, err error, refuse func(http.ResponseWriter, *http.Request, error)) []byte {
	p := door.Page{Headers: http.Header{}}
	refuse(&p, r, err)
	body := bytes.TrimSpace(p.Text)
	if p.Headers.Get("Retry-After") == "" {
		return body
	}
	return append([]byte(`{"retry_after":1,`), body[1:]...)
}

// marshal is the JSON of v, which has texts and numbers only.
func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

func sendJSON(w http.ResponseWriter, v any) {
	send(w, "application/json", http.StatusOK, append(marshal(v), '\n'))
}

// readJSON reads the body of a call of the check API. If it cannot, it answers.
func (api *API) readJSON(w http.ResponseWriter, r *http.Request, room *inflight.Share) (body string, ok bool) {
	if !httpfield.IsJSON(r.Header) {
		api.Watch.Malformed(r.Context())
		httplimit.Problem(w, r, http.StatusUnsupportedMediaType, "The Content-Type must be application/json.")
		return "", false
	}
	body, err := readBody(w, r, room)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return body, true
	case errors.Is(err, inflight.ErrNoRoom):
		api.Admission.RefuseBytes(w, r)
		return "", false
	case errors.As(err, &tooLarge):
		httplimit.Problem(w, r, http.StatusRequestEntityTooLarge, "The body is larger than 2 MiB.")
	default:
		httplimit.Problem(w, r, http.StatusBadRequest, "The body cannot be read.")
	}
	api.Watch.Malformed(r.Context())
	return "", false
}

// refuseBody answers a call whose body was read and is wrong.
func (api *API) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, inflight.ErrNoRoom) {
		api.Admission.RefuseBytes(w, r)
		return
	}
	api.Watch.Malformed(r.Context())
	switch {
	case errors.Is(err, errManyChecks):
		httplimit.Problem(w, r, http.StatusRequestEntityTooLarge, "More than 1,000 checks in one request.")
		return
	case errors.Is(err, errManyCalls):
		httplimit.Problem(w, r, http.StatusRequestEntityTooLarge, "The holds of this request are about more than 10,000 limits.")
		return
	}
	httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
}
