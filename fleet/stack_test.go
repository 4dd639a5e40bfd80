package fleet_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/limittest"
)

// stack is a fleet.Store as a server has it, over a store that may refuse to answer.
type stack struct {
	*stint.Limiter
	fleet *fleet.Store
	store *notifier
	away  atomic.Bool
}

func newStack(t testing.TB, instance *stint.Limit) *stack {
	s := &stack{store: newNotifier()}
	s.store.Fault = func(int) (f limittest.Fault) {
		if s.away.Load() {
			f.Err = fmt.Errorf("away: %w", fleet.ErrNotCharged)
		}
		return f
	}
	s.fleet = fleet.New(s.store, fleet.Options{Instances: 1, MaxDenials: 50, MaxLeases: 4, Called: func(time.Duration, error) {}})
	t.Cleanup(s.fleet.Close)
	for !s.fleet.Connected() {
		runtime.Gosched()
	}
	s.Limiter = &stint.Limiter{Store: s.fleet, Instance: instance}
	return s
}

func (s *stack) close() { s.fleet.Close() }

// requests draws requests of one to three asks.
type requests struct {
	*rand.Rand
	limits    []*stint.Limit
	penalties []*stint.Penalty
}

func (g *requests) draw() stint.Request {
	var r stint.Request
	for range 1 + g.IntN(3)*g.IntN(2) {
		a := stint.Ask{Key: string(rune('a' + g.IntN(2))), Limit: g.limits[g.IntN(len(g.limits))], Cost: 1}
		if slices.ContainsFunc(r.Asks, func(b stint.Ask) bool { return b.Key == a.Key && b.Limit.ID() == a.Limit.ID() }) {
			continue
		}
		switch g.IntN(12) {
		case 0:
			stint.Internal(friend.Of{}).SetUnits(&a, 0)
		case 1:
			a.Cost = 1 + g.Int64N(12)
		}
		if g.IntN(3) == 0 {
			a.MaxDelay = []time.Duration{-1, time.Microsecond, 300 * time.Millisecond, time.Second}[g.IntN(4)]
		}
		if len(g.penalties) > 0 && g.IntN(4) == 0 {
			a.Penalty = g.penalties[g.IntN(len(g.penalties))]
		}
		r.Asks = append(r.Asks, a)
	}
	return r
}

// drawAny draws a request that may ask for a ban alone, too, or for nothing else.
func (g *requests) drawAny() stint.Request {
	r := g.draw()
	alone := stint.Ask{Key: string(rune('a' + g.IntN(2))), Penalty: g.penalties[g.IntN(len(g.penalties))]}
	switch g.IntN(9) {
	case 0:
		r.Asks = []stint.Ask{alone}
	case 1, 2:
		r.Asks = slices.Insert(r.Asks, g.IntN(len(r.Asks)+1), alone)
	}
	return r
}

func (g *requests) pause() time.Duration {
	switch g.IntN(10) {
	case 0:
		return time.Duration(g.IntN(3_000_000)) * time.Microsecond
	case 1, 2, 3:
		return time.Duration(g.IntN(300_000)) * time.Microsecond
	case 4, 5:
		return time.Duration(g.IntN(3_000)) * time.Microsecond
	}
	return 0
}

func stackLimits() (all []*stint.Limit) {
	for _, text := range []string{
		"10 per 1s", "7 per 3s burst 12", "10 per 1s leaky_bucket", "3 per 1s leaky_bucket burst 4",
		"10 per 1s fixed_window", "10 per 1s sliding_log", "12 per 2s sliding_window",
	} {
		all = append(all, named(text))
	}
	return all
}

// named is a limit with a count of its own.
func named(text string) *stint.Limit {
	spec := stint.MustLimit(text).Spec()
	spec.Name = text
	l, err := stint.NewLimit(spec)
	if err != nil {
		panic(err)
	}
	return l
}

// While the store answers, the layers say what it would: so does the model.
func TestStackIsTheModel(t *testing.T) {
	rounds := uint64(15)
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			s, model := newStack(t, nil), new(limittest.Model)
			defer s.close()
			g := &requests{rand.New(rand.NewPCG(seed, 7)), stackLimits(), []*stint.Penalty{
				penalty(t, stint.PenaltySpec{Name: "one", WarnAfter: 4, BanAfter: 9, BanFor: 2 * time.Second, ForgetAfter: 20 * time.Second, Growth: 2, MaxBan: time.Minute}),
				penalty(t, stint.PenaltySpec{Name: "two", BanAfter: 6, BanFor: 5 * time.Second, ForgetAfter: 5 * time.Second}),
			}}
			var again *stint.Request
			for i := range 1500 {
				r := g.drawAny()
				if again != nil && g.IntN(2) == 0 {
					r = *again
				}
				if g.IntN(40) == 0 {
					back := stint.Request{Asks: []stint.Ask{{Key: "a", Limit: g.limits[g.IntN(len(g.limits))], Cost: 2}}}
					if g.IntN(3) == 0 {
						back.Asks[0].Penalty = g.penalties[0]
						_, _ = stint.Reset(t.Context(), s.Store, &back), model.Reset(t.Context(), &back)
					} else {
						_, _ = stint.Refund(t.Context(), s.Store, &back), model.Refund(t.Context(), &back)
					}
				}
				if g.IntN(20) == 0 {
					found := stint.Request{Asks: []stint.Ask{{Key: "a", Penalty: g.penalties[g.IntN(2)], Cost: g.Int64N(4)}, {Key: "b", Penalty: g.penalties[g.IntN(2)]}}}
					have, err := stint.Violate(t.Context(), s.Store, &found)
					want, _ := model.Violate(t.Context(), &found)
					if sameAsModel(t, seed, i, &found, have, want); err != nil || have.Key != want.Key {
						t.Fatalf("seed %d, %d: %+v, %v\nwant %+v", seed, i, have, err, want)
					}
				}
				var have, want stint.Decision
				var err error
				if g.IntN(4) == 0 {
					r2 := g.drawAny()
					answers := make([]stint.Answer, 2)
					s.TakeBatch(t.Context(), []stint.Request{r, r2}, answers)
					have, err = answers[0].Decision, answers[0].Err
					want, _ = model.Take(t.Context(), &r, nil)
					w2, _ := model.Take(t.Context(), &r2, nil)
					sameAsModel(t, seed, i, &r2, answers[1].Decision, w2)
				} else {
					have, err = s.Take(t.Context(), &r, nil)
					want, _ = model.Take(t.Context(), &r, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				sameAsModel(t, seed, i, &r, have, want)
				if again = nil; !have.Allowed {
					again = &r
				}
				time.Sleep(g.pause())
			}
		})
	}
}

// sameAsModel compares an answer with the model's. One that is remembered may tell a
// shorter wait, where something else came since.
func sameAsModel(t *testing.T, seed uint64, i int, r *stint.Request, have, want stint.Decision) {
	t.Helper()
	if have.Outcome != want.Outcome || have.RetryAfter > want.RetryAfter || have.Allowed && have.Remaining != want.Remaining || have.Delay != want.Delay || have.Violations != want.Violations || have.BanLeft != want.BanLeft {
		t.Fatalf("seed %d, %d: %+v\nhave %+v\nwant %+v", seed, i, r.Asks, have, want)
	}
}

// use is what was let pass of a key under a limit, counted by a slow judge.
type use struct {
	spec  stint.Spec
	took  []taken
	level float64 // buckets
	last  time.Time
}

func (u *use) capacity() float64 {
	if u.spec.Burst > 0 {
		return float64(u.spec.Burst)
	}
	return float64(u.spec.Amount)
}

func (u *use) drain(at time.Time) {
	u.level = math.Max(0, u.level-float64(at.Sub(u.last))*float64(u.spec.Amount)/float64(u.spec.Period))
	u.last = at
}

func (u *use) take(at time.Time, n int64) {
	u.drain(at)
	u.level += float64(n)
	u.took = append(u.took, taken{at, n})
}

func (u *use) refund(at time.Time, n int64) {
	u.drain(at)
	u.level = math.Max(0, u.level-float64(n))
	for i := len(u.took) - 1; i >= 0 && n > 0; i-- {
		k := min(n, u.took[i].units)
		u.took[i].units -= k
		n -= k
	}
}

func (u *use) at(now time.Time) float64 {
	p := u.spec.Period.Microseconds()
	t := now.UnixMicro()
	var full, part int64
	w := p
	if u.spec.Algorithm == stint.SlidingWindow {
		w = p / 10
	}
	for _, k := range u.took {
		c := k.at.UnixMicro()
		switch u.spec.Algorithm {
		case stint.FixedWindow:
			if c/p == t/p {
				full += k.units
			}
		case stint.SlidingLog:
			if c > t-p+p/16 { // what was spent without the store is charged in so many parts
				full += k.units
			}
		case stint.SlidingWindow:
			if age := t/w - c/w; age < 10 {
				full += k.units
			} else if age == 10 {
				part += k.units
			}
		default:
			return u.level
		}
	}
	return float64(full) + math.Ceil(float64(part)*float64(w-t%w)/float64(w))
}

// Whatever the store does, one instance lets no more pass than the limits, but for
// what an outage rounds: of buckets and sliding windows a unit; what leaves a queue keeps its pace; and who waits
// as long as the store says is not refused again.
func TestStackAdmitsNoMore(t *testing.T) {
	rounds := uint64(40)
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := newStack(t, nil)
			defer s.close()
			g := &requests{rand.New(rand.NewPCG(seed, 9)), append(stackLimits(), named("200 per 1s lease 20%"), named("300 per 1s fixed_window lease 20%")), []*stint.Penalty{
				penalty(t, stint.PenaltySpec{Name: "one", WarnAfter: 4, BanAfter: 9, BanFor: 2 * time.Second, ForgetAfter: 20 * time.Second}),
			}}
			if seed%2 == 0 {
				g.penalties = nil
			}
			type id struct{ key, limit string }
			uses := map[id]*use{}
			of := func(a *stint.Ask) *use {
				u := uses[id{a.Key, a.Limit.ID()}]
				if u == nil {
					u = &use{spec: a.Limit.Spec(), last: time.Now()}
					uses[id{a.Key, a.Limit.ID()}] = u
				}
				return u
			}
			leaves := map[id]time.Time{}
			by := map[stint.Source]int{}
			for i := range 3000 {
				if g.IntN(60) == 0 {
					s.away.Store(!s.away.Load())
				}
				r := g.draw()
				if g.IntN(3) == 0 {
					r = stint.Request{Asks: []stint.Ask{{Key: "a", Limit: g.limits[len(g.limits)-1-g.IntN(2)], Cost: 1 + g.Int64N(3)*g.Int64N(2)}}}
				}
				each := make([]stint.Decision, len(r.Asks))
				now, remembered := time.Now(), s.fleet.Remembered()
				d, err := s.Take(t.Context(), &r, each)
				if err != nil || !time.Now().Equal(now) {
					t.Fatal(err, time.Since(now))
				}
				by[d.By]++
				if !d.Allowed {
					if stint.Internal(friend.Of{}).IsShared(d.By) && s.fleet.Remembered() == remembered && !s.away.Load() && s.fleet.State() == fleet.Closed && d.RetryAfter < 10*time.Second && g.IntN(4) == 0 {
						time.Sleep(d.RetryAfter)
						if again, err := s.Take(t.Context(), &r, each); !again.Allowed || err != nil {
							t.Fatalf("seed %d, %d: %+v\nrefused again %+v (%v)\nafter %+v", seed, i, r.Asks, again, err, d)
						}
						d.Allowed, now = true, time.Now()
					} else {
						time.Sleep(g.pause())
						continue
					}
				}
				for j := range r.Asks {
					a := &r.Asks[j]
					u := of(a)
					u.take(now, a.Units())
					slack := 1e-6
					if alg := u.spec.Algorithm; alg != stint.FixedWindow && alg != stint.SlidingLog {
						slack++
					}
					if n := u.at(now); n > u.capacity()+slack {
						t.Fatalf("seed %d, %d: %v units in use under %s, by %s", seed, i, n, a.Limit, each[j].By)
					}
					if u.spec.Algorithm == stint.LeakyBucket && a.Units() > 0 {
						at, pace := now.Add(each[j].Delay), time.Duration(float64(u.spec.Period)/float64(u.spec.Amount))
						next := leaves[id{a.Key, a.Limit.ID()}]
						if most := a.MaxDelay; most != 0 && each[j].Delay > max(0, most)+time.Millisecond { // the instance's own queue is rounded otherwise
							t.Fatalf("seed %d, %d: delay %s, MaxDelay %s", seed, i, each[j].Delay, most)
						}
						if at.Before(next.Add(-pace - time.Microsecond)) {
							t.Fatalf("seed %d, %d: leaves %s too soon, by %s", seed, i, next.Sub(at), each[j].By)
						}
						leaves[id{a.Key, a.Limit.ID()}] = at.Add(pace * time.Duration(a.Units()))
					}
				}
				if g.IntN(8) == 0 {
					back, theirs := stint.Request{}, []stint.Decision(nil)
					for j, a := range r.Asks {
						if a.Limit.Spec().Algorithm != stint.LeakyBucket {
							back.Asks, theirs = append(back.Asks, a), append(theirs, each[j])
						}
					}
					if len(back.Asks) > 0 && refundAll(t.Context(), s.Store, &back, theirs) == nil {
						for j := range back.Asks {
							of(&back.Asks[j]).refund(now, back.Asks[j].Units())
						}
					}
				}
				time.Sleep(g.pause())
			}
			if by[stint.ByLocal] == 0 || by[stint.ByStore] == 0 {
				t.Error(by)
			}
		})
	}
}
