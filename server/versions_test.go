package server_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// version is a server that runs one of two versions of a rule, with an override of the
// key that comes and goes.
type version struct {
	*server.Server
	operator
	override string // its ID; empty: there is none
}

// changes has two versions of a rule in force in one fleet, and overrides of the key
// come and go at each, after every few requests. All that is admitted, the largest of
// the limits alone would have admitted, at the same instants; and who waits as long as
// the store says is allowed. Time is as in tiersApart.
func changes(t *testing.T, store stint.Store, rng *rand.Rand, a stint.Algorithm, steps int, at time.Time) {
	t.Helper()
	now := func() time.Time { return at }
	sleep := func(d time.Duration) { at = at.Add(d) }
	if at.IsZero() {
		now, sleep = time.Now, time.Sleep
	}
	const largest = 40
	text := func(amount int) string { return fmt.Sprintf("%d per 1s %s", amount, a) }
	var fleet []*version
	for _, amount := range []int{1 + rng.IntN(largest), largest} {
		s := newServer(t, fmt.Sprintf("rules:\n  - {name: api, key: attrs.user, limits: [%s]}\n", text(amount)), over(store))
		defer s.Close()
		fleet = append(fleet, &version{s, operator{t, s.Admin()}, ""})
	}
	var model limittest.Model
	limit := stint.MustLimit(text(largest))
	ask := func(v *version, cost int64) stint.Decision {
		t.Helper()
		got, err := v.Decide(t.Context(), &rules.Input{Attrs: map[string]any{"user": "u"}, Cost: cost}, at)
		if err != nil {
			t.Fatal(err)
		}
		if got.Allowed {
			want, err := model.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "u", Limit: limit, Cost: cost, Peek: cost == 0}}, At: at}, nil)
			if err != nil || !want.Allowed {
				t.Fatalf("%d at %s under %s; %s refuses it: %+v, %v", cost, now(), got.Limit, limit, want, err)
			}
		}
		return got.Decision
	}
	waited := 0
	for range steps {
		sleep(time.Duration(rng.IntN(100_000)) * time.Microsecond)
		v := fleet[rng.IntN(2)]
		switch {
		case rng.IntN(5) > 0:
		case v.override == "":
			v.override = v.id(v.want(201, "POST", "/v1/overrides", `{"rule":"api","key":"u","limits":["`+text(1+rng.IntN(largest))+`"]}`))
		default:
			v.want(200, "DELETE", "/v1/overrides/"+v.override, "")
			v.override = ""
		}
		cost := 1 + rng.Int64N(5)
		if d := ask(v, cost); !d.Allowed && d.RetryAfter != stint.Never && rng.IntN(3) == 0 {
			waited++
			// A remembered refusal tells what the store said then; what others were
			// allowed since, the store tells after that.
			for range 2 {
				if !d.Allowed {
					sleep(d.RetryAfter)
					d = ask(v, cost)
				}
			}
			if !d.Allowed {
				t.Fatalf("refused after the wait it was told: %+v", d)
			}
		}
	}
	if waited < steps/50 {
		t.Errorf("waited %d times only", waited)
	}
}

func TestVersionsWithOverrides(t *testing.T) { eachAlgorithm(t, 5, 500, changes) }

func TestVersionsWithOverridesInRedis(t *testing.T) { eachAlgorithmInRedis(t, 2, 500, changes) }
