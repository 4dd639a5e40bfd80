package limittest

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

func TestModel(t *testing.T) {
	k := Kit{New: func(*testing.T) stint.Store { return new(Model) }, Frozen: func(*testing.T) stint.Store { return hanging{share: 1} }}
	if raceDetector || testing.Short() {
		k.Skip = []string{"Burst"} // is slow then, and proves no more than other races
	}
	k.Run(t)
}

// The steps of all runs of the long form add up to 300,000. They run in one goroutine,
// where the race detector only takes time.
func TestMemoryIsTheModelsTwin(t *testing.T) {
	seeds := uint64(15)
	if raceDetector || testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		twins(t, DefaultSteps, seed, new(stint.Memory))
	}
}

func TestTwins(t *testing.T) { Twins(t, new(stint.Memory), new(Model), 2000, 1) }

// bare is a store with no powers but Take.
type bare struct{ inner stint.Memory }

func (b *bare) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return b.inner.Take(ctx, r, out)
}

// What a store does not do is named, and nothing fails for it.
func TestOptionalInterfacesAreOptional(t *testing.T) {
	lacks := map[string]string{
		"Violations": "no stint.Violator", "Records": "no stint.Inspector", "Inspect": "no stint.Inspector", "TakeBatch": "no stint.BatchTaker",
		"HoldVectors": "no stint.Holder", "Holds": "no stint.Holder", "ManyHolds": "no stint.Holder", "HoldClock": "no stint.Holder",
		"HeldBudgetIsKept": "no stint.Holder", "LinearizableHolds": "no stint.Holder",
		"NothingAndUnlimited": "cannot reset", "Deadlines": "Kit.Frozen makes no store",
	}
	k := Kit{New: func(*testing.T) stint.Store { return new(bare) }, Steps: 5_000, Seed: 1}
	for _, c := range checks {
		failed, said := watch(t, func(t testing.TB) { c.run(t, k.env(nil)) })
		_, skipped, _ := strings.Cut(said, "skipped: ")
		if lack := lacks[c.name]; failed || (lack == "") != (skipped == "") || !strings.Contains(skipped, lack) {
			t.Errorf("%s: failed %t, skipped %q, want for %q\n%s", c.name, failed, skipped, lack, said)
		}
		if c.name != "Twins" {
			continue
		}
		for _, verb := range []string{"refund", "reset", "violate", "hold"} {
			if !strings.Contains(said, "not tested: "+verb) {
				t.Errorf("%s does not say that it has not tested %s:\n%s", c.name, verb, said)
			}
		}
	}
}

// listless is an Inspector that cannot list bans.
type listless struct{ *Model }

func (listless) Banned(context.Context, func(stint.Record) bool) error { return stint.ErrUnsupported }

func TestBannedIsOptional(t *testing.T) {
	k := Kit{New: func(*testing.T) stint.Store { return listless{new(Model)} }}
	failed, said := watch(t, func(t testing.TB) { checkRecords(t, k.env(nil)) })
	if failed || !strings.Contains(said, "lists no bans") {
		t.Errorf("failed %t, said %s", failed, said)
	}
}

// A failure must show whatever differs.
func TestEveryFieldOfADecisionIsShown(t *testing.T) {
	base := stint.Decision{}
	fields := reflect.TypeOf(base)
	for i := range fields.NumField() {
		if fields.Field(i).Name == "Remembered" {
			continue // a Store may repeat what another asks for: the rest must be equal
		}
		d := base
		switch f := reflect.ValueOf(&d).Elem().Field(i).Addr().Interface().(type) {
		case *bool:
			*f = true
		case *stint.Outcome:
			*f = stint.Warned
		case *stint.Source:
			*f = stint.ByLocal
		case **stint.Limit:
			*f = one
		case **stint.Penalty:
			*f = strict
		case *string:
			*f = "k"
		case *int64:
			*f = 1
		case *time.Duration:
			*f = 1
		default:
			t.Fatalf("Decision.%s is of a kind that this test does not know", fields.Field(i).Name)
		}
		if show(&d) == show(&base) {
			t.Errorf("show leaves out Decision.%s; if you add a field, add it to show", fields.Field(i).Name)
		}
	}
}
