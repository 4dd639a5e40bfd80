package limittest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// checkTakeBatch sends the same requests twice, under two sets of keys: one by one, and as a batch.
// Most requests of a batch differ from another one in a single field, because a store may decide
// equal requests together.
func checkTakeBatch(t testing.TB, e *env) {
	store := e.open()
	each, ok := store.(stint.BatchTaker)
	if !ok {
		t.Skipf("%T is no stint.BatchTaker", store)
	}
	t.Logf("seed %d", e.seed)
	b := newBatches(e.seed, store)
	r := reader{t: t, store: store}
	for at := int64(1e15); len(r.story.events) < 2000; at += b.rng.Int64N(b.rng.Int64N(3_000_000) + 1) {
		batch := b.draw(at)
		answers := takeBatch(t, each, batch)
		for i := range batch {
			rename(batch[i].Asks)
			want, wantEach := r.ask(&batch[i])
			checkAnswer(t, &r.story, &answers[i], want, wantEach)
		}
		b.settle(t, &r, at)
	}
}

// Prefixes of the keys.
const (
	oneByOne = "one by one: "
	inOneGo  = "in one go: "
)

func rename(asks []stint.Ask) {
	for i := range asks {
		asks[i].Key = strings.Replace(asks[i].Key, inOneGo, oneByOne, 1)
	}
}

// batches draws requests that are sent together.
type batches struct {
	rng     *rand.Rand
	limits  []*stint.Limit
	some    []*stint.Limit // of requests now: few, so that they fill
	penalty *stint.Penalty
	holds   bool            // of the store
	held    []stint.Request // under one set of keys
}

func newBatches(seed uint64, s stint.Store) *batches {
	b := &batches{rng: rand.New(rand.NewPCG(seed, 2)), penalty: mustPenalty(stint.PenaltySpec{WarnAfter: 2, BanAfter: 4, BanFor: 3 * time.Second})}
	_, b.holds = stint.As[stint.Holder](s)
	for _, amount := range []int64{3, 4} { // with one name, and so one count
		b.limits = append(b.limits, oneOfEach(amount, 10*time.Second, "")...)
		for _, l := range oneOfEach(amount, 10*time.Second, "held") {
			if spec := l.Spec(); b.holds && spec.Algorithm != stint.LeakyBucket {
				spec.Hold = time.Duration(amount) * time.Second
				b.limits = append(b.limits, mustLimit(spec))
			}
		}
		if b.holds {
			b.limits = append(b.limits, mustLimit(stint.Spec{Name: "running", Algorithm: stint.InFlight, Amount: amount - 1}))
		}
	}
	return b
}

func (b *batches) draw(at int64) (batch []stint.Request) {
	if b.some == nil || b.rng.IntN(10) == 0 {
		b.some = nil
		for _, i := range b.rng.Perm(len(b.limits))[:1+b.rng.IntN(4)] {
			b.some = append(b.some, b.limits[i])
		}
	}
	for n := 1 + b.rng.IntN(8); len(batch) < n; {
		r := stint.Request{}
		if len(batch) > 0 && b.rng.IntN(4) > 0 {
			r = batch[b.rng.IntN(len(batch))]
			r.Asks = slices.Clone(r.Asks)
			b.change(&r)
		} else {
			for range 1 + b.rng.IntN(3) {
				r.Asks = append(r.Asks, b.ask())
			}
			b.toggleHold(&r)
		}
		r.At = time.UnixMicro(at)
		if r.Hold != (stint.HoldID{}) {
			r.Hold = b.newID()
		}
		if stint.Internal(friend.Of{}).Check(&r) == nil {
			batch = append(batch, r)
			if r.Hold != (stint.HoldID{}) {
				b.held = append(b.held, r)
				b.held[len(b.held)-1].Asks = slices.Clone(r.Asks)
			}
		}
	}
	return batch
}

func (b *batches) ask() stint.Ask {
	a := stint.Ask{Key: inOneGo + []string{"a", "b"}[b.rng.IntN(2)], Limit: b.some[b.rng.IntN(len(b.some))]}
	stint.Internal(friend.Of{}).SetUnits(&a, b.units())
	if b.rng.IntN(6) == 0 {
		a.Penalty = b.penalty
	}
	return a
}

func (b *batches) units() int64 { return []int64{0, 0, 1, 1, 2, 3}[b.rng.IntN(6)] }

func (b *batches) toggleHold(r *stint.Request) {
	switch {
	case r.Hold != stint.HoldID{}:
		r.Hold, r.HoldFor = stint.HoldID{}, 0
	case b.holds && b.rng.IntN(2) == 0:
		r.Hold = b.newID()
	}
}

func (b *batches) newID() (id stint.HoldID) {
	for i := range id {
		id[i] = byte(b.rng.UintN(256))
	}
	return id
}

// change changes one field of a request, or nothing.
func (b *batches) change(r *stint.Request) {
	a := &r.Asks[b.rng.IntN(len(r.Asks))]
	switch b.rng.IntN(10) {
	case 0, 1, 8:
		b.toggleHold(r)
	case 2:
		if r.Hold != (stint.HoldID{}) {
			r.HoldFor = time.Duration(b.rng.IntN(3)) * time.Second
		}
	case 3, 4:
		stint.Internal(friend.Of{}).SetUnits(a, b.units())
	case 5:
		other := b.ask()
		a.Key, a.Limit = other.Key, other.Limit
	case 6:
		a.MaxDelay = time.Duration(b.rng.IntN(4)-1) * time.Second
	case 7:
		if a.Penalty = nil; b.rng.IntN(2) == 0 {
			a.Penalty = b.penalty
		}
	}
}

func takeBatch(t testing.TB, s stint.BatchTaker, batch []stint.Request) []stint.Answer {
	t.Helper()
	rs := make([]stint.Request, len(batch))
	answers := make([]stint.Answer, len(batch))
	for i, r := range batch {
		rs[i] = r
		rs[i].Asks = slices.Clone(r.Asks)
		if i%3 > 0 { // some do not want the answers
			answers[i].Each = slices.Repeat([]stint.Decision{untouched}, len(r.Asks))
		}
	}
	s.TakeBatch(context.Background(), rs, answers)
	return answers
}

// settle ends some holds under both sets of keys, which must then be equal.
func (b *batches) settle(t testing.TB, r *reader, at int64) {
	t.Helper()
	for range b.rng.IntN(3) {
		if len(b.held) == 0 {
			return
		}
		i := b.rng.IntN(len(b.held))
		ended := b.held[i]
		b.held = slices.Delete(b.held, i, i+1)
		var calls, same []stint.HoldCall
		for _, a := range ended.Asks {
			if a.Limit.IsHeld() {
				calls = append(calls, stint.HoldCall{
					Action: stint.HoldSettle, Key: a.Key, Limit: a.Limit, Hold: ended.Hold, Units: a.Units(), For: ended.HoldFor, Cost: int64(b.rng.IntN(3)),
				})
			}
		}
		for _, c := range calls {
			c.Key = strings.Replace(c.Key, inOneGo, oneByOne, 1)
			same = append(same, c)
		}
		r.call(at, calls...)
		r.call(at, same...)
		for j := range calls {
			if calls[j].Key = same[j].Key; calls[j] != same[j] {
				t.Fatalf("what a batch held:\n%s\ninstead of:\n%s\n%s", showCall(&calls[j]), showCall(&same[j]), &r.story)
			}
		}
	}
}

func checkAnswer(t testing.TB, s *story, got *stint.Answer, want stint.Decision, wantEach []stint.Decision) {
	t.Helper()
	if got.Err != nil {
		t.Fatalf("TakeBatch: %v\n%s", got.Err, s)
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
