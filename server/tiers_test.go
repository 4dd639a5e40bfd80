package server_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// What a partner asks does not make room for the anonymous caller of the same key: at
// 10 requests a second, those have 10 and what comes back in a minute, and at one a
// second the partner has all.
func TestTiersDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
tiers: {partner: attrs.plan == "partner"}
rules:
  - {name: api, key: attrs.user, limits: [10 per 1m], tiers: {partner: {times: 100}}}
`, over(newTelling()))
		anonymous, partner := 0, 0
		for i := range 600 {
			if i%10 == 0 && outcome(t, s, `{"attrs":{"user":"u","plan":"partner"}}`) == "allowed" {
				partner++
			}
			if outcome(t, s, `{"attrs":{"user":"u"}}`) == "allowed" {
				anonymous++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if anonymous != 19 || partner != 60 {
			t.Errorf("%d of the anonymous were allowed, and %d of the partner's", anonymous, partner)
		}
	})
}

// tiersFile has three kinds of callers under one limit; rarely are the numbers of two
// the same.
func tiersFile(rng *rand.Rand, a stint.Algorithm) (file string, limits map[string]*stint.Limit) {
	text := func(amount int) string { return fmt.Sprintf("%d per 1s %s", amount, a) }
	base := 1 + rng.IntN(20)
	times, gold := 1+rng.IntN(100), 1+rng.IntN(40)
	return fmt.Sprintf(`
tiers: {partner: attrs.plan == "partner", gold: attrs.plan == "gold"}
rules:
  - {name: api, key: attrs.user, limits: [%s], tiers: {partner: {times: %d}, gold: {limits: [%s]}}}
`, text(base), times, text(gold)), map[string]*stint.Limit{
			"free": stint.MustLimit(text(base)), "partner": stint.MustLimit(text(base * times)), "gold": stint.MustLimit(text(gold)),
		}
}

// caller is what is known of one tier of the key.
type caller struct {
	model limittest.Model // of its own requests alone
	limit *stint.Limit
	due   time.Time // when its last request, refused, may pass; zero: there is none
	cost  int64
}

// tiersApart has three tiers of one key ask a server at random, and holds what each is
// told against a slow model that sees nothing of the others. Who has waited as long as
// it was told asks the same again, and is allowed.
//
// Time is that of the bubble it runs in; or, of a store far away, what at starts with
// and requests are told.
func tiersApart(t *testing.T, store stint.Store, rng *rand.Rand, a stint.Algorithm, steps int, at time.Time) {
	t.Helper()
	now := func() time.Time { return at }
	sleep := func(until time.Time) { at = until }
	if at.IsZero() {
		now, sleep = time.Now, func(until time.Time) { time.Sleep(time.Until(until)) }
	}
	file, limits := tiersFile(rng, a)
	s := newServer(t, file, over(store))
	defer s.Close()
	callers := map[string]*caller{}
	for tier, limit := range limits {
		callers[tier] = &caller{limit: limit}
	}
	waited := 0
	for range steps {
		until := now().Add(time.Duration(rng.IntN(150_000)) * time.Microsecond)
		tier := []string{"free", "partner", "gold"}[rng.IntN(3)]
		for name, c := range callers { // first who waits
			if !c.due.IsZero() && !c.due.After(until) {
				tier, until = name, c.due
			}
		}
		sleep(until)
		c := callers[tier]
		if c.due.After(until) {
			continue // it still waits
		}
		if c.due.IsZero() {
			c.cost = 1 + rng.Int64N(1+c.limit.Capacity()/2)
		}
		v, err := s.Decide(t.Context(), &rules.Input{Attrs: map[string]any{"user": "u", "plan": tier}, Cost: c.cost}, at)
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.model.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "u", Limit: c.limit, Cost: c.cost, Peek: c.cost == 0}}, At: at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := v.Decision
		if got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter || got.Delay != want.Delay || got.Remaining != want.Remaining || got.ResetAfter != want.ResetAfter {
			t.Fatalf("%s\n%s asks for %d at %s: got %+v\nwant %+v", file, tier, c.cost, until, got, want)
		}
		if !c.due.IsZero() {
			if waited++; !got.Allowed {
				t.Fatalf("%s\n%s is refused after it has waited: %+v", file, tier, got)
			}
		}
		c.due = time.Time{}
		if !got.Allowed {
			c.due = now().Add(got.RetryAfter)
		}
	}
	if waited < steps/20 {
		t.Errorf("waited %d times only", waited)
	}
}

// Leases, remembered refusals and the fallback lie between, as in a fleet.
func TestTiersApart(t *testing.T) { eachAlgorithm(t, 10, 500, tiersApart) }

func TestTiersApartInRedis(t *testing.T) { eachAlgorithmInRedis(t, 5, 400, tiersApart) }

// atRandom is a test that asks a Store at random, with limits of one algorithm, so many times. It
// begins at an instant, or, if that is zero, has the time of the bubble in which it runs.
type atRandom func(t *testing.T, store stint.Store, rng *rand.Rand, a stint.Algorithm, steps int, at time.Time)

// eachAlgorithm runs a test some times for each algorithm, in memory and in bubbles; the short
// form does so a third as often.
func eachAlgorithm(t *testing.T, times, steps int, test atRandom) {
	if testing.Short() {
		times = (times + 2) / 3
	}
	for a := stint.TokenBucket; a <= stint.SlidingWindow; a++ {
		t.Run(a.String(), func(t *testing.T) {
			for range times {
				seed := attack.Seed(t)
				synctest.Test(t, func(t *testing.T) {
					test(t, newTelling(), rand.New(rand.NewPCG(seed, 0)), a, steps, time.Time{})
				})
			}
		})
	}
}

// eachAlgorithmInRedis runs a test some times for each algorithm, from noon; the short form once.
func eachAlgorithmInRedis(t *testing.T, times, steps int, test atRandom) {
	t.Parallel()
	if testing.Short() {
		times = 1
	}
	redis := redistest.Start(t)
	for a := stint.TokenBucket; a <= stint.SlidingWindow; a++ {
		t.Run(a.String(), func(t *testing.T) {
			for i := range times {
				store := openRedis(t, redis.URL(), fmt.Sprintf("%s%d", a, i))
				test(t, store, rand.New(rand.NewPCG(attack.Seed(t), 0)), a, steps, noon)
			}
		})
	}
}

// By the clock of a real Redis, with everything between that a fleet has: no tier has
// more than its own limit allows in the time it took, and who waits as long as it was
// told is allowed, whatever the others ask meanwhile.
func TestTiersWaitInRedis(t *testing.T) {
	t.Parallel()
	lasts := 1200 * time.Millisecond
	if testing.Short() {
		lasts /= 2
	}
	redis := redistest.Start(t)
	for a := stint.TokenBucket; a <= stint.SlidingWindow; a++ {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			store := openRedis(t, redis.URL(), a.String())
			s := newServer(t, fmt.Sprintf(`
tiers: {partner: attrs.plan == "partner"}
rules:
  - {name: api, key: attrs.user, limits: [5 per 200ms %s], tiers: {partner: {times: 100}}}
`, a), over(store), func(c *server.Config) { c.Settings.DecisionTimeout = 10 * time.Second }) // who is decided without the store is charged later, and changes how long to wait
			go s.Follow(t.Context()) // remembers refusals from now on
			ask := func(plan string) server.Verdict {
				v, err := s.Decide(t.Context(), &rules.Input{Attrs: map[string]any{"user": "u", "plan": plan}, Cost: 1}, time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			began, free := time.Now(), 0
			for time.Since(began) < lasts {
				v := ask("free")
				for range 20 {
					ask("partner")
				}
				if v.Allowed {
					free++
					continue
				}
				for due := time.Now().Add(v.RetryAfter); time.Now().Before(due); {
					ask("partner")
					time.Sleep(time.Millisecond)
				}
				if v = ask("free"); !v.Allowed && v.By == stint.ByStore {
					t.Fatalf("refused after the wait it was told: %+v", v.Decision)
				} else if v.Allowed {
					free++
				}
			}
			periods := int(time.Since(began)/(200*time.Millisecond)) + 2
			if free > 5*periods {
				t.Errorf("%d were allowed in %d periods of 5", free, periods)
			}
		})
	}
}
