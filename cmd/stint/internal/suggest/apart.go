package suggest

import (
	"cmp"
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
	wideGap   = 4.0   // with which half of leastSure is enough, as for one crawler
	leastSure = 8.0   // gap by the usual distance of neighbours, which has the mean 1
	leastFar  = 25.0  // from the mean of the others to the group's lowest peak
)

// aside is a key that is set apart.
type aside struct {
	*key
	window int     // in which it is farthest from the others
	peak   float64 // there
	times  float64 // the mean of the others
}

// setApart divides keys into those whose peaks count and those set apart.
func setApart(keys []*key, during hours) (rest []*key, apart []aside) {
	var cuts, means [windows]float64
	for w := range windows {
		cuts[w], means[w] = cutOf(keys, w, during)
	}
	for _, k := range keys {
		a := aside{key: k, window: -1}
		for w, peak := range k.peaks(during) {
			times := float64(peak) / means[w]
			if float64(peak) >= cuts[w] && times > a.times {
				a.window, a.peak, a.times = w, float64(peak), times
			}
		}
		if a.window < 0 {
			rest = append(rest, k)
		} else {
			apart = append(apart, a)
		}
	}
	slices.SortFunc(apart, func(a, b aside) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.name, b.name))
	})
	return rest, apart
}

// cutOf is the lowest peak of the keys to be set apart because of a window, and the mean of the
// others. Without such keys the cut is infinite.
func cutOf(keys []*key, w int, during hours) (cut, mean float64) {
	var peaks []float64
	sum := 0.0
	for _, k := range keys {
		if p := float64(k.highest(w, during)); p > 0 {
			peaks = append(peaks, p)
			sum += p
		}
	}
	slices.Sort(peaks)
	slices.Reverse(peaks)
	cut, mean = math.Inf(1), sum/float64(len(peaks))
	most := max(1, int(mostGroup*float64(len(peaks))))
	for n := 1; n <= most && n < len(peaks)-1; n++ {
		low, next := peaks[n-1], peaks[n]
		sum -= low
		others := sum / float64(len(peaks)-n)
		sure := float64(n) * math.Log(low/next) / spread(peaks[n:])
		if low >= leastGap*next && low >= leastFar*others && sure >= leastSure ||
			low >= wideGap*next && low >= 2*leastFar*others && sure >= leastSure/2 {
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
