package fleet_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// moving is a Store of servers that come and go, by new names, and of which some hang.
type moving struct {
	stint.Memory
	mu    sync.Mutex
	names []string
	hangs map[string]bool
}

func (m *moving) part(key string) string {
	if len(m.names) == 0 {
		return ""
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(key))
	return m.names[int(h.Sum32())%len(m.names)]
}

func (m *moving) Partition(_ *stint.Limit, key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.part(key)
}

func (m *moving) Partitions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names
}

func (m *moving) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	for _, a := range r.Asks {
		m.mu.Lock()
		hangs := m.hangs[m.part(a.Key)]
		m.mu.Unlock()
		if hangs {
			<-ctx.Done()
			return stint.Decision{}, ctx.Err()
		}
	}
	return m.Memory.Take(ctx, r, out)
}

func (m *moving) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = m.Take(ctx, &rs[i], answers[i].Each)
	}
}

// Whatever servers come, go, hang and come back, in whichever order: soon after all
// answer, every key is decided by the store again, and nothing is told to be out.
func TestPartitionsOfAnyTopology(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			store := &moving{names: []string{"a", "b", "c"}}
			var last atomic.Uint32
			f := &fleet.Fallback{Store: store, Breaker: fleet.Breaker{Changed: func(to fleet.BreakerState, _ error) { last.Store(uint32(to)) }}}
			defer f.Close()
			limit := stint.MustLimit("1000000 per 24h fixed_window")
			take := func(keys ...string) []stint.Decision {
				r := stint.Request{}
				for _, k := range keys {
					r.Asks = append(r.Asks, stint.Ask{Key: k, Limit: limit, Cost: 1})
				}
				out := make([]stint.Decision, len(keys))
				if _, err := f.Take(t.Context(), &r, out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			key := func() string { return fmt.Sprint("k", rnd.IntN(20)) }
			for range 60 {
				store.mu.Lock()
				switch rnd.IntN(6) {
				case 0:
					store.names = nil
				case 1:
					store.names = []string{"a", "b", "c"}
				case 2:
					store.names = []string{"b", fmt.Sprint("n", rnd.IntN(5))}
				case 3:
					store.hangs = map[string]bool{}
				case 4:
					store.hangs = map[string]bool{"a": rnd.IntN(2) == 0, "b": rnd.IntN(2) == 0, "c": true, "n1": true, "": rnd.IntN(2) == 0}
				}
				store.mu.Unlock()
				for range rnd.IntN(30) {
					one, two := key(), key()
					for two == one {
						two = key()
					}
					take(one, two)
				}
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
			}
			store.mu.Lock()
			store.names, store.hangs = []string{"a", "b", "c"}, nil
			store.mu.Unlock()
			time.Sleep(15 * time.Second)
			for i := range 20 {
				if d := take(fmt.Sprint("k", i)); d[0].By != stint.ByStore {
					t.Errorf("seed %d: %s is decided by %s", seed, d[0].Key, d[0].By)
				}
			}
			if told := fleet.BreakerState(last.Load()); f.State() != fleet.Closed || told != fleet.Closed {
				t.Errorf("seed %d: %s, told %s", seed, f.State(), told)
			}
		})
	}
}
