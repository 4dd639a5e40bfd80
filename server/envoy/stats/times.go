package stats

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// times counts durations in µs, in buckets that are at most 1/128 of their values wide. It may be
// used from many goroutines at once.
type times struct {
	n [timeBuckets]atomic.Uint64
	// sent is the part of n that statsd has. Only Run uses it.
	sent [timeBuckets]uint64
}

const (
	exactTimes  = 128 // µs; smaller ones have a bucket each
	longestTime = 1<<36 - 1
	timeBuckets = 30 * exactTimes
)

func (t *times) add(took time.Duration) { t.n[bucketOf(took.Microseconds())].Add(1) }

func bucketOf(µs int64) int {
	v := uint64(min(max(µs, 0), longestTime))
	e := max(0, bits.Len64(v)-8)
	return e*exactTimes + int(v>>e)
}

// timeOf is the middle of a bucket, in µs.
func timeOf(bucket int) uint64 {
	if bucket < 2*exactTimes {
		return uint64(bucket)
	}
	e := bucket/exactTimes - 1
	return (uint64(bucket-e*exactTimes)<<e + uint64(bucket-e*exactTimes+1)<<e) / 2
}

// quantiles returns the number of durations, their sum and their quantiles at each of at, which ascend from 0
// to 1. All in µs.
func (t *times) quantiles(at ...float64) (n, sum uint64, quantiles []uint64) {
	var counts [timeBuckets]uint64
	for i := range counts {
		counts[i] = t.n[i].Load()
		n += counts[i]
		sum += counts[i] * timeOf(i)
	}
	quantiles = make([]uint64, len(at))
	seen, next := uint64(0), 0
	for i, c := range counts {
		seen += c
		for c > 0 && next < len(at) && float64(seen) >= at[next]*float64(n) {
			quantiles[next] = timeOf(i)
			next++
		}
	}
	return n, sum, quantiles
}
