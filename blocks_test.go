package stint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Blocks keep what is written to them while others come and go, do not overlap, and
// begin with zeros; and when all are gone, no page is left.
func TestArena(t *testing.T) {
	var a arena[int64]
	type held struct {
		at   block
		size int
		mark int64
	}
	var all []held
	most := 0
	for n := int64(1); n < 60_000; n++ {
		if rand.IntN(2000) < 1000+500*int(n/10_000%2)-250 || len(all) == 0 { // more, then fewer
			want := 1 + rand.IntN(1<<rand.IntN(12))
			h := held{a.alloc(want), want, n}
			b := a.at(h.at)
			if len(b) < want || slices.ContainsFunc(b, func(x int64) bool { return x != 0 }) {
				t.Fatalf("a block of %d for %d: %v", len(b), want, b)
			}
			for i := range b {
				b[i] = n
			}
			all = append(all, h)
			most = max(most, len(all))
			continue
		}
		i := rand.IntN(len(all))
		h := all[i]
		if b := a.at(h.at); slices.ContainsFunc(b, func(x int64) bool { return x != h.mark }) {
			t.Fatalf("block %x of %d: %v", h.at, h.mark, b)
		}
		a.release(h.at)
		all[i] = all[len(all)-1]
		all = all[:len(all)-1]
	}
	for _, h := range all {
		if a.at(h.at)[0] != h.mark {
			t.Fatalf("block %x of %d", h.at, h.mark)
		}
		a.release(h.at)
	}
	pages := *a.pages.Load()
	for i := range pages {
		if pages[i].data != nil {
			t.Errorf("page %d is left: of blocks of %d", i, pages[i].size)
		}
	}
	if len(a.vacant) != len(pages) || most < 1000 {
		t.Errorf("%d of %d pages are vacant, of %d blocks at most", len(a.vacant), len(pages), most)
	}
}

// A log of thousands of marks outgrows the largest page, shrinks when they have left,
// and knows all the while what a plain State knows.
func TestLongLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		limit := MustLimit("10000 per 1s sliding_log")
		p := &limit.plan
		var plain algo.State
		longest := 0
		for round := range 6 {
			for range 8000 {
				now := instant(m)
				v := p.Look(&plain, now)
				want := p.Settle(&plain, &v, 1, p.Fits(&v, 1))
				d, err := m.Take(t.Context(), &Request{Asks: []Ask{{Key: "k", Limit: limit, Cost: 1}}}, nil)
				if err != nil || d != Internal().Decision(&Ask{Key: "k", Limit: limit}, &want) {
					t.Fatalf("%+v, %v, want %+v", d, err, want)
				}
				longest = max(longest, lengthOf(m, limit))
				time.Sleep([]time.Duration{10 * time.Microsecond, 3 * time.Millisecond}[round%2])
			}
		}
		if n := lengthOf(m, limit); longest <= 1<<pageBits || n >= longest/2 {
			t.Errorf("a block of %d at most, and of %d at the end", longest, n)
		}
	})
}

func instant(m *Memory) int64 { m.init(); return m.clock() }

// lengthOf is that of the block of key k under a limit.
func lengthOf(m *Memory, limit *Limit) int {
	hash := m.hash("k")
	s := m.shardOf(hash)
	o := s.table.Load().find(printOf(hash, limit.salt))
	return len(s.blocks.logs.at(blockIn(o.base.Load())))
}

// A count moves between its block and the map as its limit's plan has a number or none,
// and keeps what was used.
func TestBlockAndMap(t *testing.T) {
	for _, algorithm := range []string{"sliding_log", "sliding_window"} {
		m := new(Memory)
		l := NewLimiter(m)
		numbered, unnumbered := MustLimit("10 per 9000d "+algorithm), MustLimit("12 per 9000d "+algorithm)
		unnumbered.planNumber.Store(noPlan)
		for i, limit := range []*Limit{numbered, numbered, unnumbered, unnumbered, numbered, numbered} {
			if d, err := l.Allow(t.Context(), "k", limit); err != nil || d.Remaining != limit.Capacity()-int64(i)-1 {
				t.Errorf("%s, request %d: %+v, %v", algorithm, i, d, err)
			}
		}
		if n := m.Len(); n != 1 {
			t.Errorf("%d counts of one", n)
		}
	}
}

// Counts that found no slot get one, and a block, when the table grows, and those that
// are forgotten give their blocks back.
func TestBlocksAreRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 30_000
		m := &Memory{MaxKeys: keys * 20 / 19}
		l := NewLimiter(m)
		limits := []*Limit{MustLimit("5 per 1h sliding_log"), MustLimit("5 per 1h sliding_window")}
		for range 3 {
			for i := range keys {
				if _, err := l.Allow(t.Context(), fmt.Sprint(i), limits[i%2]); err != nil {
					t.Fatal(err)
				}
			}
		}
		apart := 0
		for i := range m.shards {
			apart += len(m.shards[i].all)
		}
		if apart > keys/100 {
			t.Errorf("%d of %d counts found no slot", apart, keys)
		}
		for i := range keys {
			if d, err := l.Peek(t.Context(), fmt.Sprint(i), limits[i%2]); err != nil || d.Remaining != 2 {
				t.Fatalf("%d: %+v, %v", i, d, err)
			}
			if err := l.Reset(t.Context(), fmt.Sprint(i), limits[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range m.shards {
			b := m.shards[i].blocks
			if n := pagesOf(&b.windows) + pagesOf(&b.logs); n != 0 || m.shards[i].counts() != 0 {
				t.Fatalf("%d pages are left, and %d counts", n, m.shards[i].counts())
			}
		}
	})
}

func pagesOf[T any](a *arena[T]) int {
	if a.pages.Load() == nil {
		return 0
	}
	return len(*a.pages.Load()) - len(a.vacant)
}

// A flood of logs and windows makes some give way to others, never one that is
// exhausted.
func TestFloodOfBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"2 per 1h sliding_log", "2 per 1h sliding_window"} {
			m := &Memory{MaxKeys: 500}
			l := NewLimiter(m)
			limit := MustLimit(text)
			for range 2 {
				fill(t, l, limit, "exhausted", 100)
			}
			if refused := fill(t, l, limit, "flood", 20_000); refused > 0 || m.Len() > 500 {
				t.Errorf("%d newcomers refused, %d counts", refused, m.Len())
			}
			for i := range 100 {
				if d, err := l.Allow(t.Context(), fmt.Sprint("exhausted", i), limit); err != nil || d.Allowed {
					t.Errorf("exhausted%d was allowed again: %+v, %v", i, d, err)
				}
			}
			time.Sleep(3 * time.Hour)
			fill(t, l, limit, "later", 2000)
			if m.Len() > 500 {
				t.Errorf("%d counts", m.Len())
			}
		}
	})
}

// Two counts whose prints are equal by chance, and which are of different algorithms,
// are not taken for one.
func TestEqualPrints(t *testing.T) {
	m := new(Memory)
	l := NewLimiter(m)
	limits := oneOfEach(10)
	for i := range limits {
		limits[i].salt = 1
	}
	for _, i := range []int{0, 3, 4, 1, 2, 4, 3, 0, 4, 2} {
		if d, err := l.Allow(t.Context(), "k", limits[i]); err != nil || d.Remaining != 9 || m.Len() != 1 {
			t.Errorf("%s: %+v, %v; %d counts", limits[i], d, err, m.Len())
		}
	}
}

// What a window or a log takes, and that the garbage collector has hardly anything to
// follow: as many objects as there are pages, not as there are counts.
func TestBytesOfABlock(t *testing.T) {
	const keys = 200_000
	for text, most := range map[string]float64{"100 per 24h sliding_log": 80, "100 per 24h sliding_window": 150} {
		limit := MustLimit(text)
		m := &Memory{MaxKeys: keys * 20 / 19}
		m.init()
		l := NewLimiter(m)
		before, objects := inUse(), objectsInUse()
		for i := range keys {
			if _, err := l.Allow(context.Background(), fmt.Sprint(i), limit); err != nil {
				t.Fatal(err)
			}
		}
		bytes, each := float64(inUse()-before)/keys, float64(objectsInUse()-objects)/keys
		t.Logf("%s: %.1f bytes and %.4f objects each", text, bytes, each)
		if bytes > most || bytes < 16 {
			t.Errorf("%s: %.1f bytes each, want at most %g", text, bytes, most)
		}
		if each > 0.05 {
			t.Errorf("%s: %.2f objects each", text, each)
		}
		runtime.KeepAlive(m)
	}
}

func objectsInUse() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapObjects)
}
