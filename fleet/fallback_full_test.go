package fleet_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// crammed is a Store without room for what it would charge, while it is full.
type crammed struct {
	stint.Memory
	full atomic.Bool
}

func (c *crammed) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if !c.full.Load() {
		return c.Memory.Take(ctx, r, out)
	}
	looking := stint.Request{Asks: append(append([]stint.Ask{}, r.Asks...), stint.Ask{Key: "nobody", Limit: stint.MustLimit("1 per 1s"), Cost: 2})}
	each := make([]stint.Decision, len(looking.Asks))
	if _, err := c.Memory.Take(ctx, &looking, each); err != nil {
		return stint.Decision{}, err
	}
	each = each[:len(r.Asks)]
	if d := stint.Strictest(each); !d.Allowed {
		copy(out, each)
		return d, nil
	}
	return stint.Decision{}, fmt.Errorf("crammed: %w: %w", fleet.ErrNotCharged, stint.ErrFull)
}

func (c *crammed) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = c.Take(ctx, &rs[i], answers[i].Each)
	}
}

// A store that is full is asked all the time: it refuses whom it knows, also together with
// keys that owe it something, and the breaker stays closed. With room, it is charged.
func TestFallbackFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(crammed)
		f := &fleet.Fallback{Store: store, Breaker: fleet.Breaker{Changed: func(to fleet.BreakerState, why error) { t.Errorf("%s: %v", to, why) }}}
		defer f.Close()
		limit := stint.MustLimit("3 per 1h")
		ask := func(key string) stint.Ask { return stint.Ask{Key: key, Limit: limit, Cost: 1} }
		for i := range 50 { // another instance spends
			if _, err := store.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint("spent", i), Limit: limit, Cost: 3}}}, make([]stint.Decision, 1)); err != nil {
				t.Fatal(err)
			}
		}
		store.full.Store(true)
		for i := range 50 {
			fresh, spent := ask(fmt.Sprint("new", i)), ask(fmt.Sprint("spent", i))
			for range 2 {
				if d, err := f.Take(t.Context(), &stint.Request{Asks: []stint.Ask{fresh}}, nil); err != nil || !d.Allowed || d.By != stint.ByLocal {
					t.Fatalf("a new key: %+v, %v", d, err)
				}
			}
			if d, err := f.Take(t.Context(), &stint.Request{Asks: []stint.Ask{fresh, spent}}, nil); err != nil || d.Allowed || d.By != stint.ByStore {
				t.Fatalf("with what owes: %+v, %v", d, err)
			}
			rs := []stint.Request{{Asks: []stint.Ask{ask("listed")}}, {Asks: []stint.Ask{spent}}}
			answers := make([]stint.Answer, 2)
			f.TakeBatch(t.Context(), rs, answers)
			if answers[1].Allowed || answers[1].By != stint.ByStore {
				t.Fatalf("in a list: %+v", answers[1])
			}
		}
		store.full.Store(false)
		time.Sleep(2 * time.Second)
		if d, err := f.Take(t.Context(), &stint.Request{Asks: []stint.Ask{ask("another")}}, nil); err != nil || d.By != stint.ByStore {
			t.Fatalf("with room: %+v, %v", d, err)
		}
		synctest.Wait()
		if d, err := store.Memory.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "new7", Limit: limit, Cost: 2}}}, nil); err != nil || d.Allowed {
			t.Errorf("what was spent without room is not charged: %+v, %v", d, err)
		}
	})
}
