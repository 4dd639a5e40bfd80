// Package fleetsim simulates fleets of up to 1,000 instances that share limits and lease
// hot keys, in virtual time, with the real code over one Memory. "make fleet" writes
// docs/leases.md and docs/leases.svg.
package fleetsim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

const (
	perInstance = 6000 // units a minute of each key's limit, for each instance
	percent     = 5    // of it may be leased
	keys        = 16
	step        = time.Millisecond
	seed        = 20
)

var (
	sizes   = []int{2, 5, 10, 50, 100, 500, 1000}
	demands = []float64{0.5, 1, 2, 10}
)

// simulation is a case: how many instances there are, and how much of the hottest key is
// asked for, as a multiple of its limit.
type simulation struct {
	instances int
	demand    float64
	span      time.Duration
}

// result is what became of it. Shares are of the hottest key's limit.
type result struct {
	simulation
	decisions int64   // of all keys
	calls     float64 // of the store, for each decision
	hot       float64 // the same, of the hottest key
	admitted  int64   // of the hottest key
	peak      float64 // the most that passed in any span of time, as a share of what the limit allows in it
	stranded  float64 // the most that was charged and not served at any instant
	left      float64 // and that was when nothing had been asked for a while
}

// ledger is the store: it counts calls, and the units of the hottest key.
type ledger struct {
	stint.Memory
	calls, hot, charged atomic.Int64 // hot: of calls, those for the hottest key
}

func (s *ledger) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	s.calls.Add(1)
	d, err := s.Memory.Take(ctx, r, out)
	if r.Asks[0].Key == names[0] {
		s.hot.Add(1)
		if d.Allowed {
			s.charged.Add(r.Asks[0].Units())
		}
	}
	return d, err
}

func (s *ledger) Refund(ctx context.Context, r *stint.Request) error {
	s.calls.Add(1)
	for i := range r.Asks {
		if r.Asks[i].Key == names[0] {
			s.hot.Add(1)
			s.charged.Add(-r.Asks[i].Units())
		}
	}
	return s.Memory.Refund(ctx, r)
}

// Listen tells nothing, for what is refunded only makes room.
func (s *ledger) Notify(ctx context.Context, e fleet.Listener) error {
	e.Connected(true)
	<-ctx.Done()
	return nil
}

var names = func() (names [keys]string) {
	for i := range names {
		names[i] = fmt.Sprint("key ", i)
	}
	return names
}()

// skewed draws from 0 to n-1: the i-th in proportion to 1/(i+1)^s.
type skewed []float64

func skew(n int, s float64) skewed {
	sums, sum := make(skewed, n), 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	return sums
}

func (s skewed) total() float64 { return s[len(s)-1] }

func (s skewed) draw(rng *rand.Rand) int {
	x, low, high := rng.Float64()*s.total(), 0, len(s)-1
	for low < high {
		if mid := (low + high) / 2; s[mid] < x {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// run plays the traffic of a case, the same with leases and without. It runs in a
// bubble of virtual time.
func (f simulation) run(t *testing.T, lease bool) (r result) {
	r.simulation = f
	amount := int64(perInstance * f.instances)
	spec := stint.Spec{Amount: amount, Period: time.Minute}
	if lease {
		spec.Lease = percent
	}
	limit, err := stint.NewLimit(spec)
	if err != nil {
		t.Fatal(err)
	}
	store := new(ledger)
	members := make([]stint.Store, f.instances)
	var ends []func()
	for i := range members {
		d := &fleet.Denials{Store: store, MaxKeys: 64}
		ends = append(ends, d.Close)
		d.Connected()
		if members[i] = d; lease {
			l := &fleet.Leases{Store: d, Live: func() int64 { return int64(f.instances) }, MaxKeys: 64}
			ends = append(ends, l.Close)
			members[i] = l
		}
	}
	synctest.Wait() // they hear
	rng := rand.New(rand.NewPCG(seed, seed))
	byKey, byInstance := skew(keys, 1.5), skew(f.instances, 0.5)
	due, perStep := 0.0, f.demand*float64(amount)*byKey.total()*step.Minutes()
	back := float64(amount) * step.Minutes() // what comes back in a step
	if f.demand >= 1 {                       // the buckets are exhausted already
		for _, key := range names {
			if _, err := store.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: limit.Capacity()}}}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := store.charged.Load()
	run, most := float64(before), 0.0
	store.calls.Store(0)
	store.hot.Store(0)
	var hot int64
	q := stint.Request{Asks: make([]stint.Ask, 1)}
	for at := time.Duration(0); at < f.span; at += step {
		run = max(0, run-back)
		for due += perStep; due >= 1; due-- {
			key := names[byKey.draw(rng)]
			q.Asks[0] = stint.Ask{Key: key, Limit: limit, Cost: 1}
			d, err := members[byInstance.draw(rng)].Take(t.Context(), &q, nil)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // what it had charged ahead has come
			r.decisions++
			if key == names[0] {
				hot++
				if d.Allowed {
					r.admitted++
					run++
				}
			}
		}
		most = max(most, run)
		r.stranded = max(r.stranded, float64(store.charged.Load()-before-r.admitted)/float64(amount))
		time.Sleep(step)
	}
	time.Sleep(2 * time.Second)
	for _, end := range ends {
		end()
	}
	r.calls = float64(store.calls.Load()) / float64(r.decisions)
	r.hot = float64(store.hot.Load()) / float64(max(hot, 1))
	r.peak = most / float64(amount)
	r.left = float64(store.charged.Load()-before-r.admitted) / float64(amount)
	return r
}

// pair is a case with leases and without.
type pair struct{ with, without result }

func (f simulation) play(t *testing.T) (p pair) {
	synctest.Test(t, func(t *testing.T) {
		p.without = f.run(t, false)
		p.with = f.run(t, true)
	})
	w := &p.with
	if w.peak > 1+1e-9 || w.stranded > percent/100.0 || w.left != 0 {
		t.Errorf("%d instances, %v× demand: %+v", f.instances, f.demand, *w)
	}
	if least := 0.9 * float64(p.without.admitted); float64(w.admitted) < least || w.hot > 0.6 {
		t.Errorf("%d instances, %v× demand: hardly worth it: %+v, without %+v", f.instances, f.demand, *w, p.without)
	}
	return p
}

// In fleets of every size, no more passes than the limit, no more is stranded than the
// share, and all of it comes back. With STINT_FLEET, a directory, it is at length,
// and written there.
func TestFleet(t *testing.T) {
	dir := os.Getenv("STINT_FLEET")
	var all []pair
	for _, n := range sizes {
		for _, demand := range demands {
			f := simulation{n, demand, 5 * time.Second}
			if dir == "" {
				if float64(n)*demand > 200 {
					continue
				}
				f.span = 3 * time.Second
			}
			began := time.Now()
			p := f.play(t)
			all = append(all, p)
			t.Logf("%4d instances, %4v×: %d decisions, calls %.3f (%.3f), of the hottest %.3f (%.3f), peak %.3f (%.3f), admitted %.3f, stranded %.3f, in %s", n, demand,
				p.with.decisions, p.with.calls, p.without.calls, p.with.hot, p.without.hot, p.with.peak, p.without.peak,
				float64(p.with.admitted)/float64(p.without.admitted), p.with.stranded, time.Since(began).Round(time.Millisecond))
		}
	}
	if dir == "" {
		return
	}
	for name, text := range map[string]string{"leases.md": page(all), "leases.svg": picture(all)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
