package counts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// heldLimit is a limit of so many requests in flight, held for so many µs.
func heldLimit(name string, amount, span int64) *Limit {
	l := newLimit(algo.InFlight, amount, 0, 0, 0)
	l.Plan.Hold, l.Plan.Busy, l.Salt = span, 1_000_000, Salt(name)
	return l
}

func heldID(n int) (id HoldID) {
	binary.BigEndian.PutUint64(id[4:], uint64(n+1))
	return id
}

// hold makes hold number n of key, and reports whether it was allowed.
func (m *Memory) hold(key string, l *Limit, n int, at int64) (bool, error) {
	asks := []Ask{{Key: key, Limit: l, Cost: 1}}
	var d Answer
	err := m.Take(asks, &Holding{ID: heldID(n)}, at, &d)
	return asks[0].Verdict.Allowed, err
}

func (m *Memory) records() (n int) {
	for i := range m.shards {
		s := &m.shards[i].holds
		n += len(s.records)
		if len(s.groups) != len(s.all) {
			panic("a group lies in one place only")
		}
	}
	if int64(n) != m.holds.total.Load() {
		panic(fmt.Sprintf("%d records, and %d are counted", n, m.holds.total.Load()))
	}
	return n
}

func TestHoldsAreBounded(t *testing.T) {
	const room = 2 * algo.MostHolds
	synctest.Test(t, func(t *testing.T) {
		m, l := opened(100), heldLimit("bounded", room, 30_000_000)
		for i := range room {
			if ok, err := m.hold(fmt.Sprint("key ", i%7), l, i, OwnClock); !ok || err != nil {
				t.Fatalf("hold %d: %t, %v", i, ok, err)
			}
		}
		if ok, err := m.hold("new", l, room, OwnClock); !errors.Is(err, ErrFull) {
			t.Errorf("one more: %t, %v", ok, err)
		}
		for _, action := range []HoldAction{Renew, Release} {
			c := HoldCall{Action: action, Key: "new", Limit: l, ID: heldID(room), Units: 1, Again: true}
			if err := m.Hold(&c, OwnClock); !errors.Is(err, ErrFull) {
				t.Errorf("action %d, which would make a record: %v", action, err)
			}
		}
		c := HoldCall{Action: Release, Key: "key 0", Limit: l, ID: heldID(0)}
		if err := m.Hold(&c, OwnClock); err != nil || !c.Found || m.records() != room {
			t.Errorf("a release leaves a tombstone in place of the record: %v, found %t, %d records", err, c.Found, m.records())
		}
		c = HoldCall{Action: Settle, Key: "key 1", Limit: l, ID: heldID(1)}
		if err := m.Hold(&c, OwnClock); err != nil || !c.Found || m.records() != room-1 {
			t.Errorf("a settlement: %v, found %t, %d records", err, c.Found, m.records())
		}
		if ok, err := m.hold("new", l, room, OwnClock); !ok || err != nil {
			t.Errorf("where one was settled: %t, %v", ok, err)
		}
		time.Sleep(30 * time.Second) // the tombstone lasts twice as long
		if ok, err := m.hold("newer", l, room+1, OwnClock); !ok || err != nil {
			t.Errorf("when all ran out: %t, %v", ok, err)
		}
	})
}

// What ran out goes while new holds come, also of keys that never come back.
func TestHoldsThatRanOutAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := opened(1000), heldLimit("dropped", 10, 1_000_000)
		for i := range 500 {
			if ok, err := m.hold(fmt.Sprint("key ", i), l, i, OwnClock); !ok || err != nil {
				t.Fatalf("hold %d: %t, %v", i, ok, err)
			}
		}
		time.Sleep(2 * time.Second)
		for i := range 250 {
			if ok, err := m.hold("another", l, 500, OwnClock); !ok || err != nil {
				t.Fatalf("hold %d: %t, %v", i, ok, err)
			}
			if err := m.Hold(&HoldCall{Key: "another", Limit: l, ID: heldID(500)}, OwnClock); err != nil {
				t.Fatal(err)
			}
		}
		if n := m.records(); n != 0 {
			t.Errorf("%d records are left of 500, after half as many came and went", n)
		}
	})
}

// A Memory counts no record of a plain limit, and leaves nothing behind.
func TestOnlyHeldLimitsHold(t *testing.T) {
	m := opened(1000)
	for _, l := range oneOfEach(10) {
		if ok, err := m.hold("key", l, 1, OwnClock); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
		v, err := m.takeKey("key", l, 0)
		if err != nil || v.Remaining != 9 || v.Held != 0 {
			t.Errorf("%s: %+v, %v, want one unit charged", allKinds[l.Plan.Kind], v, err)
		}
	}
	if n := m.records(); n != 0 {
		t.Errorf("%d records", n)
	}
}

// groupOf is what standing must find, one record after another.
func groupOf(all map[HoldID]*hold, now int64) (units, left int64, n int) {
	for _, h := range all {
		if h.counts(now) {
			units, left, n = units+h.units, max(left, h.until-now), n+1
		}
	}
	return units, left, n
}

// A group stands as a plain list of its records does, in whatever order they come and go.
func TestHoldGroup(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m, all := opened(10_000), map[HoldID]*hold{}
		s := &m.shards[0].holds
		now := int64(1_000_000_000)
		for range 300 {
			now += rng.Int64N(8_000) - 3_000
			id := heldID(rng.IntN(40))
			switch rng.IntN(3) {
			case 0:
				s.take(7, id)
				delete(all, id)
			default:
				span := 1 + rng.Int64N(40_000)
				h := hold{id: id, released: rng.IntN(5) == 0, until: now + span, span: span}
				if !h.released {
					h.units = 1 + rng.Int64N(9)
				}
				one, other := h, h
				s.put(7, &one)
				all[id] = &other
			}
			// Nothing is dropped: an instant is less than a second after any.
			g := s.group(7, now, false)
			units, left, n := g.standing(now)
			if u, l, k := groupOf(all, now); u != units || l != left || k != n {
				t.Fatalf("seed %d: %d units for %d µs in %d records, want %d, %d, %d", seed, units, left, n, u, l, k)
			}
			if g != nil && len(g.order) != len(all) || len(all) != m.records() {
				t.Fatalf("seed %d: %d records, want %d", seed, m.records(), len(all))
			}
		}
		s.sweep(1, now+2_000_000, false)
		if m.records() != 0 || len(s.all) != 0 {
			t.Fatalf("seed %d: %d records in %d groups after the last ran out", seed, m.records(), len(s.all))
		}
	}
}

// BenchmarkHolds is a request that holds a unit and settles, of a key that has so many holds.
func BenchmarkHolds(b *testing.B) {
	for _, n := range []int{1, 100, algo.MostHolds} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, l := opened(DefaultRoom), heldLimit("bench", 10_000, 30_000_000)
			for i := range n - 1 {
				_, _ = m.hold("key", l, i, OwnClock)
			}
			asks := []Ask{{Key: "key", Limit: l, Cost: 1}}
			by := &Holding{ID: heldID(n)}
			b.ReportAllocs()
			for b.Loop() {
				var d Answer
				_ = m.Take(asks, by, OwnClock, &d)
				c := HoldCall{Key: "key", Limit: l, ID: by.ID}
				if err := m.Hold(&c, OwnClock); err != nil || !c.Found {
					b.Fatal(c, err)
				}
			}
		})
	}
}

// A record takes the bytes that docs/bounds.md says, if each is of a key of its own.
func TestBytesOfAHold(t *testing.T) {
	const n = 100_000
	l := heldLimit("bytes", 10, 3_600_000_000)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	m := opened(16 * n)
	for i := range n {
		if ok, err := m.hold(fmt.Sprint("key ", i), l, i, OwnClock); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	each := (heap() - before) / n
	if t.Logf("%d bytes a hold", each); each > BytesOfAHold {
		t.Errorf("%d bytes a hold, want at most %d", each, BytesOfAHold)
	}
	runtime.KeepAlive(m)
}
