package counts

import (
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
		m := opened(1_000_000)
		limit := newLimit(algo.SlidingLog, 10_000, time.Second, 0, 0)
		p := &limit.Plan
		var plain algo.State
		longest := 0
		for round := range 6 {
			for range 8000 {
				now := m.Now()
				v := p.Look(&plain, now)
				want := p.Settle(&plain, &v, 1, p.Fits(&v, 1))
				if d, err := m.takeKey("k", limit, 1); err != nil || d != want {
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

// lengthOf is that of the block of key k under a limit.
func lengthOf(m *Memory, limit *Limit) int {
	hash := m.hash("k")
	s := m.shardOf(hash)
	o := s.table.Load().find(printOf(hash, limit.Salt))
	return len(s.blocks.logs.at(blockIn(o.base.Load())))
}

// A count moves between its block and the map as its limit's plan has a number or none,
// and keeps what was used.
func TestBlockAndMap(t *testing.T) {
	for _, kind := range []algo.Kind{algo.SlidingLog, algo.SlidingWindow} {
		m := opened(1_000_000)
		numbered, unnumbered := newLimit(kind, 10, 9000*day, 0, 0), newLimit(kind, 12, 9000*day, 0, 0)
		unnumbered.number.Store(noPlan)
		for i, limit := range []*Limit{numbered, numbered, unnumbered, unnumbered, numbered, numbered} {
			if d, err := m.takeKey("k", limit, 1); err != nil || d.Remaining != limit.Plan.Capacity-int64(i)-1 {
				t.Errorf("%s, request %d: %+v, %v", allKinds[kind], i, d, err)
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
		m := opened(keys * 20 / 19)
		limits := []*Limit{newLimit(algo.SlidingLog, 5, time.Hour, 0, 0), newLimit(algo.SlidingWindow, 5, time.Hour, 0, 0)}
		for range 3 {
			for i := range keys {
				if _, err := m.takeKey(fmt.Sprint(i), limits[i%2], 1); err != nil {
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
			if d, err := m.takeKey(fmt.Sprint(i), limits[i%2], 0); err != nil || d.Remaining != 2 {
				t.Fatalf("%d: %+v, %v", i, d, err)
			}
			m.Reset([]Ask{{Key: fmt.Sprint(i), Limit: limits[i%2]}})
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
		for _, kind := range []algo.Kind{algo.SlidingLog, algo.SlidingWindow} {
			m := opened(500)
			limit := newLimit(kind, 2, time.Hour, 0, 0)
			for range 2 {
				fill(t, m, limit, "exhausted", 100)
			}
			if refused := fill(t, m, limit, "flood", 20_000); refused > 0 || m.Len() > 500 {
				t.Errorf("%d newcomers refused, %d counts", refused, m.Len())
			}
			for i := range 100 {
				if d, err := m.takeKey(fmt.Sprint("exhausted", i), limit, 1); err != nil || d.Allowed {
					t.Errorf("exhausted%d was allowed again: %+v, %v", i, d, err)
				}
			}
			time.Sleep(3 * time.Hour)
			fill(t, m, limit, "later", 2000)
			if m.Len() > 500 {
				t.Errorf("%d counts", m.Len())
			}
		}
	})
}

// Two counts whose prints are equal by chance, and which are of different algorithms,
// are not taken for one.
func TestEqualPrints(t *testing.T) {
	m := opened(1_000_000)
	limits := oneOfEach(10)
	for i := range limits {
		limits[i].Salt = 1
	}
	for _, i := range []int{0, 3, 4, 1, 2, 4, 3, 0, 4, 2} {
		if d, err := m.takeKey("k", limits[i], 1); err != nil || d.Remaining != 9 || m.Len() != 1 {
			t.Errorf("%s: %+v, %v; %d counts", allKinds[limits[i].Plan.Kind], d, err, m.Len())
		}
	}
}

// What a window or a log takes, and that the garbage collector has hardly anything to
// follow: as many objects as there are pages, not as there are counts.
func TestBytesOfABlock(t *testing.T) {
	const keys = 200_000
	for kind, most := range map[algo.Kind]float64{algo.SlidingLog: 80, algo.SlidingWindow: 150} {
		limit := newLimit(kind, 100, day, 0, 0)
		m := opened(keys * 20 / 19)
		before, objects := inUse(), objectsInUse()
		for i := range keys {
			if _, err := m.takeKey(fmt.Sprint(i), limit, 1); err != nil {
				t.Fatal(err)
			}
		}
		bytes, each := float64(inUse()-before)/keys, float64(objectsInUse()-objects)/keys
		t.Logf("%s: %.1f bytes and %.4f objects each", allKinds[kind], bytes, each)
		if bytes > most || bytes < 16 {
			t.Errorf("%s: %.1f bytes each, want at most %g", allKinds[kind], bytes, most)
		}
		if each > 0.05 {
			t.Errorf("%s: %.2f objects each", allKinds[kind], each)
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
