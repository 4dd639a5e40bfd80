package decide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// broken are calls of the store that fail, crowded those for which it has no room, lost those whose answers do
// not arrive, hanging those that are never answered, slow those that are answered after 10 ms, and late those
// that are answered when nobody waits any more.
var (
	broken  = fault{Fault: limittest.Fault{Err: limittest.ErrFault}}
	crowded = fault{Fault: limittest.Fault{Err: stint.ErrFull}}
	lost    = fault{Fault: limittest.Fault{Err: limittest.ErrFault, Lost: true}}
	bug     = fault{bug: true}
	hanging = fault{Fault: limittest.Fault{Hang: true}}
	slow    = fault{late: 10 * time.Millisecond}
	late    = fault{late: 40 * time.Millisecond}
)

// during does a step while calls of the store with these numbers, from 1 in the step, have a fault; without
// numbers all have.
func during(of fault, does func(*fixture) string, calls ...int) func(*fixture) string {
	if len(calls) == 0 {
		calls = []int{always}
	}
	return func(f *fixture) string { return f.while(of, does, calls...) }
}

// beside does a step while calls of the store about rules in shadow mode have a fault.
func beside(of fault, does func(*fixture) string) func(*fixture) string {
	return func(f *fixture) string { return f.while(of, does, besides) }
}

// full does a step while this instance is overloaded, and down while the store does not decide.
func full(does func(*fixture) string) func(*fixture) string {
	return func(f *fixture) string {
		f.full = true
		defer func() { f.full = false }()
		return does(f)
	}
}

func down(does func(*fixture) string) func(*fixture) string {
	return func(f *fixture) string {
		f.down = limittest.ErrFault
		defer func() { f.down = nil }()
		return does(f)
	}
}

// call is a call of Envoy's service. A descriptor is "key=value*cost"; the cost is 1 where there is none, and
// is given back if it is negative. "key=value*cost@5" has a limit of 5 units a minute of its own.
func call(descriptors ...string) func(*fixture) string { return asks(calling(descriptors...)) }

func calling(descriptors ...string) decide.Request {
	d := &rules.Descriptors{Domain: "d"}
	for _, text := range descriptors {
		one := rules.Descriptor{Cost: 1}
		text, limit, _ := strings.Cut(text, "@")
		if limit != "" {
			one.Override = &rules.DescriptorLimit{Unit: rules.Minute}
			fmt.Sscan(limit, &one.Override.Amount)
		}
		if entry, cost, ok := strings.Cut(text, "*"); ok {
			text = entry
			fmt.Sscan(cost, &one.Cost)
			one.GiveBack, one.Cost = one.Cost < 0, max(one.Cost, -one.Cost)
		}
		key, value, _ := strings.Cut(text, "=")
		one.Entries = []rules.Entry{{Key: key, Value: value}}
		d.List = append(d.List, one)
	}
	return decide.Request{In: &rules.Input{Descriptors: d}}
}

func each(t decide.Request) decide.Request  { t.In.Descriptors.Each = true; return t }
func quota(t decide.Request) decide.Request { t.In.Descriptors.Quota = true; return t }
func ahead(t decide.Request) decide.Request { t.In.Descriptors.Ahead = true; return t }
func held(t decide.Request) decide.Request  { holds(&t); return t }

// end is the end of the latest request, with this status and, if it is not empty, this header X-Cost.
func end(status int, cost string) func(*fixture) string {
	return func(f *fixture) string {
		how := &decide.Ended{Store: f.options.Fleet, Failed: func(error) { f.note("", "the cost cannot be read") }}
		how.Status, how.Headers = status, http.Header{}
		if cost != "" {
			how.Headers.Set("X-Cost", cost)
		}
		err := f.latest().Settlement.End(f.Context(), how)
		how.Headers.Set("X-Cost", "99") // handlers go on to change them
		var uncharged *decide.UnchargedError
		if errors.As(err, &uncharged) {
			return fmt.Sprintf("not charged to %s of %s: %s", uncharged.Key, uncharged.Rule, short(uncharged))
		}
		return sayErr(err)
	}
}

// abandon is the end of the latest request, which does not take place.
func abandon(f *fixture) string { return sayErr(f.latest().Settlement.End(f.Context(), nil)) }

// undo gives back what the latest request took, which does not take place.
func undo(f *fixture) string {
	f.Undo(f.Context(), f.latest(), "the upstream is gone, and so on")
	return ""
}

func sayErr(err error) string {
	if err != nil {
		return "error: " + short(err)
	}
	return ""
}

// settle ends the holds of the latest request, which its caller settles, at this cost.
func settle(cost int64) func(*fixture) string {
	return func(f *fixture) string {
		t := f.latest()
		var parts []string
		t.EachHeld(func(a *stint.Ask, by stint.Source, shadow bool) {
			calls := []stint.HoldCall{{Key: a.Key, Limit: a.Limit, Hold: t.Hold, Units: a.Units(), For: t.HoldFor, Cost: cost, By: by}}
			f.Hold(f.Context(), time.Time{}, calls)
			text := fmt.Sprintf("%s: %d held, %d charged", decide.RuleOf(a.Limit), a.Units(), calls[0].Charged)
			if !calls[0].Found {
				text = decide.RuleOf(a.Limit) + ": lost"
			}
			if shadow {
				text += " in shadow"
			}
			parts = append(parts, text)
		})
		return strings.Join(parts, " | ")
	}
}

// respond is a response to the latest request, with a status.
func respond(status int) func(*fixture) string {
	return func(f *fixture) string {
		t := f.latest()
		for _, w := range t.Watching {
			if slices.Contains(w.Rule.OnStatus, status) {
				_ = f.Violate(f.Context(), t.Set, &decide.Violation{Watching: w, Status: status})
			}
		}
		return ""
	}
}

// charge charges units that a user has spent already, and charges those of several.
func charge(user string, n int64) func(*fixture) string { return charges(from(user, cost(n))) }

func charges(of ...decide.Request) func(*fixture) string {
	return func(f *fixture) string {
		var all []decide.Charge
		for i := range of {
			all = append(all, decide.Charge{In: of[i].In})
		}
		f.Charge(f.Context(), all)
		var parts []string
		for i := range all {
			if all[i].Err != nil {
				parts = append(parts, "error: "+short(all[i].Err))
			}
			for j := range all[i].Calls {
				c := &all[i].Calls[j]
				text := fmt.Sprintf("%s %d left", all[i].Rules[j].Name, c.Remaining)
				if c.Err != nil {
					text = all[i].Rules[j].Name + ": " + short(c.Err)
				}
				parts = append(parts, text)
			}
		}
		return strings.Join(parts, " | ")
	}
}

// left is what a user has left under the i-th rule's first limit, and holds of it, in the store.
func left(user string, i int) func(*fixture) string {
	return func(f *fixture) string {
		l := f.set.Rules[i].Limits[0]
		d, err := stint.NewLimiter(f.memory).Peek(context.Background(), user, l)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d left, %d held", d.Remaining, d.Held)
	}
}

// release releases what the latest request holds under the i-th rule's first limit, as an operator does.
func release(user string, i int) func(*fixture) string {
	return func(f *fixture) string {
		calls := []stint.HoldCall{{Action: stint.HoldRelease, Key: user, Limit: f.set.Rules[i].Limits[0], Hold: f.latest().Hold, Units: 1}}
		stint.Holds(f.Context(), f.memory, time.Time{}, calls)
		return sayErr(calls[0].Err)
	}
}

// posts and gets are requests to an API of language models.
func posts(path string) func(*decide.Request) { return sendsTo("POST", path) }
func gets(path string) func(*decide.Request)  { return sendsTo("GET", path) }

// upgrades is a request to go on in another protocol.
func upgrades(path string) func(*decide.Request) {
	return func(t *decide.Request) {
		gets(path)(t)
		t.In.Request.Header.Set("Upgrade", "websocket")
	}
}

func sendsTo(method, path string) func(*decide.Request) {
	return func(t *decide.Request) {
		sends(path, "X-A", "1")(t)
		t.In.Request.Method = method
	}
}

// answers is the end of the latest request to an API of language models, with this answer.
func answers(status int, body string) func(*fixture) string {
	return func(f *fixture) string {
		t := f.latest()
		var answer map[string]any
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			f.Fatal(err)
		}
		how := &decide.Ended{Store: f.options.Fleet, Unknown: func(r *rules.Rule) { f.note("", r.Name+" does not know the endpoint") }}
		how.Endpoint, how.Status = rules.EndpointOf(t.In.Request), status
		how.JSON = func(path []string) (value any, ok bool) { return lookup(answer, path) }
		return sayErr(t.Settlement.End(f.Context(), how))
	}
}

// breaks is the end of the latest request to an API of language models, whose answer broke off when the model
// had read a prompt of so many bytes.
func breaks(prompt int64) func(*fixture) string {
	return func(f *fixture) string {
		t := f.latest()
		how := &decide.Ended{Store: f.options.Fleet}
		how.Endpoint, how.Status, how.Prompt.Text = rules.EndpointOf(t.In.Request), 200, prompt
		return sayErr(t.Settlement.End(f.Context(), how))
	}
}

func lookup(in map[string]any, path []string) (value any, ok bool) {
	for i, name := range path {
		if value, ok = in[name]; !ok || i == len(path)-1 {
			break
		}
		if in, ok = value.(map[string]any); !ok {
			return nil, false
		}
	}
	if n, is := value.(float64); is {
		value = int64(n)
	}
	return value, ok
}

// nothing happens in the step.
func nothing(*fixture) string { return "" }

// then does one thing after another, and answers what the first does.
func then(first, second func(*fixture) string) func(*fixture) string {
	return func(f *fixture) string {
		answer := first(f)
		return answer + second(f)
	}
}

// pause lets time pass within a step.
func pause(d time.Duration) func(*fixture) string {
	return func(*fixture) string { time.Sleep(d); return "" }
}

// crowd decides n requests of as many users at once, and says how many calls for rules in shadow mode are under
// way after that.
func crowd(n int) func(*fixture) string {
	return func(f *fixture) string {
		for i := range n {
			asksNot(from(fmt.Sprint("user ", i)))(f)
			f.decided = 0
		}
		return fmt.Sprintf("%d calls in flight", f.ShadowCalls())
	}
}

// many decides a list of n requests of a user, and says how many calls for rules in shadow mode that took.
func many(n int) func(*fixture) string {
	return func(f *fixture) string {
		before := f.beside.Calls()
		text := asks(slices.Repeat([]decide.Request{from("ann")}, n)...)(f)
		return fmt.Sprintf("%d allowed, in %d calls", strings.Count(text, "allowed"), f.beside.Calls()-before)
	}
}

// wanted is how many units the ask behind the latest decision wanted, of which limit.
func wanted(f *fixture) string {
	n, limit := f.latest().Wanted()
	return fmt.Sprintf("%d of %s", n, limit)
}

// spend takes units of a key under the i-th rule's first limit.
func spend(key string, i int, n int64) func(*fixture) string {
	return func(f *fixture) string {
		_, err := stint.NewLimiter(f.memory).AllowN(f.Context(), key, f.set.Rules[i].Limits[0], n)
		return sayErr(err)
	}
}

// shown is what clients see of the latest decision: what is left under each limit, and its unit.
func shown(f *fixture) string {
	t := f.latest()
	var parts []string
	for _, d := range t.Enforced() {
		parts = append(parts, fmt.Sprint(d.Remaining))
	}
	return fmt.Sprintf("left %s, units %q", strings.Join(parts, " "), t.Units())
}

// asked is the i-th ask of the latest request, as the store got it.
func asked(i int) func(*fixture) string {
	return func(f *fixture) string {
		a := f.latest().Ask(i)
		if a == nil {
			return "none"
		}
		return fmt.Sprintf("%d of %s", a.Units(), a.Limit)
	}
}
