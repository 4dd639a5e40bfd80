package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
)

// runs is a hold of a test, under one key and one or two limits.
type runs struct {
	id     stint.HoldID
	asks   []stint.Ask
	by     []stint.Source
	span   time.Duration // that it lasts; 0: as the limit says
	cost   int64
	settle []stint.HoldCall // what the store did not answer
}

func (r *runs) calls(action stint.HoldAction) (calls []stint.HoldCall) {
	for i, a := range r.asks {
		if a.Limit.IsHeld() {
			calls = append(calls, stint.HoldCall{Action: action, Key: a.Key, Limit: a.Limit, Hold: r.id, Units: a.Units(), For: r.span, Cost: r.cost, By: r.by[i], Again: action == stint.HoldRenew})
		}
	}
	return calls
}

func heldLimits() (all []*stint.Limit) {
	for _, text := range []string{
		"40 per 10s hold 3s", "40 per 5s fixed_window hold 3s debt 20", "40 per 5s sliding_log hold 2s retry 300ms debt 0",
		"40 per 5s sliding_window hold 2s", "5 in_flight hold 2s", "30 per 1s", "50 per 3s fixed_window lease 20%",
	} {
		all = append(all, named(text))
	}
	return all
}

// drawHold draws a request of some limits, which holds units under those that are held.
func (g *requests) drawHold() stint.Request {
	key := string(rune('a' + g.IntN(2)))
	r := stint.Request{Hold: stint.NewHoldID()}
	for _, i := range g.Perm(len(g.limits))[:1+g.IntN(3)] {
		a := stint.Ask{Key: key, Limit: g.limits[i], Cost: 1 + g.Int64N(15)*g.Int64N(2)}
		if g.limits[i].Spec().Algorithm == stint.InFlight {
			a.Cost = 0
		}
		r.Asks = append(r.Asks, a)
	}
	if g.IntN(4) == 0 {
		r.Hold = stint.HoldID{}
	}
	return r
}

// While the store answers, what the layers say of holds is what it would say: so does a Memory that
// is asked the same.
func TestStackHoldsAsItsStore(t *testing.T) {
	rounds := uint64(30)
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			s, twin := newStack(t, nil), new(stint.Memory)
			defer s.close()
			g := &requests{Rand: rand.New(rand.NewPCG(seed, 21)), limits: heldLimits()}
			var running []*runs
			busy, remembered := 0, 0
			var again *stint.Request
			for i := range 2000 {
				switch k := g.IntN(20); {
				case k < 4 && len(running) > 0:
					j := g.IntN(len(running))
					h := running[j]
					h.cost = g.Int64N(30)
					action := []stint.HoldAction{stint.HoldSettle, stint.HoldSettle, stint.HoldRenew, stint.HoldRelease}[k]
					have, want := h.calls(action), h.calls(action)
					stint.Holds(t.Context(), s.fleet, time.Time{}, have)
					twin.Holds(t.Context(), time.Time{}, want)
					for n := range have {
						if have[n] != want[n] {
							t.Fatalf("seed %d, %d: %+v\nwant %+v", seed, i, have[n], want[n])
						}
					}
					if action != stint.HoldRenew && g.IntN(4) > 0 { // else it is done again
						running = slices.Delete(running, j, j+1)
					}
				case k == 4:
					c := stint.HoldCall{Action: stint.HoldCharge, Key: "a", Limit: g.limits[g.IntN(4)], Cost: g.Int64N(30)}
					have, want := []stint.HoldCall{c}, []stint.HoldCall{c}
					stint.Holds(t.Context(), s.fleet, time.Time{}, have)
					if twin.Holds(t.Context(), time.Time{}, want); have[0] != want[0] {
						t.Fatalf("seed %d, %d: %+v\nwant %+v", seed, i, have[0], want[0])
					}
				case k == 5:
					back := stint.Request{Asks: []stint.Ask{{Key: "a", Limit: g.limits[g.IntN(5)], Cost: 5}}}
					if g.IntN(2) == 0 {
						_, _ = stint.Reset(t.Context(), s.fleet, &back), twin.Reset(t.Context(), &back)
					} else {
						_, _ = stint.Refund(t.Context(), s.fleet, &back), twin.Refund(t.Context(), &back)
					}
				default:
					r := g.drawHold()
					if again != nil && g.IntN(2) == 0 {
						r = *again
						r.Hold = stint.NewHoldID()
					}
					each, theirs := make([]stint.Decision, len(r.Asks)), make([]stint.Decision, len(r.Asks))
					known := s.fleet.Remembered()
					have, err := s.Take(t.Context(), &r, each)
					if err != nil {
						t.Fatal(err)
					}
					want, _ := twin.Take(t.Context(), &r, theirs)
					if s.fleet.Remembered() > known {
						if remembered++; want.Allowed || have.Allowed || have.Busy || have.RetryAfter > want.RetryAfter {
							t.Fatalf("seed %d, %d: remembered %+v\nwant %+v", seed, i, have, want)
						}
					} else if have != want && have.By != stint.ByLease {
						t.Fatalf("seed %d, %d: %+v\nhave %+v\nwant %+v", seed, i, r.Asks, have, want)
					}
					if have.Busy {
						busy++
					}
					if again = nil; !have.Allowed {
						again = &r
					} else if r.Hold != (stint.HoldID{}) {
						running = append(running, &runs{id: r.Hold, asks: r.Asks, by: make([]stint.Source, len(r.Asks))})
					}
				}
				if g.IntN(3) == 0 {
					time.Sleep(g.pause())
				}
			}
			if busy == 0 || remembered == 0 {
				t.Errorf("seed %d: %d were busy, %d were remembered", seed, busy, remembered)
			}
		})
	}
}

// Whatever the store does, what a hold did cost is charged exactly once. One instance runs no more
// than the limit while its store is away, and never more than twice the limit.
func TestStackChargesHoldsOnce(t *testing.T) {
	rounds := uint64(40)
	if testing.Short() {
		rounds = 8
	}
	budget, most := stint.MustLimit("budget: 500000 per 24h fixed_window hold 1h"), stint.MustLimit("8 in_flight hold 1h")
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			store := newRemote()
			f := fleetOver(t, store, fleet.Options{Instances: 1, Called: func(time.Duration, error) {}})
			limiter := stint.NewLimiter(f)
			g := rand.New(rand.NewPCG(seed, 22))
			var running, ended []*runs
			var costs int64
			by := map[stint.Source]int{}
			settle := func(h *runs) {
				calls := h.settle
				if calls == nil {
					calls = h.calls(stint.HoldSettle)
				}
				stint.Holds(t.Context(), f, time.Time{}, calls)
				h.settle = slices.DeleteFunc(calls, func(c stint.HoldCall) bool { return c.Err == nil })
			}
			for range 1500 {
				if g.IntN(60) == 0 {
					store.how.Store([]int32{works, works, works, refuses, loses, hangs, hangsHalf}[g.IntN(7)])
				}
				switch k := 1 + g.IntN(11); {
				case k < 5 && len(running) > 0:
					j := g.IntN(len(running))
					h := running[j]
					running = slices.Delete(running, j, j+1)
					h.cost = g.Int64N(50)
					costs += h.cost
					if settle(h); len(h.settle) > 0 {
						ended = append(ended, h)
					}
				case k == 5 && len(ended) > 0: // as a keeper does
					if settle(ended[0]); len(ended[0].settle) == 0 {
						ended = ended[1:]
					}
				case k == 6:
					for _, h := range running {
						stint.Holds(t.Context(), f, time.Time{}, h.calls(stint.HoldRenew))
					}
				default:
					r := stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 1 + g.Int64N(50)}, {Key: "k", Limit: most}}}
					each := make([]stint.Decision, 2)
					d, err := limiter.Take(t.Context(), &r, each)
					if err != nil {
						t.Fatal(err)
					}
					if !d.Allowed {
						if !d.Busy {
							t.Fatalf("%+v", d)
						}
						break
					}
					by[d.By]++
					running = append(running, &runs{id: r.Hold, asks: r.Asks, by: []stint.Source{each[0].By, each[1].By}})
					if n := int64(len(running)); n > 2*most.Capacity() {
						t.Fatalf("seed %d: %d run at once", seed, n)
					}
				}
				time.Sleep(time.Duration(g.IntN(20)) * time.Millisecond)
			}
			store.how.Store(works)
			for f.State() != fleet.Closed {
				time.Sleep(100 * time.Millisecond)
			}
			for _, h := range running {
				costs += h.cost
			}
			for _, h := range append(running, ended...) {
				if settle(h); len(h.settle) > 0 {
					t.Fatalf("%+v", h.settle)
				}
			}
			for range 3 { // a call that is answered starts what is owed
				time.Sleep(2 * time.Second)
				if _, err := limiter.Allow(t.Context(), "other", budget); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if n := heldIn(t, store.Memory, "k", budget) + heldIn(t, store.Memory, "k", most); n != 0 {
				t.Errorf("seed %d: the store still holds %d", seed, n)
			}
			if n := usedIn(t, store.Memory, "k", budget); n != costs || by[stint.ByLocal]+by[stint.ByStore] == 0 {
				t.Errorf("seed %d: %d are charged, %d were used: %v", seed, n, costs, fmt.Sprint(by))
			}
		})
	}
}

// The same from many goroutines at once, at two instances, each of which settles what it took; some of
// it twice at once. It is for the race detector most of all.
func TestHoldsAtOnce(t *testing.T) {
	budget, most := stint.MustLimit("budget: 500000 per 168h fixed_window hold 1h"), stint.MustLimit("6 in_flight hold 1h")
	store := newRemote()
	var fleets []*fleet.Store
	for range 2 {
		o := fleet.Options{Instances: 2, Deadline: 2 * time.Millisecond, Called: func(time.Duration, error) {}}
		o.Breaker.Wait, o.Breaker.MaxWait = 5*time.Millisecond, 10*time.Millisecond
		fleets = append(fleets, fleetOver(t, store, o))
	}
	var all, ended sync.WaitGroup
	var costs, here, there atomic.Int64
	end := make(chan struct{})
	ended.Go(func() {
		g := rand.New(rand.NewPCG(1, 1))
		for {
			select {
			case <-end:
				store.how.Store(works)
				return
			case <-time.After(time.Duration(g.IntN(20)) * time.Millisecond):
				store.how.Store([]int32{works, works, refuses, loses, hangs, hangsHalf}[g.IntN(6)])
			}
		}
	})
	settle := func(f *fleet.Store, calls []stint.HoldCall) {
		for len(calls) > 0 {
			stint.Holds(t.Context(), f, time.Time{}, calls)
			calls = slices.DeleteFunc(calls, func(c stint.HoldCall) bool { return c.Err == nil })
			time.Sleep(time.Millisecond)
		}
	}
	for n := range 16 {
		all.Go(func() {
			f, g := fleets[n%2], rand.New(rand.NewPCG(uint64(n), 23))
			for range 60 {
				r := stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 1 + g.Int64N(50)}, {Key: "k", Limit: most}}}
				each := make([]stint.Decision, 2)
				d, err := stint.NewLimiter(f).Take(t.Context(), &r, each)
				if err != nil {
					t.Error(err)
				}
				if !d.Allowed {
					time.Sleep(time.Millisecond)
					continue
				}
				if d.By == stint.ByLocal {
					here.Add(1)
				} else {
					there.Add(1)
				}
				h := &runs{id: r.Hold, asks: r.Asks, by: []stint.Source{each[0].By, each[1].By}, cost: g.Int64N(60)}
				costs.Add(h.cost)
				if g.IntN(4) == 0 {
					stint.Holds(t.Context(), f, time.Time{}, h.calls(stint.HoldRenew))
				}
				if g.IntN(4) == 0 {
					all.Go(func() { settle(f, h.calls(stint.HoldSettle)) })
				}
				settle(f, h.calls(stint.HoldSettle))
			}
		})
	}
	all.Wait()
	close(end)
	ended.Wait()
	for deadline := time.Now().Add(await.Patience); ; time.Sleep(20 * time.Millisecond) {
		for _, f := range fleets { // a call that is answered starts what is owed
			if _, err := stint.NewLimiter(f).Allow(t.Context(), "other", budget); err != nil {
				t.Fatal(err)
			}
		}
		held := heldIn(t, store.Memory, "k", budget) + heldIn(t, store.Memory, "k", most)
		used := budget.Capacity() - left(t, store.Memory, "k", budget)
		if held == 0 && used == costs.Load() {
			break
		}
		if used > costs.Load() || time.Now().After(deadline) {
			t.Fatalf("%d are held, %d are charged, %d were used; %d were taken here and %d there", held, used, costs.Load(), here.Load(), there.Load())
		}
	}
	t.Logf("%d were taken here, %d there", here.Load(), there.Load())
}

func left(t testing.TB, s stint.Store, key string, l *stint.Limit) int64 {
	t.Helper()
	d, err := stint.NewLimiter(s).Peek(t.Context(), key, l)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining + d.Held
}
