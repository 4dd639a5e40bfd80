package live

import (
	"math"

	"github.com/stintdev/stint/promlimit"
	"github.com/stintdev/stint/server/adminapi"
)

// Bounds are the upper bounds of a Histogram's buckets, in seconds; the last bucket has none.
var Bounds = promlimit.DefaultBuckets

// Histogram counts durations, each in the first bucket whose bound is not below it.
type Histogram [len(Bounds) + 1]int64

// Total is the number of all durations.
func (h *Histogram) Total() (n int64) {
	for _, in := range h {
		n += in
	}
	return n
}

// Quantile estimates, in seconds, the duration that the share q of all does not exceed: linear in the bucket,
// like Prometheus' histogram_quantile. The last bucket counts as its lower bound. 0: there are none.
func (h *Histogram) Quantile(q float64) float64 {
	rank := q * float64(h.Total())
	if rank == 0 {
		return 0
	}
	var below float64
	for i, in := range h {
		if in := float64(in); in > 0 && below+in >= rank && i < len(Bounds) {
			low := 0.0
			if i > 0 {
				low = Bounds[i-1]
			}
			return low + (Bounds[i]-low)*(rank-below)/in
		}
		below += float64(in)
	}
	return Bounds[len(Bounds)-1]
}

func (h *Histogram) quantiles() adminapi.Quantiles {
	return adminapi.Quantiles{P50: h.micros(0.5), P99: h.micros(0.99)}
}

// micros is a quantile in µs, at least 1 if there are durations.
func (h *Histogram) micros(q float64) int64 {
	return int64(math.Ceil(h.Quantile(q) * 1e6))
}
