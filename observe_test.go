package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// seen is what an observer was called with, copied.
type seen struct {
	asks     []stint.Ask
	decision stint.Decision
	each     []stint.Decision
	err      error
	ctx      context.Context
}

func observing(l *stint.Limiter) *[]seen {
	var all []seen
	l.Observe = func(ctx context.Context, r *stint.Request, a *stint.Answer) {
		all = append(all, seen{slices.Clone(r.Asks), a.Decision, slices.Clone(a.Each), a.Err, ctx})
	}
	return &all
}

// failing is a Store that decides nothing.
type failing struct{}

var errAway = errors.New("away")

func (failing) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errAway
}

// Whatever way a request takes, its observer gets the request and the answer that the caller
// gets, once, and nothing else.
func TestObserve(t *testing.T) {
	type ctxKey struct{}
	limit, other := stint.MustLimit("login: 4 per 1h"), stint.MustLimit("all: 1000 per 1h")
	punished := penalty(t, stint.PenaltySpec{Name: "p", WarnAfter: 1, BanAfter: 3, BanFor: time.Hour})
	for name, l := range map[string]*stint.Limiter{
		"memory":   {},
		"store":    {Store: new(counted)},
		"instance": {Instance: stint.MustLimit("30 per 1h")},
		"failing":  {Store: failing{}},
		"both":     {Store: new(counted), Instance: stint.MustLimit("3 per 1h leaky_bucket")},
	} {
		t.Run(name, func(t *testing.T) {
			all := observing(l)
			ctx := context.WithValue(t.Context(), ctxKey{}, name)
			random := rand.New(rand.NewPCG(3, 4))
			for i := range 500 {
				key := string(rune('a' + random.IntN(8)))
				asks := []stint.Ask{{Key: key, Limit: limit, Penalty: punished}, {Key: key, Limit: other, Cost: 2}}[:1+random.IntN(2)]
				var want []seen
				switch random.IntN(6) {
				case 0:
					d, err := l.Allow(ctx, key, limit)
					want = []seen{{asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1}}, decision: d, err: err}}
				case 1:
					d, err := l.Peek(ctx, key, limit)
					want = []seen{{asks: []stint.Ask{{Key: key, Limit: limit, Peek: true}}, decision: d, err: err}}
				case 2:
					out := make([]stint.Decision, len(asks))
					d, err := l.Take(ctx, &stint.Request{Asks: asks}, out)
					want = []seen{{asks, d, out, err, nil}}
				case 3:
					d, err := l.Take(ctx, &stint.Request{Asks: asks}, nil)
					want = []seen{{asks, d, nil, err, nil}}
				case 4:
					rs := []stint.Request{{Asks: asks}, {Asks: []stint.Ask{{Key: key + "2", Limit: limit}}}}
					answers := []stint.Answer{{Each: make([]stint.Decision, len(asks))}, {}, {}}
					n := 1
					if i%2 == 0 { // with one that is malformed, which is not observed
						rs = append(rs[:1], stint.Request{}, rs[1])
						n = 2
					}
					l.TakeBatch(ctx, rs, answers)
					want = []seen{{asks, answers[0].Decision, answers[0].Each, answers[0].Err, nil}, {rs[n].Asks, answers[n].Decision, nil, answers[n].Err, nil}}
				case 5:
					d, err := l.Violate(ctx, key, punished)
					want = []seen{{asks: []stint.Ask{{Key: key, Penalty: punished}}, decision: d, err: err}}
				}
				if len(*all) != len(want) {
					t.Fatalf("step %d: observed %d requests, want %d", i, len(*all), len(want))
				}
				for j, got := range *all {
					w := want[j]
					if !slices.Equal(got.asks, w.asks) || got.decision != w.decision || !slices.Equal(got.each, w.each) || got.err != w.err || got.ctx.Value(ctxKey{}) != name {
						t.Fatalf("step %d: observed %+v, want %+v", i, got, w)
					}
				}
				*all = (*all)[:0]
			}
		})
	}
}

// What decides nothing is not observed, and each attempt of a wait is.
func TestObserveNot(t *testing.T) {
	var l stint.Limiter
	all := observing(&l)
	limit := stint.MustLimit("1 per 1h")
	d, err := l.Allow(t.Context(), "k", limit)
	if err != nil || len(*all) != 1 {
		t.Fatal(err, len(*all))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Wait(ctx, "k", limit); err == nil || len(*all) != 2 || (*all)[1].decision.Outcome != stint.Limited {
		t.Fatalf("a wait past the deadline: %v, observed %+v", err, *all)
	}
	*all = nil
	if err := l.Refund(t.Context(), d, 1); err != nil {
		t.Error(err)
	}
	if err := l.Reset(t.Context(), "k", limit); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"", strings.Repeat("k", stint.MaxKey+1)} {
		if _, err := l.Allow(t.Context(), key, limit); !errors.Is(err, stint.ErrRequest) {
			t.Error(err)
		}
		if _, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}}, nil); !errors.Is(err, stint.ErrRequest) {
			t.Error(err)
		}
	}
	if len(*all) != 0 {
		t.Errorf("observed %+v", *all)
	}
}

// A Guard over a Store with a fallback is observed, too.
func TestObserveGuard(t *testing.T) {
	l := stint.Limiter{Store: &networked{Store: failing{}, fallback: new(stint.Memory)}}
	all := observing(&l)
	f := stint.Guard[int, int]{Name: "f", Limiter: &l, Limit: stint.MustLimit("1 per 1h"), Anonymous: stint.AnonymousShare}.Wrap(func(_ context.Context, n int) (int, error) { return n, nil })
	_, _ = f(t.Context(), 1)
	_, _ = f(t.Context(), 2)
	if len(*all) != 2 || !(*all)[0].decision.Allowed || (*all)[1].decision.Outcome != stint.Limited {
		t.Errorf("observed %+v", *all)
	}
}

// An observer costs no allocation: whatever an operation allocates, it does without one.
func TestObserveAllocations(t *testing.T) {
	limit, none := stint.MustLimit("1000000 per 1h"), stint.MustLimit("1 per 200d")
	punished := penalty(t, stint.PenaltySpec{Name: "p", WarnAfter: 1, BanAfter: 1 << 20, BanFor: time.Hour})
	operations := func(l *stint.Limiter) map[string]func() {
		return map[string]func(){
			"Allow":   func() { _, _ = l.Allow(t.Context(), "k", limit) },
			"refused": func() { _, _ = l.Allow(t.Context(), "k", none) },
			"Violate": func() { _, _ = l.Violate(t.Context(), "k", punished) },
			"Take": func() {
				var out [2]stint.Decision
				asks := [2]stint.Ask{{Key: "k", Limit: limit}, {Key: "k", Limit: none}}
				_, _ = l.Take(t.Context(), &stint.Request{Asks: asks[:]}, out[:])
			},
		}
	}
	n := 0
	observed := operations(&stint.Limiter{Observe: func(_ context.Context, r *stint.Request, _ *stint.Answer) { n += len(r.Asks) }})
	for what, alone := range operations(new(stint.Limiter)) {
		alone()
		observed[what]()
		without, with := testing.AllocsPerRun(5000, alone), testing.AllocsPerRun(5000, observed[what])
		if with > without {
			t.Errorf("%s: %g allocations, %g without an observer", what, with, without)
		}
	}
	if n < 4*5000 {
		t.Errorf("observed only %d", n)
	}
}

// The cost of an observer, and of none.
func BenchmarkObserve(b *testing.B) {
	limit := stint.MustLimit("1000000000 per 1h")
	for name, l := range map[string]*stint.Limiter{
		"none": {},
		"set":  {Observe: func(context.Context, *stint.Request, *stint.Answer) {}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), "user:42", limit)
			}
		})
	}
}
