package heavy_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/heavy"
)

// exact counts exactly.
type exact struct {
	counts map[string]int64
	total  int64
}

func newExact() *exact { return &exact{counts: map[string]int64{}} }

func (x *exact) add(key string, weight int64) {
	x.counts[key] += weight
	x.total += weight
}

// check compares a list with exact counts. size is that of the smallest summary behind it.
func (x *exact) check(t *testing.T, l heavy.List, size int) {
	t.Helper()
	bound := x.total / int64(size)
	if l.Total != x.total {
		t.Errorf("total %d, is %d", l.Total, x.total)
	}
	if l.Floor > bound {
		t.Errorf("floor %d: more than %d/%d", l.Floor, x.total, size)
	}
	listed := map[string]bool{}
	for i, c := range l.Counts {
		listed[c.Key] = true
		is := x.counts[c.Key]
		if c.Count < is || c.Count-c.Error > is || c.Error > bound {
			t.Errorf("key %q is %d, counted as %d with an error of %d, bound %d", c.Key, is, c.Count, c.Error, bound)
		}
		if i > 0 && c.Count > l.Counts[i-1].Count {
			t.Errorf("%d: %d after %d", i, c.Count, l.Counts[i-1].Count)
		}
	}
	if len(listed) != len(l.Counts) {
		t.Errorf("%d of %d keys are listed twice", len(l.Counts)-len(listed), len(l.Counts))
	}
	for key, is := range x.counts {
		if !listed[key] && is > l.Floor {
			t.Errorf("key %q is %d, not listed, above the floor of %d", key, is, l.Floor)
		}
	}
}

// On a Zipf stream, every count is within its error of the exact one, and no heavy key is
// missing. The stream that is most like real ones has a million keys, in the long form 10.
func TestZipf(t *testing.T) {
	const size = 1000
	for _, s := range []float64{1.01, 1.2, 2} {
		n := 200_000
		switch {
		case s != 1.2:
		case testing.Short():
			n = 1_000_000
		default:
			n = 10_000_000
		}
		rng := rand.New(rand.NewPCG(1, 2))
		zipf := rand.NewZipf(rng, s, 1, math.MaxInt32)
		sum, is := heavy.New(size), newExact()
		for range n {
			key := strconv.FormatUint(zipf.Uint64(), 36)
			weight := int64(1)
			if rng.IntN(10) == 0 {
				weight = rng.Int64N(100) + 1
			}
			sum.Add([]byte(key), weight)
			is.add(key, weight)
		}
		l := sum.Top(size)
		is.check(t, l, size)
		var exactly []string
		for key := range is.counts {
			exactly = append(exactly, key)
		}
		slices.SortFunc(exactly, func(a, b string) int { return cmp.Compare(is.counts[b], is.counts[a]) })
		t.Logf("s=%v: %d keys, %d distinct; floor %d, bound %d; the 100th is %d",
			s, n, len(exactly), l.Floor, is.total/size, is.counts[exactly[min(99, len(exactly)-1)]])
	}
}

// A flood of unique keys evicts no key that is heavier than the bound.
func TestUniqueFlood(t *testing.T) {
	const size, flood = 100, 100_000
	sum, is := heavy.New(size), newExact()
	for i := range flood {
		key := fmt.Sprintf("flood-%d", i)
		sum.Add([]byte(key), 1)
		is.add(key, 1)
		if i%50 == 0 { // 2 % of the stream: twice the bound
			sum.Add([]byte("attacker"), 1)
			is.add("attacker", 1)
		}
	}
	l := sum.Top(size)
	is.check(t, l, size)
	if c, listed := l.Of("attacker"); !listed || l.Counts[0].Key != "attacker" {
		t.Errorf("the attacker is not the first: %+v, listed %v", c, listed)
	}
}

// Summaries of random streams, small enough that slots and ranks collide, hold their bounds,
// before and after they are cut, merged, written and read.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		least, all := math.MaxInt, newExact()
		var lists []heavy.List
		for range 1 + rng.IntN(5) {
			size := 1 + rng.IntN(20)
			sum, is := heavy.New(size), newExact()
			if rng.IntN(3) == 0 {
				sum.Add([]byte("before the reset"), 99)
				sum.Reset()
			}
			for range rng.IntN(400) {
				key := strings.Repeat("k", rng.IntN(3)) + strconv.Itoa(int(math.Sqrt(float64(rng.IntN(1000)))))
				weight := rng.Int64N(5) + 1
				sum.Add([]byte(key), weight)
				is.add(key, weight)
				all.add(key, weight)
			}
			is.check(t, sum.Top(size), size)
			cut := 1 + rng.IntN(size)
			l := sum.Top(cut)
			is.check(t, l, cut)
			least = min(least, cut)
			again, err := heavy.Decode(l.Append(nil))
			if err != nil || !reflect.DeepEqual(again, l) {
				t.Fatalf("seed %d: %+v became %+v, %v", seed, l, again, err)
			}
			lists = append(lists, again)
		}
		n := 1 + rng.IntN(30)
		all.check(t, heavy.Merge(n, lists...), min(n, least))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestMergeOfDisjointStreams(t *testing.T) {
	a, b := heavy.New(2), heavy.New(2)
	for key, n := range map[string]int64{"x": 5, "y": 3} {
		a.Add([]byte(key), n)
	}
	b.Add([]byte("x"), 1)
	got := heavy.Merge(2, a.Top(2), b.Top(2))
	want := heavy.List{Counts: []heavy.Count{{"x", 6, 0}, {"y", 3, 0}}, Total: 9}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := heavy.Merge(3); len(got.Counts) != 0 || got.Total != 0 || got.Floor != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestOverflow(t *testing.T) {
	s := heavy.New(1)
	for _, key := range []string{"a", "a", "b"} {
		s.Add([]byte(key), math.MaxInt64)
	}
	l := s.Top(1)
	if want := (heavy.Count{"b", math.MaxInt64, math.MaxInt64}); l.Counts[0] != want || l.Total != math.MaxInt64 {
		t.Errorf("%+v", l)
	}
	if l := heavy.Merge(1, l, l); l.Counts[0].Count != math.MaxInt64 || l.Total != math.MaxInt64 {
		t.Errorf("%+v", l)
	}
}

// Whatever bytes arrive, Decode returns an error or a list that is written and read again
// the same.
func FuzzDecode(f *testing.F) {
	s := heavy.New(3)
	f.Add((&heavy.List{}).Append(nil))
	for i, key := range []string{"login\x00192.0.2.1", "login\x00192.0.2.2", "", "z", "z"} {
		s.Add([]byte(key), int64(i+1))
		l := s.Top(2)
		f.Add(l.Append(nil))
	}
	f.Add([]byte{1, 1, 255, 255, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := heavy.Decode(b)
		if err != nil {
			return
		}
		for i, c := range l.Counts {
			if len(c.Key) > heavy.MaxKey || c.Error > c.Count || c.Error < 0 || c.Count < l.Floor || i > 0 && c.Count > l.Counts[i-1].Count {
				t.Errorf("%+v", l)
			}
		}
		again, err := heavy.Decode(l.Append(nil))
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%+v became %+v, %v", l, again, err)
		}
		_ = heavy.Merge(5, l, again)
	})
}

func TestDecodeIsBounded(t *testing.T) {
	l := heavy.List{Total: 1 << 40}
	long := strings.Repeat("k", heavy.MaxKey-8)
	for i := range heavy.MaxBytes/heavy.MaxKey + 10 {
		l.Counts = append(l.Counts, heavy.Count{Key: fmt.Sprintf("%s%08d", long, i), Count: 1})
	}
	if b := l.Append(nil); len(b) > 64<<10 {
		t.Fatalf("%d bytes: no bomb", len(b))
	} else if _, err := heavy.Decode(b); err == nil {
		t.Error("a short text became long keys without bound")
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, stream := range []string{"zipf", "unique", "one"} {
		b.Run(stream, func(b *testing.B) {
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 1<<20)
			keys := make([][]byte, 1<<16)
			for i := range keys {
				n := uint64(0)
				switch stream {
				case "zipf":
					n = zipf.Uint64()
				case "unique":
					n = uint64(i)
				}
				keys[i] = fmt.Appendf(nil, "login\x00192.0.2.%d", n)
			}
			s := heavy.New(1000)
			for _, key := range keys {
				s.Add(key, 1)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Add(keys[i&(1<<16-1)], 1)
				i++
			}
		})
	}
}
