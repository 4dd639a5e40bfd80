package decide_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// say is the answer to t: its kind, the rule that decided, and what is left of its limit; then the decisions of
// all limits, if they are several, or the descriptors of a call. Of a decision, "!" is a refusal and "?" means
// that there is none.
func (f *fixture) say(t *decide.Request, now bool) string {
	if t.In == nil {
		return "unread: " + short(t.Err)
	}
	if t.Err != nil {
		if t.Kind != decide.KindOf(&t.Verdict, t.Err) || t.Allowed || t.ID != "" || t.Each != nil {
			f.Errorf("with an error: %+v", t.Verdict)
		}
		return t.Kind.String() + ": " + short(t.Err)
	}
	if (t.ID != "") != (t.Kind.Refuses() && now) {
		f.Errorf("a decision of kind %s has the ID %q", t.Kind, t.ID)
	}
	for _, w := range t.Watching {
		if len(w.Rule.OnStatus) == 0 || decide.IsShadow(w.Rule) {
			f.Errorf("rule %s watches the response", w.Rule.Name)
		}
	}
	text := t.Kind.String()
	if t.Rule != nil {
		text += " by " + t.Rule.Name
	}
	if t.Limit != nil {
		text += fmt.Sprintf(", %d left", t.Remaining)
	}
	if t.BanLeft > 0 {
		text += ", banned for " + span(t.BanLeft)
	}
	if t.RetryAfter > 0 && t.RetryAfter != t.BanLeft {
		text += ", retry after " + span(t.RetryAfter)
	}
	if t.Delay > 0 {
		text += ", delayed by " + span(t.Delay)
	}
	if t.Message != "" {
		text += fmt.Sprintf(", %q", t.Message)
	}
	if key, began := t.BeganBan(); began {
		text += ", which bans " + key
	}
	return text + f.sayEach(t)
}

func span(d time.Duration) string {
	if d == stint.Never {
		return "ever"
	}
	return d.String()
}

// sayEach is the decisions about t's limits or, in a call, descriptors.
func (f *fixture) sayEach(t *decide.Request) string {
	var parts []string
	if t.In.Descriptors != nil {
		if charged := slices.ContainsFunc(t.Groups, func(g decide.Group) bool { return decide.Refused(&g.Answer) && t.Charges(&g, nil) != nil }); charged != (t.Left != nil) || charged && len(t.Left) != len(t.Each) {
			f.Errorf("charged %v, left before that %d", charged, t.Left)
		}
		for i := range t.Descriptors {
			parts = append(parts, sayDescriptor(t, &t.Descriptors[i]))
		}
		return " [" + strings.Join(parts, " ") + "]"
	}
	if len(t.Each) != len(t.Rules) && t.Each != nil {
		f.Errorf("%d decisions by %d rules", len(t.Each), len(t.Rules))
	}
	for i := range t.Each {
		parts = append(parts, t.Rules[i].Name+" "+sayOne(&t.Each[i]))
	}
	if len(parts) < 2 && !(len(parts) == 1 && t.Rule == nil) && !strings.Contains(strings.Join(parts, ""), "~") {
		return ""
	}
	return " [" + strings.Join(parts, ", ") + "]"
}

func sayOne(d *stint.Decision) string {
	text := fmt.Sprint(d.Remaining)
	switch {
	case d.Outcome == 0:
		return "?"
	case d.Limit == nil && d.Allowed:
		text = "free"
	case d.Outcome == stint.Banned:
		text = "banned"
	case !d.Allowed:
		text += "!"
	}
	if by := decide.SayBy(d); by != "" {
		text += "~" + by
	}
	return text
}

func sayDescriptor(t *decide.Request, m *rules.DescriptorMatch) string {
	each := t.Each
	if m.GiveBack {
		each = t.GivenBack
	}
	switch {
	case m.Ask < 0:
		return "-"
	case m.Ask >= len(each):
		return "none"
	}
	text := sayOne(&each[m.Ask])
	if t.Left != nil && !m.GiveBack && t.Left[m.Ask] != each[m.Ask].Remaining {
		text = fmt.Sprintf("%d→%s", t.Left[m.Ask], text)
	}
	return text
}

// short is err in few words.
func short(err error) string {
	var ambiguous *decide.TargetError
	switch {
	case err == nil:
		return "nothing"
	case errors.Is(err, friend.ErrOverloaded):
		return "full"
	case errors.Is(err, decide.ErrBug):
		return "a bug"
	case errors.Is(err, stint.ErrFull):
		return "no room"
	case errors.Is(err, errTight):
		return "too long"
	case errors.Is(err, stint.ErrHoldLost):
		return "the hold is lost"
	case errors.Is(err, limittest.ErrFault):
		return "the store failed"
	case errors.Is(err, context.Canceled):
		return "the client left"
	case errors.Is(err, context.DeadlineExceeded):
		return "too late"
	case errors.As(err, &ambiguous):
		return "ambiguous"
	case errors.Is(err, stint.ErrRequest):
		return "the request"
	}
	return err.Error()
}

// note writes down that a method was called, and the word for it, if there is one.
func (f *fixture) note(method, word string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.methods[method] = true
	if word != "" {
		f.words = append(f.words, word)
	}
}

func (f *fixture) Decided(_ context.Context, e decide.Event) {
	if e.Start+e.Took > f.options.Now() {
		f.Errorf("a decision at %s took %s", e.Start, e.Took)
	}
	f.note("Decided", "")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.decided++; !f.all {
		return
	}
	word := fmt.Sprintf("decided in %s: %s", e.Took, e.Kind)
	if e.Simulated {
		word += " (simulated)"
	}
	f.decisions = append(f.decisions, word)
}

func (f *fixture) Violated(_ context.Context, v decide.Violation) {
	if v.Start != f.options.Now() {
		f.Errorf("a violation at %s was told of %s", f.options.Now(), v.Start)
	}
	f.note("Violated", fmt.Sprintf("violation of %s by %d: %s, %d", v.Rule.Name, v.Status, v.Decision.Outcome, v.Decision.Violations))
}

func (f *fixture) Skipped(all ...*rules.Rule) {
	for _, r := range all {
		f.note("Skipped", "skipped "+r.Name)
	}
}

func (f *fixture) RefusedInShadow(r *rules.Rule) { f.note("RefusedInShadow", r.Name+" would refuse") }
func (f *fixture) Unheld(r *rules.Rule, l *stint.Limit) {
	f.note("Unheld", fmt.Sprintf("no end is seen for %s: %s", r.Name, l.Terms()))
}
func (f *fixture) Held(r *rules.Rule) { f.note("Held", "held by "+r.Name) }
func (f *fixture) Released(r *rules.Rule, tookPlace, lost bool) {
	word := "released by " + r.Name
	if tookPlace {
		word = "ended for " + r.Name
	}
	if lost {
		word += ", lost"
	}
	f.note("Released", word)
}

func (f *fixture) Cost(r *rules.Rule, held, cost int64) {
	f.note("Cost", fmt.Sprintf("%s: %d held, %d charged", r.Name, held, cost))
}

func (f *fixture) CostRead(r *rules.Rule, status int, known bool) {
	word := fmt.Sprintf("a %d without a cost for %s", status, r.Name)
	if known {
		word = fmt.Sprintf("a %d with the cost for %s", status, r.Name)
	}
	f.note("CostRead", word)
}

func (f *fixture) Charged(calls []stint.HoldCall) {
	for i := range calls {
		c := &calls[i]
		word := ""
		switch {
		case c.Err != nil:
			word = fmt.Sprintf("not charged to %s: %s", decide.RuleOf(c.Limit), short(c.Err))
		case c.Action == stint.HoldCharge && c.Cost > 0:
			word = fmt.Sprintf("%d of %d charged to %s", c.Charged, c.Cost, decide.RuleOf(c.Limit))
		}
		f.note("Charged", word)
	}
}

func (f *fixture) StoreCalled(took time.Duration, err error) {
	word := ""
	switch {
	case err != nil:
		word = "call failed: " + short(err)
	case f.all:
		word = fmt.Sprintf("call of %s", took)
	}
	f.note("StoreCalled", word)
}

// clause is the beginning of a line for the log.
var clause = regexp.MustCompile(`^[^,;]*`)

func (f *fixture) Failed(text string, err error) {
	f.note("Failed", "failure: "+clause.FindString(text)+" ("+short(err)+")")
}

func (f *fixture) Uncharged(text string, err error) {
	f.note("Uncharged", "uncharged: "+clause.FindString(text)+" ("+short(err)+")")
}

func (f *fixture) Ambiguous(err error) {
	var ambiguous *rules.AmbiguousError
	word := ""
	if errors.As(err, &ambiguous) {
		word = "ambiguous: " + ambiguous.Is.String()
	}
	f.note("Ambiguous", word)
}

func (f *fixture) Panicked(p any) { f.note("Panicked", fmt.Sprint("panicked: ", p)) }
