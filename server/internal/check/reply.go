package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// never is stint.Never in JSON.
const never = -1

// Decision is a decision in JSON. Durations are µs; −1 is never.
//
// It and the types that contain it have methods appendTo, which write the same as encoding/json in a third of
// the time. If you change a field, change them; a test compares.
type Decision struct {
	Allowed    bool  `json:"allowed"`
	Limit      int64 `json:"limit"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after_us"`
	ResetAfter int64 `json:"reset_after_us"`
	Delay      int64 `json:"delay_us"`
}

// DecisionOf is d in JSON.
func DecisionOf(d *stint.Decision) Decision {
	j := Decision{
		Allowed:    d.Allowed,
		Remaining:  d.Remaining,
		RetryAfter: d.RetryAfter.Microseconds(),
		ResetAfter: d.ResetAfter.Microseconds(),
		Delay:      d.Delay.Microseconds(),
	}
	if d.Limit != nil {
		j.Limit = d.Limit.Capacity()
	}
	if d.RetryAfter == stint.Never {
		j.RetryAfter = never
	}
	return j
}

// namedJSON is the decision of one limit, with its names.
type namedJSON struct {
	Rule string `json:"rule"`
	Text string `json:"limit_text"`
	Mode string `json:"mode"`
	By   string `json:"by,omitempty"`
	Decision
	Used int64 `json:"used"`
	Held int64 `json:"held,omitempty"`
	Busy bool  `json:"busy,omitempty"`
}

// replyJSON is the answer to a check request.
type replyJSON struct {
	Outcome string `json:"outcome"`
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"`
	By      string `json:"by,omitempty"`
	Decision
	Used       int64  `json:"used"`
	Held       int64  `json:"held,omitempty"`
	Busy       bool   `json:"busy,omitempty"`
	BanLeft    int64  `json:"ban_left_us"`
	Violations int64  `json:"violations,omitempty"`
	WarnAfter  int64  `json:"warn_after,omitempty"`
	BanAfter   int64  `json:"ban_after,omitempty"`
	List       string `json:"list,omitempty"`
	Entry      string `json:"entry,omitempty"`
	// Then comes "decisions", a list of namedJSON.
}

func replyOf(v *decide.Verdict) replyJSON {
	r := replyJSON{
		Outcome:  v.Kind.Answer(),
		Message:  v.Message,
		By:       decide.SayBy(&v.Decision),
		Decision: DecisionOf(&v.Decision),
		Used:     v.Used(),
		Held:     v.Held,
		Busy:     v.Busy,
		BanLeft:  v.BanLeft.Microseconds(),
	}
	if v.BanLeft == stint.Never {
		r.BanLeft = never
	}
	if v.Rule != nil {
		r.Rule = v.Rule.Name
	}
	if v.Violations > 0 {
		p := v.Penalty.Spec()
		r.Violations, r.WarnAfter, r.BanAfter = v.Violations, p.WarnAfter, p.BanAfter
	}
	if v.List != rules.Unlisted {
		r.List, r.Entry = v.List.Name(), v.Entry.String()
	}
	return r
}

// named is the decision of the limit at that index.
func named(v *decide.Verdict, i int) namedJSON {
	d := &v.Each[i]
	j := namedJSON{Rule: v.Rules[i].Name, Mode: v.Rules[i].Mode.String(), By: decide.SayBy(d), Decision: DecisionOf(d), Used: d.Used(), Held: d.Held, Busy: d.Busy}
	if d.Limit != nil {
		j.Text = d.Limit.Terms()
	}
	return j
}

func (j *Decision) appendTo(b []byte) []byte {
	b = append(b, `"allowed":`...)
	b = strconv.AppendBool(b, j.Allowed)
	b = append(b, `,"limit":`...)
	b = strconv.AppendInt(b, j.Limit, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, j.Remaining, 10)
	b = append(b, `,"retry_after_us":`...)
	b = strconv.AppendInt(b, j.RetryAfter, 10)
	b = append(b, `,"reset_after_us":`...)
	b = strconv.AppendInt(b, j.ResetAfter, 10)
	b = append(b, `,"delay_us":`...)
	return strconv.AppendInt(b, j.Delay, 10)
}

func (j *namedJSON) appendTo(b []byte) []byte {
	b = appendText(append(b, `{"rule":`...), j.Rule)
	b = appendText(append(b, `,"limit_text":`...), j.Text)
	b = appendText(append(b, `,"mode":`...), j.Mode)
	if j.By != "" {
		b = appendText(append(b, `,"by":`...), j.By)
	}
	b = append(j.Decision.appendTo(append(b, ',')), `,"used":`...)
	return append(appendHeld(strconv.AppendInt(b, j.Used, 10), j.Held, j.Busy), '}')
}

// appendTo writes the members.
func (j *replyJSON) appendTo(b []byte) []byte {
	b = appendText(append(b, `"outcome":`...), j.Outcome)
	b = appendText(append(b, `,"rule":`...), j.Rule)
	if j.Message != "" {
		b = appendText(append(b, `,"message":`...), j.Message)
	}
	if j.By != "" {
		b = appendText(append(b, `,"by":`...), j.By)
	}
	b = j.Decision.appendTo(append(b, ','))
	b = append(b, `,"used":`...)
	b = appendHeld(strconv.AppendInt(b, j.Used, 10), j.Held, j.Busy)
	b = append(b, `,"ban_left_us":`...)
	b = strconv.AppendInt(b, j.BanLeft, 10)
	b = appendMore(b, `,"violations":`, j.Violations)
	b = appendMore(b, `,"warn_after":`, j.WarnAfter)
	b = appendMore(b, `,"ban_after":`, j.BanAfter)
	if j.List != "" {
		b = appendText(append(b, `,"list":`...), j.List)
	}
	if j.Entry != "" {
		b = appendText(append(b, `,"entry":`...), j.Entry)
	}
	return b
}

// appendHeld appends the held units.
func appendHeld(b []byte, held int64, busy bool) []byte {
	b = appendMore(b, `,"held":`, held)
	if busy {
		b = append(b, `,"busy":true`...)
	}
	return b
}

// appendMore appends a member, unless it is 0.
func appendMore(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

// appendReply appends the members of the answer to a check, with rules in shadow mode if shadows.
func appendReply(b []byte, t *decide.Request, shadows bool) []byte {
	v := &t.Verdict
	reply := replyOf(v)
	b = reply.appendTo(b)
	if hold := heldText(t); hold != "" {
		b = appendText(append(b, `,"hold":`...), hold)
	}
	b = append(b, `,"decisions":[`...)
	first := true
	for i := range v.Each {
		if decide.IsShadow(v.Rules[i]) && (!shadows || v.Each[i].Outcome == 0) { // or it was not asked
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		j := named(v, i)
		b = j.appendTo(b)
	}
	return append(b, ']')
}

// sizeOf estimates the length of that.
func sizeOf(v *decide.Verdict) int { return 256 + 208*len(v.Each) }

// appendText appends a string in JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			text, err := json.Marshal(s)
			if err != nil {
				panic(err) // strings always marshal
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// statusOf is the status of the answer to a single check.
func statusOf(t *decide.Request) int {
	if errors.Is(t.Err, decide.ErrBug) {
		return http.StatusInternalServerError
	}
	return t.Kind.Status()
}

// appendElement appends the element of a list for t: the body of the answer to a single check, with
// its status and headers as members.
func appendElement(b []byte, t *decide.Request, r *http.Request, shadows bool) []byte {
	b = append(b, '{')
	if t.Err != nil {
		p := door.Page{Headers: http.Header{}}
		refuse(t, &p, r)
		if t.Kind == kind.Undecided && statusOf(t) == http.StatusServiceUnavailable {
			b = append(b, `"retry_after":1,`...) // the body does not have it
		}
		return append(b, bytes.TrimSpace(p.Text[1:])...)
	}
	b = append(b, `"status":`...)
	b = strconv.AppendInt(b, int64(statusOf(t)), 10)
	b = append(b, ',')
	if !t.Allowed && t.ID != "" {
		b = append(appendText(append(b, `"decision_id":`...), t.ID), ',')
	}
	if !t.Allowed && t.Kind != kind.Blocked && t.RetryAfter != stint.Never {
		b = append(b, `"retry_after":`...)
		wait := t.RetryAfter
		if t.Busy { // a hint: clients should not return together
			wait += rand.N(wait/2 + 1)
		}
		b = strconv.AppendInt(b, max(1, int64((wait-1)/time.Second)+1), 10)
		b = append(b, ',')
	}
	return append(appendReply(b, t, shadows), '}')
}

// refuse answers with a problem for t's error.
func refuse(t *decide.Request, w http.ResponseWriter, r *http.Request) {
	status := statusOf(t)
	if o := (*httplimit.Overloaded)(nil); errors.As(t.Err, &o) {
		o.Refuse(w, r)
		return
	}
	switch status {
	case http.StatusBadRequest:
		httplimit.Problem(w, r, status, t.Err.Error())
		return
	case http.StatusInternalServerError:
		httplimit.Problem(w, r, status, "An error of the server itself kept it from deciding about this request.")
		return
	}
	w.Header().Set("Retry-After", "1")
	httplimit.Problem(w, r, status, "The server cannot decide about this request right now.")
}
