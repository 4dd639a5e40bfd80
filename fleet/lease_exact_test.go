package fleet_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/limittest"
)

// instances are some instances over one store, that come and go.
type instances struct {
	t       *testing.T
	rng     *rand.Rand
	store   stint.Store
	limits  []*stint.Limit // of one ID: versions of a rule, of which the first is the largest
	period  time.Duration
	trip    time.Duration // the longest to the store and back
	members []*fleet.Leases
	version []int // of each member
	asking  sync.WaitGroup
	crashed int64 // units that died with their instance

	mu    sync.Mutex
	taken []taken
}

// charging is, in the context of a request, where the store notes when it charged it.
type charging struct{}

// noting is a store that does so, and counts what it is asked for without a request.
type noting struct {
	stint.Memory
	ahead *atomic.Int64
}

func (s *noting) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if at, ok := ctx.Value(charging{}).(*time.Time); ok {
		*at = time.Now()
	} else {
		s.ahead.Add(1)
	}
	return s.Memory.Take(ctx, r, out)
}

// taken is what was allowed: served here, or charged in the store, at an instant.
type taken struct {
	at    time.Time
	units int64
}

// join is a newcomer. Half of all are not known yet.
func (f *instances) join() *fleet.Leases {
	return &fleet.Leases{Store: f.store, Live: func() int64 { return int64(len(f.members)+1) / 2 }, MaxKeys: 8}
}

// step is something that happens.
func (f *instances) step() {
	i := f.rng.IntN(len(f.members))
	m := f.members[i]
	meanwhile := func(do func()) {
		if f.trip == 0 {
			do()
			synctest.Wait()
		} else {
			f.asking.Go(do)
		}
	}
	if f.rng.IntN(100) == 0 {
		f.version[i] = f.rng.IntN(len(f.limits))
	}
	limit := f.limits[f.version[i]]
	one := func(cost int64) *stint.Request {
		return &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: cost, Peek: cost == 0}}}
	}
	switch p := f.rng.IntN(10_000); {
	case p < 3: // crashes, and another takes its place
		f.crashed += m.Units().Held
		f.members[i] = f.join()
	case p < 6:
		meanwhile(m.Close)
		f.members[i] = f.join()
	case p < 20:
		n := 1 + f.rng.Int64N(3)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.taken) == 0 {
			break
		}
		// It has to come in the window in which they were taken.
		last := &f.taken[len(f.taken)-1]
		if last.units >= n && window(last.at, f.period) == window(time.Now().Add(f.trip), f.period) {
			last.units -= n
			meanwhile(func() { _ = m.Refund(f.t.Context(), one(n)) })
		}
	default:
		n := int64(1)
		if f.rng.IntN(4) == 0 {
			n = 1 + f.rng.Int64N(5)
		}
		meanwhile(func() {
			at := time.Now()
			d, err := m.Take(context.WithValue(f.t.Context(), charging{}, &at), one(n), nil)
			if err == nil && d.Allowed {
				f.mu.Lock()
				f.taken = append(f.taken, taken{at, n})
				f.mu.Unlock()
			}
		})
	}
	if held := f.held(); held > stint.Internal(friend.Of{}).Leased(f.limits[0]) {
		f.t.Fatalf("%d units held ahead, of %d that may be", held, stint.Internal(friend.Of{}).Leased(f.limits[0]))
	}
}

func (f *instances) held() (n int64) {
	for _, m := range f.members {
		n += m.Units().Held
	}
	return n
}

// window is the number of the fixed window that an instant is in.
func window(at time.Time, period time.Duration) int64 { return at.UnixMicro() / period.Microseconds() }

// check looks at every span of time: no more is taken in it than amount, and what
// comes back meanwhile; of a fixed window, than amount in each.
func (f *instances) check(period time.Duration, amount int64, windows bool) {
	if windows {
		in := map[int64]int64{}
		for _, k := range f.taken {
			w := window(k.at, period)
			if in[w] += k.units; in[w] > amount {
				f.t.Fatalf("%d units in a window of %d", in[w], amount)
			}
		}
		return
	}
	slices.SortFunc(f.taken, func(a, b taken) int { return a.at.Compare(b.at) })
	// The most by which any span so far is above what comes back in it, in ns × amount.
	var most, run float64
	for i, k := range f.taken {
		if i > 0 {
			run = math.Max(0, run-float64(k.at.Sub(f.taken[i-1].at))*float64(amount)/float64(period))
		}
		run += float64(k.units)
		most = math.Max(most, run)
	}
	if most > float64(amount)+1e-3 {
		f.t.Fatalf("%v units in a bucket of %d", most, amount)
	}
}

// Whatever comes, no more passes than the limit allows in any span of time, and no
// more is held ahead than the share; of limits of one ID, than the largest allows.
func TestLeasesAreExact(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	var ahead fleet.LeasedUnits
	var refills atomic.Int64
	for round := range rounds {
		seed := attack.Seed(t)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				windows := round%2 == 1
				amount, percent := int64(200+rng.IntN(4000)), 1+rng.IntN(limittext.MaxLease)
				period := time.Duration(100+rng.IntN(3000)) * time.Millisecond
				spec := stint.Spec{Amount: amount, Period: period, Lease: percent}
				if windows {
					spec.Algorithm = stint.FixedWindow
				}
				f := &instances{t: t, rng: rng, period: period}
				for range 1 + round/2%3 {
					limit, err := stint.NewLimit(spec)
					if err != nil {
						t.Fatal(err)
					}
					f.limits = append(f.limits, limit)
					spec.Amount = 100 + rng.Int64N(amount-100)
				}
				if rng.IntN(3) > 0 {
					f.trip = time.Duration(1 + rng.IntN(30e6))
				}
				s := &slow{limittest.Faulty{Store: &noting{ahead: &refills}}, func() time.Duration { return f.trip/2 + rand.N(f.trip/2+1) }}
				s.Fault = func(int) limittest.Fault { return limittest.Fault{Lost: rand.N(500) == 0} }
				f.store = s
				for range 1 + rng.IntN(5) {
					f.members, f.version = append(f.members, f.join()), append(f.version, 0)
				}
				rate := float64(amount) / period.Seconds()
				for range 20 { // of a demand each
					gap := time.Duration(1e9 / (rate * []float64{0, 0.3, 0.5, 0.9, 1, 1.5, 3, 20}[1+rng.IntN(7)]))
					for range 500 {
						f.step()
						time.Sleep(time.Duration(rng.Int64N(int64(2*gap + 1))))
					}
					if rng.IntN(4) == 0 {
						time.Sleep(time.Duration(rng.Int64N(int64(2 * period))))
					}
				}
				f.asking.Wait()
				f.check(period, amount, windows)
				for _, m := range f.members {
					u := m.Units()
					ahead.Charged += u.Charged
					ahead.Served += u.Served
					ahead.Void += u.Void
					m.Close()
				}
				ahead.Held += f.crashed
				time.Sleep(time.Second) // of those that crashed, the timers
			})
		})
	}
	t.Logf("leased %d units, of which %d were served, %d void, and %d died; %d calls without a request", ahead.Charged, ahead.Served, ahead.Void, ahead.Held, refills.Load())
	if ahead.Served < 1000 || refills.Load() < 100 {
		t.Error("hardly anything was leased")
	}
}
