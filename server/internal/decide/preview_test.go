package decide_test

import (
	"context"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// trial is a Book with counts of its own, as previews have it.
type trial struct {
	f       *fixture
	limiter *stint.Limiter
	fails   bool
}

func (p *trial) Take(ctx context.Context, all []decide.Request, _ bool) {
	for i := range all {
		for j := range all[i].Groups {
			g := &all[i].Groups[j]
			if g.Answer.Decision, g.Answer.Err = p.limiter.Take(ctx, &g.Request, g.Answer.Each); p.fails {
				g.Answer.Err = limittest.ErrFault
				if g.InShadow() {
					g.Answer.Err = decide.ErrNotAskedNow
				}
			}
		}
	}
}

func (p *trial) Refund(ctx context.Context, r *stint.Request, _ bool) error {
	return stint.Refund(ctx, p.limiter.Store, r)
}

func (p *trial) Hold(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	stint.Holds(ctx, p.limiter.Store, at, calls)
}

func (p *trial) ReleaseShadows(context.Context, *decide.Request, time.Time) {}
func (p *trial) Failed(what string, err error)                              { p.f.Uncharged(what, err) }

// preview decides one request by a trial. While it fails, its store does not decide.
func preview(fails bool, one decide.Request) func(*fixture) string {
	return func(f *fixture) string {
		all := []decide.Request{{In: one.In}}
		t := &all[0]
		t.Plan(f.Context(), &decide.Set{Set: f.set.Set, Watcher: decide.Unwatched{}}, new(rules.Plan), time.Time{}, 0)
		if t.Err != nil {
			return "error: " + short(t.Err)
		}
		f.trial.fails = fails
		if err := decide.DecideBy(f.Context(), &f.trial, all, time.Time{}); err != nil {
			return "error: " + short(err)
		}
		return f.say(t, false)
	}
}

// Previews and explanations take the same road as decisions, with counts of their own.
var previewRows = []row{
	{"a preview decides as an instance does, and takes nothing from the store", bounds, nil, []step{
		{0, ask("ann"), "allowed by api, 1 left [all 8, api 1]"},
		{0, preview(false, from("ann", cost(2))), "allowed by api, 0 left [all 7, api 0]"},
		{0, preview(false, from("ann")), "limited by api, 0 left, retry after 1m0s [all 7, api 0!]"},
		{0, preview(false, from("")), "error: the request"},
		{0, ask("ann"), "allowed by api, 0 left [all 7, api 0]"},
	}},
	{"it needs an answer for all rules but those in shadow mode", tried, nil, []step{
		{0, preview(true, from("ann")), "error: the store failed"},
	}},
	{"so does a call", "{}", []with{plain}, []step{
		{0, preview(false, calling("a=1*2", "b=1")), "allowed by d/a, 1 left [1 4]"},
		{0, preview(false, calling("a=1*2", "b=1*2")), "limited by d/a, 0 left, retry after 1m0s [1→0! 4→2]"},
		{0, preview(false, calling("b=1*-2")), "unmatched [4]"},
		{0, call("b=1*0"), "allowed by d/b, 5 left [5]"},
	}},
	{"where only rules in shadow mode could not be asked, they decide nothing", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window]}]`, nil, []step{
		{0, preview(true, from("ann")), "allowed [tried ?]"},
		{0, preview(false, from("ann")), "allowed [tried 0!]"},
	}},
}
