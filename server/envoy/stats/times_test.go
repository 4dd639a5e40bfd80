package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestTimesAreNearlyExact(t *testing.T) {
	var ts times
	var all []uint64
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		µs := uint64(1) << random.IntN(36)
		µs += random.Uint64N(µs)
		all = append(all, µs)
		ts.add(time.Duration(µs) * time.Microsecond)
		if got := timeOf(bucketOf(int64(µs))); max(got, µs)-min(got, µs) > µs/128 {
			t.Fatalf("%d µs is kept as %d", µs, got)
		}
	}
	slices.Sort(all)
	parts := []float64{0, 0.5, 0.9, 0.99, 1}
	n, _, got := ts.quantiles(parts...)
	if n != uint64(len(all)) {
		t.Errorf("%d of %d", n, len(all))
	}
	for i, part := range parts {
		want := all[max(0, int(part*float64(len(all)))-1)]
		if max(got[i], want)-min(got[i], want) > want/100 {
			t.Errorf("quantile %g: %d, want %d", part, got[i], want)
		}
	}
}

func TestTimesOutOfRange(t *testing.T) {
	var ts times
	for _, d := range []time.Duration{-time.Hour, 0, 100 * 365 * 24 * time.Hour} {
		ts.add(d)
	}
	if n, _, at := ts.quantiles(0.5, 1); n != 3 || at[0] != 0 || at[1] < 1<<35 {
		t.Errorf("%d, %v", n, at)
	}
}

// Buckets follow one another without gaps.
func TestTimesBucketsAscend(t *testing.T) {
	for i := range timeBuckets {
		if µs := timeOf(i); µs <= longestTime && bucketOf(int64(µs)) != i {
			t.Fatalf("bucket %d has %d µs, which is in bucket %d", i, µs, bucketOf(int64(µs)))
		}
	}
	if bucketOf(longestTime) >= timeBuckets {
		t.Error("the longest time has no bucket")
	}
}
