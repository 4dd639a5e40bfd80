package fleet_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// cluster is a Store of servers, of which each has the keys that begin with its name, and
// some hang.
type cluster struct {
	stint.Memory
	mu    sync.Mutex
	hangs map[string]bool
}

func (c *cluster) Partition(_ *stint.Limit, key string) string { return key[:1] }
func (c *cluster) Partitions() []string                        { return []string{"a", "b", "c"} }

func (c *cluster) set(hangs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangs = map[string]bool{}
	for _, h := range hangs {
		c.hangs[h] = true
	}
}

func (c *cluster) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	for _, a := range r.Asks {
		c.mu.Lock()
		hangs := c.hangs[a.Key[:1]]
		c.mu.Unlock()
		if hangs {
			<-ctx.Done()
			return stint.Decision{}, ctx.Err()
		}
	}
	return c.Memory.Take(ctx, r, out)
}

func (c *cluster) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = c.Take(ctx, &rs[i], answers[i].Each)
	}
}

// Holds does what is asked of servers that do not hang, and waits for the others.
func (c *cluster) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	for i := range calls {
		c.mu.Lock()
		hangs := c.hangs[calls[i].Key[:1]]
		c.mu.Unlock()
		if hangs {
			<-ctx.Done()
			calls[i].Err = ctx.Err()
			continue
		}
		c.Memory.Holds(ctx, at, calls[i:i+1])
	}
}

// A server that fails keeps nobody from settling at the others.
func TestPartitionsSettleAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(cluster)
		f := &fleet.Fallback{Store: store, Instances: 1, Called: func(time.Duration, error) {}}
		defer f.Close()
		limit := stint.MustLimit("100 per 1h fixed_window hold 1h")
		var calls []stint.HoldCall
		for _, key := range []string{"a1", "b1", "c1"} {
			id := stint.NewHoldID()
			d, err := stint.NewLimiter(f).Take(t.Context(), &stint.Request{Hold: id, Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 10}}}, nil)
			if err != nil || d.By != stint.ByStore {
				t.Fatal(d, err)
			}
			calls = append(calls, stint.HoldCall{Key: key, Limit: limit, Hold: id, Units: 10, Cost: 7, By: d.By})
		}
		store.set("b")
		for range 10 {
			if _, err := stint.NewLimiter(f).Allow(t.Context(), "b2", limit); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if f.State() != fleet.PartlyOpen {
			t.Fatal(f.State())
		}
		began := time.Now()
		f.Holds(t.Context(), time.Time{}, calls)
		for i, want := range []bool{true, false, true} {
			if c := calls[i]; c.Found != want || (c.Err == nil) != want || errors.Is(c.Err, fleet.ErrNotCharged) == want {
				t.Errorf("%+v", c)
			}
		}
		if time.Since(began) > 0 {
			t.Error("a part that is not asked was waited for")
		}
		store.set()
		time.Sleep(time.Minute)
		if f.Holds(t.Context(), time.Time{}, calls); !calls[1].Found || calls[1].Charged != 7 || calls[0].Found || calls[2].Found {
			t.Errorf("%+v", calls)
		}
	})
}

// Servers of a store fail alone: keys of the others are decided by the store, one by one
// and in lists; a request that needs one that fails is decided here, and what it spends is
// charged when that is back, not before.
func TestPartitionsFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(cluster)
		var states []string
		f := &fleet.Fallback{Store: store, Breaker: fleet.Breaker{Changed: func(to fleet.BreakerState, why error) {
			text := to.String()
			if why != nil {
				name, _, _ := strings.Cut(why.Error(), ":")
				text += " " + name
			}
			states = append(states, text)
		}}}
		defer f.Close()
		l, limit := stint.NewLimiter(f), stint.MustLimit("1000 per 1h fixed_window")
		by := func(keys ...string) stint.Source {
			t.Helper()
			r := &stint.Request{}
			for _, k := range keys {
				r.Asks = append(r.Asks, stint.Ask{Key: k, Limit: limit, Cost: 1})
			}
			d, err := l.Take(t.Context(), r, nil)
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			return d.By
		}
		store.set("a")
		for range 10 {
			by("a1")
			by("a1", "b1") // a part that answers is asked on, whatever fails beside it
		}
		time.Sleep(time.Second)
		if f.State() != fleet.PartlyOpen {
			t.Fatal(f.State())
		}
		for range 100 {
			began := time.Now()
			if by("b1") != stint.ByStore || by("c1") != stint.ByStore || by("a1") != stint.ByLocal || by("b1", "a1") != stint.ByLocal {
				t.Fatal("another part's keys are not decided by the store")
			}
			if time.Since(began) > 0 {
				t.Fatal("a part that is not asked was waited for")
			}
			time.Sleep(10 * time.Millisecond)
		}
		rs := []stint.Request{}
		for _, k := range []string{"a1", "b1", "a2", "c1"} {
			rs = append(rs, stint.Request{Asks: []stint.Ask{{Key: k, Limit: limit, Cost: 1}}})
		}
		answers := make([]stint.Answer, len(rs))
		f.TakeBatch(t.Context(), rs, answers)
		for i, want := range []stint.Source{stint.ByLocal, stint.ByStore, stint.ByLocal, stint.ByStore} {
			if answers[i].Err != nil || answers[i].By != want {
				t.Errorf("%s of the list: %v by %s", rs[i].Asks[0].Key, answers[i].Err, answers[i].By)
			}
		}
		store.set("a", "b", "c")
		for range 10 {
			by("b1")
			by("c1")
		}
		time.Sleep(time.Second)
		if f.State() != fleet.Open {
			t.Error(f.State())
		}
		store.set()
		time.Sleep(time.Minute)
		if f.State() != fleet.Closed || by("a1") != stint.ByStore {
			t.Error(f.State())
		}
		d, err := stint.NewLimiter(&store.Memory).Peek(t.Context(), "a1", limit)
		if used := 1000 - d.Remaining; err != nil || used < 202 || used > 222 { // those in doubt are not charged
			t.Errorf("%d units of a1 are charged, %v", used, err)
		}
		if states[0] != "partly open a" || states[len(states)-1] != "closed" {
			t.Errorf("%q", states)
		}
	})
}

// A list is decided by each server that answers, even before it is known that another does
// not; and only that one is then not asked.
func TestPartitionsOfOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(cluster)
		f := &fleet.Fallback{Store: store, Called: func(time.Duration, error) {}}
		defer f.Close()
		limit := stint.MustLimit("1000 per 1h fixed_window")
		rs := make([]stint.Request, 2)
		for i, key := range []string{"b1", "a1"} {
			rs[i].Asks = []stint.Ask{{Key: key, Limit: limit, Cost: 1}}
		}
		store.set("b")
		for range 8 {
			answers := make([]stint.Answer, len(rs))
			f.TakeBatch(t.Context(), rs, answers)
			if answers[0].Err != nil || answers[0].By != stint.ByLocal || answers[1].Err != nil || answers[1].By != stint.ByStore {
				t.Fatalf("%+v", answers)
			}
			synctest.Wait()
		}
		if f.State() != fleet.PartlyOpen {
			t.Error(f.State())
		}
		if d, _ := stint.NewLimiter(&store.Memory).Peek(t.Context(), "a1", limit); d.Remaining != 1000-8 {
			t.Errorf("%d units of a1 are left, want %d", d.Remaining, 1000-8)
		}
	})
}
