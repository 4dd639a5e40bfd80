package limittest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// checkTakeBatch asks a store the same twice, under two sets of keys: one by one, and as a batch.
func checkTakeBatch(t testing.TB, e *env) {
	store := e.open()
	each, ok := store.(stint.BatchTaker)
	if !ok {
		t.Skipf("%T is no stint.BatchTaker", store)
	}
	t.Logf("seed %d", e.seed)
	rng := rand.New(rand.NewPCG(e.seed, 2))
	limits := oneOfEach(5, 10*time.Second, "")
	penalty := mustPenalty(stint.PenaltySpec{WarnAfter: 2, BanAfter: 4, BanFor: 3 * time.Second})
	r := reader{t: t, store: store}
	for at := int64(1e15); len(r.story.events) < 2000; at += rng.Int64N(3_000_000) {
		batch := make([][]stint.Ask, 1+rng.IntN(8))
		for i := range batch {
			batch[i] = drawBatched(rng, limits, penalty)
		}
		answers := takeBatch(t, each, at, batch)
		for i, asks := range batch {
			for j := range asks {
				asks[j].Key = strings.Replace(asks[j].Key, inOneGo, oneByOne, 1)
			}
			want, wantEach := r.take(at, asks...)
			checkAnswer(t, &r.story, &answers[i], want, wantEach)
		}
	}
}

// What the keys begin with.
const (
	oneByOne = "one by one: "
	inOneGo  = "in one go: "
)

func drawBatched(rng *rand.Rand, limits []*stint.Limit, p *stint.Penalty) (asks []stint.Ask) {
	for _, i := range rng.Perm(len(limits))[:1+rng.IntN(3)] {
		a := stint.Ask{Key: inOneGo + []string{"a", "b"}[rng.IntN(2)], Limit: limits[i]}
		stint.Internal().SetUnits(&a, int64(rng.IntN(4)))
		if rng.IntN(3) == 0 {
			a.Penalty = p
		}
		asks = append(asks, a)
	}
	return asks
}

func takeBatch(t testing.TB, s stint.BatchTaker, at int64, batch [][]stint.Ask) []stint.Answer {
	t.Helper()
	rs := make([]stint.Request, len(batch))
	answers := make([]stint.Answer, len(batch))
	for i, asks := range batch {
		rs[i] = stint.Request{Asks: slices.Clone(asks), At: time.UnixMicro(at)}
		if i%3 > 0 { // some do not want to know
			answers[i].Each = slices.Repeat([]stint.Decision{untouched}, len(asks))
		}
	}
	s.TakeBatch(context.Background(), rs, answers)
	return answers
}

func checkAnswer(t testing.TB, s *story, got *stint.Answer, want stint.Decision, wantEach []stint.Decision) {
	t.Helper()
	if got.Err != nil {
		t.Fatalf("TakeBatch: %v", got.Err)
	}
	same := func(what string, got, want stint.Decision) {
		t.Helper()
		got.Key = strings.Replace(got.Key, inOneGo, oneByOne, 1)
		if got != want {
			t.Fatalf("%s:\n TakeBatch: %s\ninstead of: %s\n%s", what, show(&got), show(&want), s)
		}
	}
	same("the whole", got.Decision, want)
	for i := range got.Each {
		if want.Limit == nil {
			same("an ask that a running ban left unasked", got.Each[i], untouched)
		} else {
			same("an ask's own answer", got.Each[i], wantEach[i])
		}
	}
}
