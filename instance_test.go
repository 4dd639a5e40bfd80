package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// counted is a Memory that counts how often it is asked.
type counted struct {
	stint.Memory
	asked int
}

func (c *counted) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	c.asked++
	return c.Memory.Take(ctx, r, out)
}

// TakeBatch hides the Memory's.
func (c *counted) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	c.asked += len(rs)
	c.Memory.TakeBatch(ctx, rs, answers)
}

// What the instance refuses is not asked, nor charged, in the Store; what the Store
// refuses or cannot decide takes nothing of the instance. So over random requests the
// layers admit what two counters do.
func TestInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perKey, perInstance := stint.MustLimit("4 per 1h"), stint.MustLimit("10 per 1h")
		store := new(counted)
		l := stint.Limiter{Store: store, Instance: perInstance}
		left, here, asked := map[string]int64{"a": 4, "b": 4, "c": 4, "d": 4}, 10, 0
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 300 {
			key, n := string(rune('a'+random.IntN(4))), int64(random.IntN(3))
			var d stint.Decision
			var err error
			out := make([]stint.Decision, 1)
			r := stint.Request{Asks: []stint.Ask{{Key: key, Limit: perKey, Cost: n, Peek: n == 0}}}
			switch {
			case i%3 == 0:
				d, err = l.AllowN(t.Context(), key, perKey, n)
				out[0] = d
			case i%3 == 1:
				d, err = l.Take(t.Context(), &r, out)
			default:
				answers := []stint.Answer{{Each: out}}
				l.TakeBatch(t.Context(), []stint.Request{r}, answers)
				d, err = answers[0].Decision, answers[0].Err
			}
			if err != nil {
				t.Fatal(err)
			}
			by := stint.ByStore
			want := n <= left[key]
			if n > 0 && here == 0 {
				want, by = false, stint.ByInstance
			} else {
				asked++
			}
			if want {
				left[key] -= n
				here -= int(min(n, 1))
			}
			if d.Allowed != want || d.By != by || store.asked != asked || out[0] != d {
				t.Fatalf("%d: %d of %s: %+v after %d of %d questions; want %v by %s; its ask: %+v", i, n, key, d, store.asked, asked, want, by, out[0])
			}
			if by == stint.ByInstance && (d.Limit != perInstance || d.RetryAfter <= 0) {
				t.Fatalf("%d: %+v", i, d)
			}
			if !want && n > 0 && random.IntN(4) == 0 {
				time.Sleep(time.Hour) // all is unused again
				left, here = map[string]int64{"a": 4, "b": 4, "c": 4, "d": 4}, 10
			}
		}
	})
}

// A list is asked in one go, but for what the instance refuses.
func TestInstanceEach(t *testing.T) {
	store := new(counted)
	l := stint.Limiter{Store: store, Instance: stint.MustLimit("2 per 1h")}
	limit := stint.MustLimit("1 per 1h")
	rs := make([]stint.Request, 6)
	for i, key := range []string{"a", "a", "", "b", "c", "a"} {
		rs[i].Asks = []stint.Ask{{Key: key, Limit: limit, Cost: 1}}
	}
	stint.Internal(friend.Of{}).SetUnits(&rs[5].Asks[0], 0)
	answers := make([]stint.Answer, len(rs))
	l.TakeBatch(t.Context(), rs, answers)
	// While the list is under way, the second, which the Store refuses, holds a unit.
	for i, want := range []stint.Source{stint.ByStore, stint.ByStore, stint.ByStore, stint.ByInstance, stint.ByInstance, stint.ByStore} {
		if answers[i].By != want || (answers[i].Err != nil) != (i == 2) || answers[i].Allowed != (i == 0 || i == 5) {
			t.Errorf("%d: %+v", i, answers[i])
		}
	}
	if store.asked != 3 {
		t.Errorf("the store was asked %d times, want 3", store.asked)
	}
	if d, err := l.Allow(t.Context(), "d", limit); err != nil || !d.Allowed {
		t.Errorf("the unit of the refused one: %+v, %v", d, err)
	}
	if d, err := l.Allow(t.Context(), "e", limit); err != nil || d.Allowed || d.By != stint.ByInstance {
		t.Errorf("a third: %+v, %v", d, err)
	}
}

// What the Store cannot decide takes nothing of the instance, and an even pace here is
// kept.
func TestInstanceRefunds(t *testing.T) {
	l := stint.Limiter{Store: broken{errors.New("down")}, Instance: stint.MustLimit("1 per 1h")}
	for range 3 {
		if d, err := l.Allow(t.Context(), "a", stint.MustLimit("1 per 1h")); err == nil || d.By != stint.ByStore {
			t.Errorf("%+v, %v", d, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := stint.Limiter{Instance: stint.MustLimit("10 per 1s leaky_bucket")}
		start := time.Now()
		for range 3 {
			if err := l.Wait(t.Context(), "a", stint.MustLimit("100 per 1s")); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("three took %s", took)
		}
	})
}

// networked is a Store with a fallback.
type networked struct {
	stint.Store
	fallback stint.Store
}

func (n networked) WithFallback() stint.Store { return n.fallback }

// Limiters over one Store and its fallback share what the instance may.
func TestWithFallback(t *testing.T) {
	l := stint.Limiter{Store: networked{broken{errors.New("down")}, new(stint.Memory)}, Instance: stint.MustLimit("2 per 1h")}
	limit := stint.MustLimit("1 per 1h")
	for i, key := range []string{"a", "b"} {
		if d, err := stint.Internal(friend.Of{}).WithFallback(&l).Allow(t.Context(), key, limit); err != nil || !d.Allowed {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
	if d, err := l.Allow(t.Context(), "c", limit); err != nil || d.By != stint.ByInstance {
		t.Errorf("%+v, %v", d, err)
	}
	for _, plain := range []*stint.Limiter{{}, {Store: new(stint.Memory)}, {Store: broken{}}} {
		if stint.Internal(friend.Of{}).WithFallback(plain) != plain {
			t.Errorf("%T is not networked", plain.Store)
		}
	}
}

// slowToRefuse refuses the key "refused", and is so slow at that that others come and
// are decided about meanwhile.
type slowToRefuse struct {
	stint.Memory
	meanwhile func()
}

func (s *slowToRefuse) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if r.Asks[0].Key == "refused" {
		s.meanwhile()
		return stint.Decision{Outcome: stint.Limited, Limit: r.Asks[0].Limit}, nil
	}
	return s.Memory.Take(ctx, r, out)
}

// A place in the queue of the instance is given once, also where the Store refuses who
// had it: those who came meanwhile keep theirs.
func TestInstanceKeepsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(slowToRefuse)
		l := stint.Limiter{Store: store, Instance: stint.MustLimit("10 per 1s leaky_bucket")}
		limit := stint.MustLimit("100 per 1h")
		leaves := map[time.Duration]bool{}
		ask := func(key string) {
			d, err := l.Allow(t.Context(), key, limit)
			switch {
			case err != nil:
				t.Fatal(err)
			case d.Allowed && leaves[d.Delay]:
				t.Errorf("two leave after %s", d.Delay)
			case d.Allowed:
				leaves[d.Delay] = true
			}
		}
		store.meanwhile = func() { ask("a") }
		for range 4 {
			ask("refused")
			ask("b")
		}
		if len(leaves) == 0 {
			t.Error("nobody left")
		}
	})
}

// Who waits with a deadline is charged nothing where the instance's queue would let it
// leave too late, and who says how long it waits is not told to wait for longer.
func TestInstanceHeedsMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perKey := stint.MustLimit("10 per 1h")
		l := &stint.Limiter{Instance: stint.MustLimit("10 per 10s leaky_bucket")}
		for range 5 { // the next leaves after 5 s
			if _, err := l.Allow(t.Context(), "other", perKey); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := l.Wait(ctx, "k", perKey)
		var refused *stint.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		if d, _ := l.Peek(t.Context(), "k", perKey); d.Remaining != 10 {
			t.Errorf("%d left of 10: who could not wait was charged", d.Remaining)
		}
		shape := stint.MustLimit("10 per 1h leaky_bucket")
		d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: shape, Cost: 1, MaxDelay: time.Second}}}, nil)
		if d.Allowed || d.By != stint.ByInstance || err != nil {
			t.Errorf("%+v, %v", d, err)
		}
		time.Sleep(d.RetryAfter)
		d, err = l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: shape, Cost: 1, MaxDelay: time.Second}}}, nil)
		if !d.Allowed || d.Delay > time.Second || err != nil {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
