package main

import "math/bits"

// histogram counts durations by their highest bits; its results are at most 2 % too low.
type histogram struct {
	counts [64 << fineBits]int64
	all    int64
}

const fineBits = 6

func (h *histogram) add(ns int64) {
	n := uint64(max(ns, 0))
	coarse := max(0, bits.Len64(n)-fineBits-1)
	h.counts[uint64(coarse)<<fineBits+n>>coarse]++
	h.all++
}

// quantile is the least duration of the class that has q of all durations in or below it.
func (h *histogram) quantile(q float64) int64 {
	left := int64(q * float64(h.all))
	for i, n := range h.counts {
		if left -= n; left < 0 {
			coarse := max(0, i>>fineBits-1)
			return int64(i-coarse<<fineBits) << coarse
		}
	}
	return 0
}
