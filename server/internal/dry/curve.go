package dry

import (
	"math"
	"slices"

	"github.com/stintdev/stint/server/adminapi"
)

// The numbers here are those of "stint replay --suggest", so that both say the same about the same requests.
const (
	mostPoints = 60
	fewestKeys = 20
	margin     = 0.2
)

// shares are the shares of untouched keys that are suggested: the highest that so many keys can tell.
var shares = []float64{0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8}

// suggested is for ascending peaks. nil: there are too few. A share can be told if at least three keys are above it.
func suggested(peaks []int64) *adminapi.PreviewSuggestion {
	n := float64(len(peaks))
	if n < fewestKeys {
		return nil
	}
	i := slices.IndexFunc(shares, func(s float64) bool { return (1-s)*n >= 3-1e-9 })
	at := int(math.Ceil(shares[i]*n-1e-9)) - 1
	return &adminapi.PreviewSuggestion{Amount: roundUp(float64(peaks[at]) * (1 + margin)), Share: shares[i]}
}

// roundUp rounds to two significant digits, never down.
func roundUp(n float64) int64 {
	unit := int64(1)
	for n/float64(unit) > 99.000001 {
		unit *= 10
	}
	return int64(math.Ceil(n/float64(unit)-1e-6)) * unit
}

// curveOf says for ascending amounts how many of the ascending peaks are not higher. The amounts are the marks, and
// all peaks that differ or, if those are too many, the highest and others at even distances in the logarithm of the
// keys above them, because what matters happens at the last thousandth.
func curveOf(peaks, marks []int64) [][2]int64 {
	amounts := slices.Compact(slices.Clone(peaks))
	if most := mostPoints - len(marks); len(amounts) > most {
		amounts = amounts[:0]
		n := float64(len(peaks))
		for i := range most {
			above := int(math.Pow(n+1, 1-float64(i)/float64(most-1))) - 1
			amounts = append(amounts, peaks[max(0, len(peaks)-1-above)])
		}
	}
	amounts = append(amounts, marks...)
	slices.Sort(amounts)
	curve := [][2]int64{}
	for _, a := range slices.Compact(amounts) {
		keys, _ := slices.BinarySearch(peaks, a+1)
		curve = append(curve, [2]int64{a, int64(keys)})
	}
	return curve
}
