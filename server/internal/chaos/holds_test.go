package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
)

// Holds last for longer than a fault, so that none runs out: what they cost is charged.
var (
	budget   = stint.MustLimit("tokens: 1000000000 per 24h fixed_window hold 20s")
	inFlight = stint.MustLimit("10 in_flight hold 20s")
)

const (
	holders = 6   // of each instance
	bridges = 300 // holds from before the fault that are settled in the midst of it
)

var holdRows []string

// While a store fails between hold and settle, what a request did cost is charged exactly once; where
// the store lost the hold, not at all, and that is reported. No more run at once than is promised.
func TestChaosHolds(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if f.long && !long() || testing.Short() && !f.brief {
				t.Skip("it takes seconds: make chaos")
			}
			f.proveHolds(t)
		})
	}
	if !t.Failed() {
		publish(t, "holds", append([]string{
			"| fault | requests | held without the store | cost | charged | reported lost | at once at most, of 10 | bound |",
			"| --- | --: | --: | --: | --: | --: | --: | --: |"}, holdRows...))
	}
}

// account is what a fleet held, and what it was told of it.
type account struct {
	fleet []*instance

	requests, local, running, atOnce atomic.Int64
	lost                             atomic.Bool // the fault is over

	mu           sync.Mutex
	cost         int64 // of all holds that were settled
	costAfter    int64 // of those that were taken when the fault was over
	gone         int64 // of what was reported lost
	settled      int   // holds
	ended        map[stint.HoldID]int
	failed       error
	undecided    int
	whyUndecided error
}

func newAccount(t *testing.T, address string) *account {
	a := &account{ended: map[stint.HoldID]int{}}
	for range instances {
		a.fleet = append(a.fleet, newInstance(t, address))
	}
	for _, i := range a.fleet {
		i.Limiter.ObserveHold = a.observe
		await.Until(t, "all instances are counted", func() bool { return i.fall.Live() == instances })
	}
	return a
}

// observe is told of the end of each hold under each limit.
func (a *account) observe(_ context.Context, c *stint.HoldCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.Limit != budget {
		return
	}
	a.ended[c.Hold]++
	switch {
	case c.Err != nil && !errors.Is(c.Err, stint.ErrHoldLost):
		a.failed = c.Err
	case c.Err != nil || !c.Found:
		a.gone += c.Cost
	}
}

// reserve takes a hold at an instance; nil: it was refused.
func (a *account) reserve(i int, key string, limits ...*stint.Limit) *stint.Reservation {
	r := &stint.Request{}
	for _, l := range limits {
		ask := stint.Ask{Key: key, Limit: l}
		if l == budget {
			ask.Cost = 1 + rand.Int64N(1000)
		}
		r.Asks = append(r.Asks, ask)
	}
	held, d, err := a.fleet[i].Reserve(context.Background(), r)
	a.requests.Add(1)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.undecided++
		a.whyUndecided = err
		return nil
	}
	if held != nil && d.By == stint.ByLocal {
		a.local.Add(1)
	}
	return held
}

// settle settles what was taken after the fault, or before.
func (a *account) settle(held *stint.Reservation, after bool) {
	cost := 1 + rand.Int64N(2000)
	a.mu.Lock()
	a.settled++
	if a.cost += cost; after {
		a.costAfter += cost
	}
	a.mu.Unlock()
	if err := held.Settle(context.Background(), cost); err != nil && !errors.Is(err, stint.ErrHoldLost) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.failed = err
	}
}

// hold takes and settles until stop is closed.
func (a *account) hold(i int, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(rest)):
		}
		after := a.lost.Load()
		held := a.reserve(i, "busy", inFlight, budget)
		if held == nil {
			continue
		}
		n := a.running.Add(1)
		for most := a.atOnce.Load(); n > most && !a.atOnce.CompareAndSwap(most, n); most = a.atOnce.Load() {
		}
		time.Sleep(rand.N(3 * rest))
		a.running.Add(-1)
		a.settle(held, after)
	}
}

func (f *fault) proveHolds(t *testing.T) {
	var w world
	address := f.build(t, &w)
	a := newAccount(t, address)
	defer func() {
		for _, i := range a.fleet {
			i.close()
		}
	}()
	var bridge []*stint.Reservation
	for n := range bridges {
		held := a.reserve(n%instances, fmt.Sprint("bridge", n%7), budget)
		if held == nil {
			t.Fatal("a hold was refused before the fault:", a.whyUndecided)
		}
		bridge = append(bridge, held)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range a.fleet {
		for range holders {
			running.Go(func() { a.hold(i, stop) })
		}
	}
	time.Sleep(spell())
	running.Go(func() {
		time.Sleep(spell() / 2)
		for _, held := range bridge {
			a.settle(held, false)
		}
	})
	f.trouble(t, &w)
	for _, i := range a.fleet {
		i := i
		await.Until(t, "the store decides at every instance", func() bool {
			d, err := i.Allow(context.Background(), "other", stint.MustLimit("1000000 per 1h"))
			return err == nil && d.By == stint.ByStore && i.fall.State() == fleet.Closed
		})
	}
	a.lost.Store(true)
	time.Sleep(spell())
	close(stop)
	running.Wait()

	var used int64
	done := func() bool {
		for _, i := range a.fleet { // a call that is answered starts what is owed
			_, _ = i.Allow(context.Background(), "other", stint.MustLimit("1000000 per 1h"))
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if used = a.used(); len(a.ended) < a.settled {
			return false
		}
		if f.loses > 0 {
			return used >= a.costAfter
		}
		return used == a.cost
	}
	await.So(done)
	a.mu.Lock()
	defer a.mu.Unlock()
	bound := int64(2) * inFlight.Capacity()
	if a.local.Load() == 0 {
		bound = inFlight.Capacity()
	}
	bound += int64(f.loses) * inFlight.Capacity()
	gone := a.gone
	if f.loses == 0 {
		gone = a.cost - used // a settlement whose answer was lost finds nothing when it is sent again
	}
	holdRows = append(holdRows, fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d |", f.name, a.requests.Load(), a.local.Load(), a.cost, used, gone, a.atOnce.Load(), bound))
	t.Log(holdRows[len(holdRows)-1])
	switch {
	case f.loses == 0 && used != a.cost:
		t.Errorf("%d are charged, and %d were used", used, a.cost)
	case used > a.cost || used < a.costAfter:
		t.Errorf("%d are charged, of %d that were used, %d of them after the fault", used, a.cost, a.costAfter)
	case f.loses > 0 && used+a.gone < a.costAfter:
		t.Errorf("%d are charged and %d were reported lost", used, a.gone)
	}
	for id, n := range a.ended {
		if n != 1 {
			t.Errorf("the end of %s was reported %d times", id, n)
		}
	}
	if len(a.ended) != a.settled {
		t.Errorf("the ends of %d holds were reported, of %d", len(a.ended), a.settled)
	}
	if a.undecided > 0 || a.failed != nil {
		t.Errorf("%d were not decided: %v; a settlement failed: %v", a.undecided, a.whyUndecided, a.failed)
	}
	if n := a.atOnce.Load(); n > bound || n == 0 {
		t.Errorf("%d ran at once, of %d that may", n, bound)
	}
	if f.away && !a.anyFailed() {
		t.Error("the fault did nothing: no call of the store failed")
	}
	for _, key := range a.keys() {
		if !await.So(func() bool { return a.held(t, key) == 0 }) {
			t.Errorf("of %s %d are still held", key, a.held(t, key))
		}
	}
}

func (a *account) anyFailed() bool {
	return slices.ContainsFunc(a.fleet, func(i *instance) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return len(i.failed) > 0
	})
}

func (a *account) keys() []string {
	keys := []string{"busy"}
	for n := range 7 {
		keys = append(keys, fmt.Sprint("bridge", n))
	}
	return keys
}

// used is what is charged to all keys in the store.
func (a *account) used() (units int64) {
	for _, key := range a.keys() {
		d, err := stint.NewLimiter(a.fleet[0].store).Peek(context.Background(), key, budget)
		if err != nil {
			return -1
		}
		units += budget.Capacity() - d.Remaining - d.Held
	}
	return units
}

// held is how many holds the store has of a key.
func (a *account) held(t *testing.T, key string) int {
	all, err := a.fleet[0].store.Held(t.Context(), key, []*stint.Limit{budget, inFlight})
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(all, func(h stint.Hold) bool { return h.Left <= 0 }))
}
