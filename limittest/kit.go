package limittest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// DefaultSteps is how many steps Twins takes if Kit.Steps is 0.
const DefaultSteps = 20_000

// Kit tests a Store. Only New must be given.
type Kit struct {
	// New returns an empty store, and uses t.Cleanup to clean up. A test may call it several times;
	// it then no longer uses the previous store.
	New func(t *testing.T) stint.Store
	// Fleet returns several stores over the same, empty data, like the processes of a fleet. The
	// kit uses them from many goroutines at once. nil: it uses one store of New.
	Fleet func(t *testing.T) []stint.Store
	// Frozen returns a store whose server never answers. The kit uses it to test only
	// whether a fleet.DeadlineKeeper keeps deadlines. nil: that is not tested.
	Frozen func(t *testing.T) stint.Store
	// Steps is how many random steps Twins takes. Below 20,000, Twins does not require that all
	// interesting states were reached. 0: DefaultSteps.
	Steps int
	// Seed makes the random steps the same each time. 0: a new seed for each run, which is
	// printed.
	Seed uint64
	// Skip names subtests that the store cannot pass, such as "TakeBatch". Subtests for an
	// optional interface that the store lacks skip themselves.
	Skip []string
}

// check is one subtest. It takes a testing.TB, so that tests of the kit can see it fail.
type check struct {
	name string
	run  func(t testing.TB, e *env)
}

type env struct {
	open   func() stint.Store
	fleet  func() []stint.Store
	frozen func() stint.Store // nil: there is none
	steps  int
	seed   uint64
	calls  int // in a burst
}

var checks = []check{
	{"Vectors", checkVectors},
	{"HoldVectors", checkHoldVectors},
	{"Fields", checkFields},
	{"Twins", checkTwins},
	{"TakeBatch", checkTakeBatch},
	{"SlidingLogIsExact", property(slidingLogIsExact)},
	{"LongLogs", checkLongLogs},
	{"BucketsRefillAtTheRate", property(bucketsRefillAtTheRate)},
	{"DenialChangesNothing", property(denialChangesNothing)},
	{"RetryAfterIsExact", property(retryAfterIsExact)},
	{"RetryAfterSuffices", property(retryAfterSuffices)},
	{"RemainingIsExact", property(remainingIsExact)},
	{"ResetAfterIsExact", property(resetAfterIsExact)},
	{"TogetherNoMoreThanTheLargest", property(togetherNoMoreThanTheLargest)},
	{"Clocks", checkClocks},
	{"ClocksOfBans", checkClocksOfBans},
	{"Linearizable", checkLinearizable},
	{"LinearizableOverTwoKeys", checkLinearizableOverTwoKeys},
	{"LinearizableOverLimits", checkLinearizableOverLimits},
	{"Burst", checkBurst},
	{"Violations", checkViolations},
	{"Records", checkRecords},
	{"Inspect", checkInspect},
	{"Deadlines", checkDeadlines},
	{"EndedContext", checkEndedContext},
	{"NothingAndUnlimited", checkNothingAndUnlimited},
	{"Holds", checkHolds},
	{"ManyHolds", checkManyHolds},
	{"HoldClock", checkHoldClock},
	{"HeldBudgetIsKept", checkHeldBudget},
	{"LinearizableHolds", checkLinearizableHolds},
}

// Run runs each part of the kit as a subtest.
func (k Kit) Run(t *testing.T) {
	for _, name := range k.Skip {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			t.Errorf("Kit.Skip: there is no %q; there are %s", name, strings.Join(checkNames(), ", "))
		}
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(k.Skip, c.name) {
				t.Skip("skipped by Kit.Skip")
			}
			c.run(t, k.env(t))
		})
	}
}

func checkNames() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

func (k *Kit) env(t *testing.T) *env {
	e := &env{
		open:  func() stint.Store { return k.New(t) },
		fleet: func() []stint.Store { return []stint.Store{k.New(t)} },
		steps: k.Steps,
		seed:  k.Seed,
		calls: burstCalls,
	}
	if k.Fleet != nil {
		e.fleet = func() []stint.Store { return k.Fleet(t) }
	}
	if k.Frozen != nil {
		e.frozen = func() stint.Store { return k.Frozen(t) }
	}
	if e.steps == 0 {
		e.steps = DefaultSteps
	}
	if e.seed == 0 {
		e.seed = rand.Uint64()
	}
	return e
}

func oneOfEach(amount int64, period time.Duration, name string) []*stint.Limit {
	var limits []*stint.Limit
	for a := stint.TokenBucket; a <= stint.SlidingWindow; a++ {
		limits = append(limits, mustLimit(stint.Spec{Name: name, Algorithm: a, Amount: amount, Period: period}))
	}
	return limits
}

func mustLimit(s stint.Spec) *stint.Limit {
	l, err := stint.NewLimit(s)
	if err != nil {
		panic("limittest: " + err.Error())
	}
	return l
}

func mustPenalty(s stint.PenaltySpec) *stint.Penalty {
	p, err := stint.NewPenalty(s)
	if err != nil {
		panic("limittest: " + err.Error())
	}
	return p
}
