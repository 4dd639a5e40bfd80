package stats

import (
	"math"

	"github.com/stintdev/stint"
)

// hits are increments of the counters of a rule, in the order of ruleKinds.
type hits [6]uint64

// question is a descriptor's ask.
type question struct {
	cost uint64
	// later is how much later descriptors of the call took of the same count.
	later   uint64
	ratio   float32 // NEAR_LIMIT_RATIO
	shadow  bool
	nothing bool // requests_per_unit is 0
}

// split divides the cost as envoyproxy/ratelimit does. The units of a refused cost that would still have
// fitted are not over the limit; those of them above the ratio are near it. If a refusal was repeated without
// the store, all its units are over the limit.
func (q *question) split(d *stint.Decision) hits {
	h := hits{totalHits: q.cost}
	var limit, left uint64
	if d.Limit != nil && !q.nothing {
		limit = uint64(d.Limit.Capacity())
		left = min(uint64(max(0, d.Remaining)), limit)
	}
	near := uint64(math.Floor(float64(float32(limit) * q.ratio)))
	switch {
	case d.Outcome == 0: // nobody decided
	case d.Allowed:
		h[withinLimit] = q.cost
		if d.By != stint.ByPolicy {
			after := limit - min(limit, left+q.later)
			h[nearLimit] = min(q.cost, after-min(after, near))
		}
	default:
		h[overLimit] = q.cost
		switch {
		case d.Remembered || d.By == stint.ByLease:
			h[overLimitWithLocalCache] = q.cost
		case d.Outcome == stint.Limited && left < q.cost:
			h[overLimit] = q.cost - left
			h[nearLimit] = min(left, limit-min(limit, near))
		}
		if q.shadow {
			h[shadowMode] = h[overLimit]
		}
	}
	return h
}
