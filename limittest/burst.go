package limittest

import (
	"context"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

const (
	burstCalls  = 20_000 // unless env says otherwise
	burstCrowd  = 64
	burstAmount = 100
	burstPeriod = time.Minute
)

// checkBurst sends a crowd of requests for one key, by the store's own clock.
func checkBurst(t testing.TB, e *env) {
	stores := e.fleet()
	for _, limit := range oneOfEach(burstAmount, burstPeriod, "") {
		a := limit.Spec().Algorithm
		for try := 0; ; try++ {
			b := burst{stores: stores, limit: limit, calls: e.calls, key: fmt.Sprintf("burst %s %d", a, try)}
			if err := b.run(); err != nil {
				t.Fatalf("%s: %v", limit, err)
			}
			if a == stint.FixedWindow && b.crossed && try < 5 {
				t.Logf("%s: the window ended meanwhile, again", limit)
				continue
			}
			b.check(t)
			break
		}
	}
}

type burst struct {
	stores []stint.Store
	limit  *stint.Limit
	key    string
	calls  int

	admitted int64
	took     time.Duration // from before the first call until after the last
	crossed  bool          // a fixed window may have ended meanwhile
}

func (b *burst) run() error {
	began := time.Now()
	first, err := b.take(0)
	if err != nil {
		return err
	}
	var next, admitted atomic.Int64
	next.Add(1)
	if first.Allowed {
		admitted.Add(1)
	}
	errs := make(chan error, burstCrowd)
	var crowd sync.WaitGroup
	for range burstCrowd {
		crowd.Go(func() {
			for n := next.Add(1); n <= int64(b.calls); n = next.Add(1) {
				d, err := b.take(int(n))
				if err != nil {
					errs <- err
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	crowd.Wait()
	b.took = time.Since(began)
	b.admitted = admitted.Load()
	// The first answer says how long its window lasts, from the start of the run or later.
	b.crossed = b.took >= first.ResetAfter
	select {
	case err = <-errs:
	default:
	}
	return err
}

func (b *burst) take(n int) (stint.Decision, error) {
	r := stint.Request{Asks: []stint.Ask{{Key: b.key, Limit: b.limit, Cost: 1}}}
	return b.stores[n%len(b.stores)].Take(context.Background(), &r, nil)
}

// check compares the admitted units with the limit and the units that came back meanwhile.
func (b *burst) check(t testing.TB) {
	t.Helper()
	if b.took > burstPeriod*9/10 {
		t.Fatalf("%s: %d calls took %s, too long to judge", b.limit, b.calls, b.took)
	}
	most := int64(burstAmount)
	switch b.limit.Spec().Algorithm {
	case stint.TokenBucket, stint.LeakyBucket:
		// Instants are floored to the µs: two may be 1 µs further apart than their calls.
		came := new(big.Rat).Mul(termsOf(b.limit).rate, units(b.took.Microseconds()+2))
		most += floor(came)
	case stint.FixedWindow:
		if b.crossed {
			t.Fatalf("%s: a window ends in each of several runs of %d calls", b.limit, b.calls)
		}
	}
	if b.admitted < burstAmount || b.admitted > most {
		t.Errorf("%s: of %d calls in %s, %d were admitted; want from %d to %d",
			b.limit, b.calls, b.took, b.admitted, burstAmount, most)
	}
}
