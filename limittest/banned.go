package limittest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

const recordSteps = 400

// checkRecords makes the same requests to a store and a Model by their own clocks, under penalties
// of hours, and compares their records after each step.
func checkRecords(t testing.TB, e *env) {
	store := e.open()
	inspector, ok := stint.As[stint.Inspector](store)
	if !ok {
		t.Skipf("%T is no stint.Inspector", store)
	}
	t.Logf("seed %d", e.seed)
	c := records{TB: t, rng: rand.New(rand.NewPCG(e.seed, 3)), store: store, inspector: inspector, keys: slices.Clone(oddKeys), told: map[string][]string{}, spans: map[recordID]time.Duration{}}
	c.rng.Shuffle(len(c.keys), func(i, j int) { c.keys[i], c.keys[j] = c.keys[j], c.keys[i] })
	for range recordSteps {
		c.step()
	}
	c.checkBanned()
	c.checkForgotten()
}

// oddKeys are hard to tell apart, and some are very long.
var oddKeys = []string{"a", "a}p:records", "{a}", "1:a", "#a", "\x00\xff", "}", strings.Repeat("k", 64), strings.Repeat("k", 65), strings.Repeat("k", stint.MaxKey)}

// The penalties of checkRecords, and a limit that stays exhausted.
var (
	recordPenalties = []*stint.Penalty{
		mustPenalty(stint.PenaltySpec{WarnAfter: 2, BanAfter: 3, BanFor: 2 * time.Hour, ForgetAfter: 100 * time.Hour, Growth: 2}),
		mustPenalty(stint.PenaltySpec{Name: "}p:", BanAfter: 2, BanFor: 3 * time.Hour, ForgetAfter: 100 * time.Hour}),
		mustPenalty(stint.PenaltySpec{Name: "warns only", WarnAfter: 2, ForgetAfter: 100 * time.Hour}),
	}
	onceEver = mustLimit(stint.Spec{Name: "}p:once", Amount: 1, Period: 1000 * 24 * time.Hour})
)

type records struct {
	testing.TB
	rng       *rand.Rand
	store     stint.Store
	inspector stint.Inspector
	model     Model
	keys      []string
	told      map[string][]string // by key
	// spans has, for each record, the duration of the longest step that may have imposed its ban:
	// store and model did so at different instants of it.
	spans map[recordID]time.Duration
}

// took is the time since began, by the wall clock or the monotonic clock, whichever is longer: they
// differ if the clock is set.
func took(began time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(began), now.Round(0).Sub(began.Round(0)).Abs())
}

func (c *records) step() {
	ctx := context.Background()
	a := stint.Ask{Key: c.keys[c.rng.IntN(len(c.keys))], Limit: onceEver, Cost: 1, Penalty: recordPenalties[c.rng.IntN(len(recordPenalties))]}
	began := time.Now()
	var got, want stint.Decision
	var err error
	verb := "take"
	violator, violates := stint.As[stint.Violator](c.store)
	_, resets := stint.As[stint.Resetter](c.store)
	switch n := c.rng.IntN(10); {
	case n < 5 && violates:
		verb = "violate"
		got, err = violator.Violate(ctx, &stint.Request{Asks: []stint.Ask{a}})
		want, _ = c.model.Violate(ctx, &stint.Request{Asks: []stint.Ask{a}})
	case n < 7 && resets:
		verb, a.Limit = "pardon", nil
		var found bool
		found, err = stint.NewLimiter(c.store).Pardon(ctx, a.Key, a.Penalty)
		if want, _ := stint.NewLimiter(&c.model).Pardon(ctx, a.Key, a.Penalty); found != want {
			c.Errorf("Pardon of %.20q found something: %v, want %v", a.Key, found, want)
		}
	default:
		if n == 9 {
			a.Limit, a.Cost = nil, 0 // only the ban
		}
		got, err = c.store.Take(ctx, &stint.Request{Asks: []stint.Ask{a}}, nil)
		want, _ = c.model.Take(ctx, &stint.Request{Asks: []stint.Ask{a}}, nil)
	}
	c.told[a.Key] = append(c.told[a.Key], fmt.Sprintf("%s %.20q (penalty %q) → %s", verb, a.Key, a.Penalty.Spec().Name, got.Outcome))
	story := func() string { return strings.Join(c.told[a.Key], "\n") }
	if err != nil || got.Outcome != want.Outcome {
		c.Fatalf("%s: %s, %v, want %s\n%s", verb, got.Outcome, err, want.Outcome, story())
	}
	record, err := c.inspector.Record(ctx, a.Key, a.Penalty)
	wanted, _ := c.model.Record(ctx, a.Key, a.Penalty)
	// If a step took long, both of its halves may have: the change and the reading.
	id, span := recordID{a.Key, a.Penalty.Spec().Name}, took(began)
	c.spans[id] = max(c.spans[id], span)
	if err != nil || !c.alike(record, wanted, id, span) {
		c.Fatalf("Record:\n got %+v, %v\nwant %+v\n%s", record, err, wanted, story())
	}
}

// alike compares records that were read within a span; the rest of their bans may differ by it.
func (c *records) alike(got, want stint.Record, id recordID, span time.Duration) bool {
	const rounding = 2 * time.Millisecond
	apart := (got.BanLeft - want.BanLeft).Abs()
	got.BanLeft, want.BanLeft = min(got.BanLeft, 1), min(want.BanLeft, 1)
	return got == want && apart <= c.spans[id]+span+rounding
}

func (c *records) checkBanned() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	got, err := bansOf(ctx, c.inspector)
	if errors.Is(err, stint.ErrUnsupported) {
		c.Logf("not tested: %T lists no bans: %v", c.store, err)
		return
	}
	want, _ := bansOf(ctx, &c.model)
	span := took(began)
	if err != nil || len(got) != len(want) || len(want) < 3 {
		c.Fatalf("Banned: %d bans, %v; want %d, and several:\n%+v", len(got), err, len(want), want)
	}
	// Those with a key first, so that a hash can only match the rest; and by their ends, so that no
	// hash takes the place of another.
	byEnd := func(a, b stint.Record) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a.Hashed), fmt.Sprint(b.Hashed)), cmp.Compare(a.BanLeft, b.BanLeft))
	}
	slices.SortFunc(got, byEnd)
	slices.SortFunc(want, byEnd)
	for _, r := range got {
		i := slices.IndexFunc(want, func(w stint.Record) bool {
			id := recordID{w.Key, w.Penalty}
			if r.Hashed && len(w.Key) > 16 && strings.HasPrefix(r.Key, "#") {
				w.Key, w.Hashed = r.Key, true
			}
			return c.alike(r, w, id, span)
		})
		if i < 0 {
			c.Fatalf("Banned: %+v, which is not among, or came twice:\n%+v\n%s", r, want, strings.Join(c.told[r.Key], "\n"))
		}
		want = slices.Delete(want, i, i+1)
	}
	calls := 0
	err = c.inspector.Banned(ctx, func(stint.Record) bool { calls++; return false })
	if err != nil || calls != 1 {
		c.Errorf("Banned goes on when told to stop: %d calls, %v", calls, err)
	}
	cancel()
	if _, err := bansOf(ctx, c.inspector); !errors.Is(err, context.Canceled) {
		c.Errorf("Banned with a context that is done: error %v", err)
	}
}

func bansOf(ctx context.Context, s stint.Inspector) (all []stint.Record, err error) {
	err = s.Banned(ctx, func(r stint.Record) bool {
		all = append(all, r)
		return true
	})
	return all, err
}

// checkForgotten reads a record after its time: nothing counts any more.
func (c *records) checkForgotten() {
	const briefly = 5 * time.Millisecond
	p := mustPenalty(stint.PenaltySpec{Name: "briefly", WarnAfter: 9, BanAfter: 1, BanFor: briefly, ForgetAfter: briefly})
	s, ok := stint.As[stint.Violator](c.store)
	if !ok {
		return
	}
	ctx := context.Background()
	if _, err := s.Violate(ctx, &stint.Request{Asks: []stint.Ask{{Key: "a", Penalty: p}}}); err != nil {
		c.Fatalf("Violate: %v", err)
	}
	time.Sleep(4 * briefly) // by a store's own clock, which may differ
	want := stint.Record{Key: "a", Penalty: "briefly"}
	if got, err := c.inspector.Record(ctx, "a", p); err != nil || got != want {
		c.Errorf("Record of what is forgotten: %+v, %v, want %+v", got, err, want)
	}
}
