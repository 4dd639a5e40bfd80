// Package untouched has the numbers by which limits are suggested that leave most keys untouched, from a log and from
// recent requests alike.
package untouched

import (
	"math"
	"slices"
)

const (
	// Wished is the share of keys that a limit leaves untouched, unless somebody wishes for another.
	Wished = 0.999
	// Margin is how much a limit is above what those keys needed.
	Margin = 0.2
	// FewestKeys are enough to suggest anything.
	FewestKeys = 20
)

// shares are those that a suggestion falls back to.
var shares = []float64{0.9999, 0.9995, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.5}

// Share is the wished share, or the highest below it that so many keys can tell: at least three of them must be
// above it.
func Share(wished float64, keys int) float64 {
	tells := func(s float64) bool { return (1-s)*float64(keys) >= 3-1e-9 }
	if tells(wished) {
		return wished
	}
	if i := slices.IndexFunc(shares, func(s float64) bool { return s < wished && tells(s) }); i >= 0 {
		return shares[i]
	}
	return min(wished, 0.5)
}

// Quantile is the smallest of ascending numbers that is not below the share of them.
func Quantile[N int64 | float64](ascending []N, share float64) N {
	i := int(math.Ceil(share*float64(len(ascending))-1e-9)) - 1
	return ascending[min(max(i, 0), len(ascending)-1)]
}

// RoundUp rounds to two significant digits, never down, and never below 1.
func RoundUp(n float64) int64 {
	if n <= 1 {
		return 1
	}
	unit := int64(1)
	for n/float64(unit) > 99.000001 {
		unit *= 10
	}
	return int64(math.Ceil(n/float64(unit)-1e-6)) * unit
}
