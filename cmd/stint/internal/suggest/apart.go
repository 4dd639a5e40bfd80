package suggest

import (
	"math"
	"slices"
)

// A group of keys is set apart if, in some window, all of these are true of the peaks in it:
// the group is small, there is a gap below it, the gap is wide for the spread of the keys
// below, and every key of the group is far above the mean of the others. The last tells those who
// attack, and crawlers, from a small group of busy customers, whose peaks may have a gap below them,
// too. It cannot tell them with certainty, so each key set apart is named.
const (
	mostGroup = 0.025 // of the keys
	leastGap  = 2.0   // from the highest peak below the group to its lowest
	leastSure = 8.0   // gap by the usual distance of neighbours, which has the mean 1
	leastFar  = 25.0  // from the mean of the others to the group's lowest peak
)

// aside is a key that is set apart.
type aside struct {
	keyPeaks
	window int     // in which it is farthest from the others
	times  float64 // its peak there by the mean of the others
}

// setApart divides keys into those whose peaks count and those set apart.
func setApart(all []keyPeaks) (people []keyPeaks, apart []aside) {
	var cuts, means [windows]float64
	for w := range windows {
		cuts[w], means[w] = cutOf(all, w)
	}
	people = all[:0]
	for _, k := range all {
		a := aside{keyPeaks: k, window: -1}
		for w, cut := range cuts {
			times := float64(k.peak[w]) / means[w]
			if float64(k.peak[w]) >= cut && times > a.times {
				a.window, a.times = w, times
			}
		}
		if a.window < 0 {
			people = append(people, k)
		} else {
			apart = append(apart, a)
		}
	}
	slices.SortFunc(apart, func(a, b aside) int { return int(b.total - a.total) })
	return people, apart
}

// cutOf is the lowest peak of the keys to be set apart because of a window, and the mean of the
// others. Without such keys the cut is infinite.
func cutOf(all []keyPeaks, w int) (cut, mean float64) {
	peaks := make([]float64, len(all))
	sum := 0.0
	for i, k := range all {
		peaks[i] = float64(k.peak[w])
		sum += peaks[i]
	}
	slices.SortFunc(peaks, func(a, b float64) int { return int(b - a) })
	cut, mean = math.Inf(1), sum/float64(len(all))
	most := max(1, int(mostGroup*float64(len(all))))
	for k := 1; k <= most; k++ {
		low, next := peaks[k-1], peaks[k]
		sum -= low
		others := sum / float64(len(all)-k)
		if low >= leastGap*next && low >= leastFar*others &&
			float64(k)*math.Log(low/next) >= leastSure*spread(peaks[k:]) {
			cut, mean = low, others
		}
	}
	return cut, mean
}

// spread is how far, in logarithms, the highest fiftieth of descending peaks is above the rest, in
// the mean (Hill's estimate). With it, the k-th gap times k has the mean 1 if the tail is a power law.
// Whole numbers are not closer to each other than 1, so it is at least that of the first two.
func spread(peaks []float64) float64 {
	n := min(max(10, len(peaks)/50), len(peaks)-1)
	sum := 0.0
	for _, p := range peaks[:n] {
		sum += math.Log(p / peaks[n])
	}
	return max(sum/float64(n), math.Log1p(1/peaks[0]), 0.02)
}
