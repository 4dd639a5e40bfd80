package dry

import (
	"math"
	"slices"

	"github.com/stintdev/stint/internal/untouched"
	"github.com/stintdev/stint/server/adminapi"
)

// mostPoints is how many points a curve has at most.
const mostPoints = 60

// suggested is for ascending peaks. nil: there are too few.
func suggested(peaks []int64) *adminapi.PreviewSuggestion {
	if len(peaks) < untouched.FewestKeys {
		return nil
	}
	share := untouched.Share(untouched.Wished, len(peaks))
	needed := float64(untouched.Quantile(peaks, share))
	return &adminapi.PreviewSuggestion{Amount: untouched.RoundUp(needed * (1 + untouched.Margin)), Share: share}
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
