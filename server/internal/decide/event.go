package decide

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Watcher learns what becomes of requests under one set of rules. Its methods must not block or fail, and keep
// nothing of what they get; every request pays for their time. They are called from many goroutines at once.
type Watcher interface {
	Decided(context.Context, Event)
	Violated(context.Context, Violation)

	// Skipped tells that rules in shadow mode were not asked, and RefusedInShadow that one would have refused.
	Skipped(...*rules.Rule)
	RefusedInShadow(*rules.Rule)

	// Unheld tells that a rule with this held limit met a request that holds nothing, because its end is not
	// seen.
	Unheld(*rules.Rule, *stint.Limit)
	// Held tells that a request holds something by a rule, and Released that it has ended: whether it took
	// place, and whether the store had lost what it held.
	Held(*rules.Rule)
	Released(rule *rules.Rule, tookPlace, lost bool)
	// Cost tells what a request held under one limit of a rule, and what it did cost.
	Cost(rule *rules.Rule, held, cost int64)
	// CostRead tells whether a response with this status reported its request's cost. 0: there was none.
	CostRead(rule *rules.Rule, status int, known bool)
	// Charged tells of calls that may have charged units without a hold.
	Charged([]stint.HoldCall)
}

// Instance learns what happens to this instance, whatever the rules are. What is said of Watcher holds here,
// too.
type Instance interface {
	// StoreCalled tells of a call of the store that no layer of fleet tells of.
	StoreCalled(took time.Duration, err error)
	// Failed tells of a failure that may last, and Uncharged that something was not charged or given back.
	// text is a line for the log.
	Failed(text string, err error)
	Uncharged(text string, err error)
	// Ambiguous tells why a request could not be decided, which may be a *rules.AmbiguousError.
	Ambiguous(error)
	// Panicked is called while the decision of a list panics with p.
	Panicked(p any)
}

// NoStore is the text about a failure of the store.
const NoStore = "the store does not decide; on_store_error decides instead"

// Event is a decision, when all of it is known.
type Event struct {
	*Request
	Start     time.Duration // of the decision; see Options.Now
	Took      time.Duration // without what comes after it
	Simulated bool
}

// Violation is a response that counted as a violation of a rule.
type Violation struct {
	Watching
	Start    time.Duration // see Options.Now
	Client   netip.Addr    // invalid: unknown
	Path     string
	ID       string // of the decision; empty: it has none
	Status   int
	Decision stint.Decision // what the violation led to
}

// Violate counts a response to a request that set decided as a violation, even if the client has left. It
// makes Start and Decision of v.
func (d *Decider) Violate(ctx context.Context, set *Set, v *Violation) (err error) {
	ctx = context.WithoutCancel(ctx)
	v.Decision, err = d.Limiter.Violate(ctx, v.Ask.Key, v.Ask.Penalty)
	if err != nil {
		d.Instance.Failed("a response could not be counted as a violation", fmt.Errorf("rule %s: %w", v.Rule.Name, err))
		return err
	}
	v.Start = d.Now()
	set.Watcher.Violated(ctx, *v)
	return nil
}

// Unwatched is the Watcher of requests that nobody watches.
type Unwatched struct{}

func (Unwatched) Decided(context.Context, Event)      {}
func (Unwatched) Violated(context.Context, Violation) {}
func (Unwatched) Skipped(...*rules.Rule)              {}
func (Unwatched) RefusedInShadow(*rules.Rule)         {}
func (Unwatched) Unheld(*rules.Rule, *stint.Limit)    {}
func (Unwatched) Held(*rules.Rule)                    {}
func (Unwatched) Released(*rules.Rule, bool, bool)    {}
func (Unwatched) Cost(*rules.Rule, int64, int64)      {}
func (Unwatched) CostRead(*rules.Rule, int, bool)     {}
func (Unwatched) Charged([]stint.HoldCall)            {}
