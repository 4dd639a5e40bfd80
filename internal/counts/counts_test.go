package counts

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

const day = 24 * time.Hour

// allKinds are the algorithms, and how they are named in tests.
var allKinds = map[algo.Kind]string{
	algo.TokenBucket: "bucket", algo.LeakyBucket: "leaky", algo.FixedWindow: "fixed", algo.SlidingLog: "log", algo.SlidingWindow: "window",
}

// newLimit makes a limit. burst and buckets are 0 where they are not given.
func newLimit(kind algo.Kind, amount int64, period time.Duration, burst, buckets int64) *Limit {
	p, err := algo.NewPlan(kind, amount, period, burst, buckets)
	if err != nil {
		panic(err)
	}
	return &Limit{Plan: p, Salt: Salt(fmt.Sprint(kind, period, buckets))}
}

// oneOfEach is a limit of each algorithm, of an amount in so long that nothing comes
// back while a test runs.
func oneOfEach(amount int64) (all []*Limit) {
	for kind := range algo.Kind(len(allKinds)) {
		all = append(all, newLimit(kind, amount, 200*day, 0, 0))
	}
	return all
}

func opened(room int) *Memory {
	m := new(Memory)
	m.Open(room)
	return m
}

func (m *Memory) decide(asks []Ask, at int64) (d Answer, err error) {
	err = m.Take(asks, nil, at, &d)
	return d, err
}

// takeKey is what stint.Memory does with a request of one ask.
func (m *Memory) takeKey(key string, l *Limit, cost int64) (v algo.Verdict, err error) {
	if !m.TakeOne(key, l, cost, OwnClock, &v) {
		asks := [1]Ask{{Key: key, Limit: l, Cost: cost}}
		_, err = m.decide(asks[:], OwnClock)
		v = asks[0].Verdict
	}
	return v, err
}

// fill takes a unit for each of n new keys.
func fill(t *testing.T, m *Memory, l *Limit, prefix string, n int) (refused int) {
	t.Helper()
	for i := range n {
		if _, err := m.takeKey(fmt.Sprint(prefix, i), l, 1); errors.Is(err, ErrFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return refused
}

// A record under a penalty takes the bytes that docs/bounds.md promises, however long the
// key is that a client invents.
func TestBytesOfARecord(t *testing.T) {
	const n, longest = 50_000, 4096
	plan, err := algo.NewPenalty(0, 1, time.Hour, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Penalty{Plan: plan, Salt: Salt("p:p"), Name: "p"}
	for name, length := range map[string]int{"long": longest, "short": longKey} {
		m := opened(2 * n)
		before := inUse()
		for i := range n {
			key := strings.Repeat("k", length-6) + strconv.Itoa(100_000+i)
			if came := m.Violate([]Ask{{Key: key, Penalty: p}}, OwnClock); came.BanLeft == 0 {
				t.Fatalf("%+v", came)
			}
		}
		bytes := float64(inUse()-before) / n
		if t.Logf("%s keys: %.1f bytes a record", name, bytes); bytes > bytesOfRecord {
			t.Errorf("%s keys: %.1f bytes a record, want at most %d", name, bytes, bytesOfRecord)
		}
		runtime.KeepAlive(m)
	}
}

// A count that no table can hold is inspected like others, also where it is the first of
// the process.
func TestInspectFirst(t *testing.T) {
	all := plans.all.Load()
	defer plans.all.Store(all)
	plans.all.Store(nil)
	m, l := opened(10), newLimit(algo.TokenBucket, 7, 30*day, 0, 0)
	if l.planNumber() != noPlan {
		t.Fatal("this should not fit in a word")
	}
	if _, err := m.takeKey("k", l, 1); err != nil {
		t.Fatal(err)
	}
	if held := m.Inspect("k", []*Limit{l}); !held[0].InUse {
		t.Errorf("%+v", held)
	}
}

// An ask without a limit is refused while a ban runs, else it allows, takes nothing and is
// not what the request as a whole is answered by.
func TestAskWithoutLimit(t *testing.T) {
	plan, err := algo.NewPenalty(0, 1, time.Hour, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Penalty{Plan: plan, Salt: Salt("p:p"), Name: "p"}
	m, l := opened(1000), newLimit(algo.TokenBucket, 1, day, 0, 0)
	asks := []Ask{{Key: "k", Penalty: p}, {Key: "k", Limit: l, Cost: 1, Penalty: p}}
	for range 2 { // alone
		if d, err := m.decide(asks[:1], OwnClock); err != nil || d.Of != 0 || !asks[0].Verdict.Allowed || m.Len() != 0 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if d, err := m.decide(asks, OwnClock); err != nil || d.Of != 1 || !asks[1].Verdict.Allowed {
		t.Errorf("first: %+v, %v", d, err)
	}
	if d, err := m.decide(asks, OwnClock); err != nil || d.Of != 1 || !asks[0].Verdict.Allowed || asks[1].Verdict.Allowed || d.Punishment.Sentence != algo.Banned {
		t.Errorf("refused: %+v, %v", d, err)
	}
	for n := 1; n <= 2; n++ {
		if d, err := m.decide(asks[:n], OwnClock); err != nil || d.Of != None || d.Punishment.BanLeft == 0 {
			t.Errorf("banned: %+v, %v", d, err)
		}
	}
}
