package limittest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// story has the requests and answers, to explain a failure.
type story struct{ events []event }

type event struct {
	verb   string // take, refund, reset, violate or hold
	at     time.Time
	hold   stint.HoldID
	asks   []stint.Ask
	answer *stint.Decision
	each   []stint.Decision
	calls  []stint.HoldCall // of a hold, with answers
}

func (s *story) add(verb string, r *stint.Request, answer *stint.Decision, each []stint.Decision) {
	s.events = append(s.events, event{
		verb: verb, at: r.At, hold: r.Hold, asks: slices.Clone(r.Asks), answer: answer, each: slices.Clone(each),
	})
}

func (s *story) addCalls(at int64, calls []stint.HoldCall) {
	e := event{verb: "hold", at: time.UnixMicro(at), calls: slices.Clone(calls)}
	for i := range calls {
		e.asks = append(e.asks, stint.Ask{Key: calls[i].Key, Limit: calls[i].Limit})
	}
	s.events = append(s.events, e)
}

// String returns the events of the last event's keys, oldest first.
func (s *story) String() string {
	if len(s.events) == 0 {
		return "nothing came before"
	}
	last := s.events[len(s.events)-1]
	var b strings.Builder
	var start time.Time
	for _, e := range s.events {
		if !slices.ContainsFunc(e.asks, func(a stint.Ask) bool { return hasKey(last.asks, a.Key) }) {
			continue
		}
		if start.IsZero() {
			start = e.at
			fmt.Fprintf(&b, "the story so far, from instant %d µs on:\n", start.UnixMicro())
		}
		e.tell(&b, start)
	}
	return b.String()
}

func hasKey(asks []stint.Ask, key string) bool {
	return slices.ContainsFunc(asks, func(a stint.Ask) bool { return a.Key == key })
}

func (e *event) tell(b *strings.Builder, start time.Time) {
	fmt.Fprintf(b, "%+dµs %s", e.at.UnixMicro()-start.UnixMicro(), e.verb)
	for i := range e.calls {
		fmt.Fprintf(b, "\n      %s", showCall(&e.calls[i]))
	}
	if len(e.calls) > 0 {
		b.WriteString("\n")
		return
	}
	if e.hold != (stint.HoldID{}) {
		fmt.Fprintf(b, " holding as %s", e.hold)
	}
	for i := range e.asks {
		if len(e.asks) > 1 {
			b.WriteString("\n     ")
		}
		fmt.Fprintf(b, " %s", showAsk(&e.asks[i]))
		if i < len(e.each) && len(e.asks) > 1 {
			fmt.Fprintf(b, " → %s", show(&e.each[i]))
		}
	}
	if len(e.asks) > 1 {
		b.WriteString("\n     ")
	}
	if e.answer != nil {
		fmt.Fprintf(b, " → %s", show(e.answer))
	}
	b.WriteString("\n")
}

func showAsk(a *stint.Ask) string {
	s := fmt.Sprintf("%q", a.Key)
	if a.Limit != nil {
		s += fmt.Sprintf(" %q %s ×%d", a.Limit.Spec().Name, a.Limit.Terms(), costOf(a))
	}
	if a.MaxDelay != 0 {
		s += fmt.Sprintf(" within %s", a.MaxDelay)
	}
	if a.Penalty != nil {
		p := a.Penalty.Spec()
		s += fmt.Sprintf(" (penalty %q: warn %d, ban %d for %s, forget %s, growth %d)",
			p.Name, p.WarnAfter, p.BanAfter, p.BanFor, p.ForgetAfter, p.Growth)
	}
	return s
}

var actionNames = [...]string{"settle", "renew", "release", "charge"}

func showCall(c *stint.HoldCall) string {
	s := fmt.Sprintf("%s %s of %q %q %s, units %d, for %s, cost %d, again %t", actionNames[c.Action], c.Hold, c.Key,
		c.Limit.Spec().Name, c.Limit.Terms(), c.Units, c.For, c.Cost, c.Again)
	return s + fmt.Sprintf(" → found %t, released %t, charged %d, remaining %d, held %d, reset %s, error %v", c.Found, c.Released, c.Charged,
		c.Remaining, c.Held, c.ResetAfter, c.Err)
}

func show(d *stint.Decision) string {
	s := d.Outcome.String()
	if d.Allowed != (d.Outcome == stint.Allowed) {
		s += fmt.Sprintf(" (but Allowed: %t)", d.Allowed)
	}
	s += fmt.Sprintf(", remaining %d", d.Remaining)
	if d.Held != 0 {
		s += fmt.Sprintf(", held %d", d.Held)
	}
	if d.Busy {
		s += ", busy"
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"retry", d.RetryAfter}, {"reset", d.ResetAfter}, {"delay", d.Delay}, {"ban left", d.BanLeft}} {
		switch f.d {
		case 0:
		case stint.Never:
			s += fmt.Sprintf(", %s never", f.name)
		default:
			s += fmt.Sprintf(", %s %s", f.name, f.d)
		}
	}
	if d.Penalty != nil {
		s += fmt.Sprintf(", penalty %q", d.Penalty.Spec().Name)
	}
	if d.Violations != 0 {
		s += fmt.Sprintf(", violation %d", d.Violations)
	}
	if d.By != stint.ByStore {
		s += fmt.Sprintf(", by %s", d.By)
	}
	s += fmt.Sprintf(", key %q", d.Key)
	if d.Limit == nil {
		return s + ", no limit"
	}
	return s + fmt.Sprintf(", limit %q %s", d.Limit.Spec().Name, d.Limit.Terms())
}

// reader makes calls to a store and records them. Instants are µs since 1970.
type reader struct {
	t     failer
	store stint.Store
	story story
}

// failer is common to testing.TB and rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (r *reader) take(at int64, asks ...stint.Ask) (stint.Decision, []stint.Decision) {
	r.t.Helper()
	return r.hold(at, stint.HoldID{}, asks...)
}

// hold is take for a request that holds under an identity.
func (r *reader) hold(at int64, id stint.HoldID, asks ...stint.Ask) (stint.Decision, []stint.Decision) {
	r.t.Helper()
	return r.ask(&stint.Request{Asks: asks, At: time.UnixMicro(at), Hold: id})
}

func (r *reader) ask(req *stint.Request) (stint.Decision, []stint.Decision) {
	r.t.Helper()
	if err := stint.Internal(friend.Of{}).Check(req); err != nil {
		r.t.Fatalf("limittest asks nonsense: %v", err)
	}
	each := make([]stint.Decision, len(req.Asks))
	d, err := r.store.Take(context.Background(), req, each)
	r.story.add("take", req, &d, each)
	if err != nil {
		r.t.Fatalf("Take: %v\n%s", err, &r.story)
	}
	return d, each
}

// call makes calls, which must succeed.
func (r *reader) call(at int64, calls ...stint.HoldCall) {
	r.t.Helper()
	stint.Holds(context.Background(), r.store, time.UnixMicro(at), calls)
	r.story.addCalls(at, calls)
	for i := range calls {
		if err := calls[i].Err; err != nil {
			r.t.Fatalf("Holds: %v\n%s", err, &r.story)
		}
	}
}

// want fails unless got, the last answer, equals want.
func (r *reader) want(what string, got, want stint.Decision) {
	r.t.Helper()
	if got != want {
		r.t.Fatalf("%s:\n got %s\nwant %s\n%s", what, show(&got), show(&want), &r.story)
	}
}
