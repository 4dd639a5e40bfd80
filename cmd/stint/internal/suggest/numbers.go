package suggest

import (
	"math"
	"slices"
)

// quantileOf is the quantile of the peaks of all days, estimated by those of a part of the days. On
// fewer days, fewer keys come to the same peak. So its place from the top is that part of the
// place among all, and between two peaks.
func quantileOf(ascending []float64, share, part float64) float64 {
	n := float64(len(ascending))
	above := n - math.Ceil(share*n-1e-9)
	place := max(0, (above+1)*part-1)
	high := ascending[len(ascending)-1-int(place)]
	low := ascending[max(0, len(ascending)-2-int(place))]
	return math.Round(high * math.Pow(low/high, place-math.Floor(place)))
}

// ascending are the numbers of keys, sorted.
func ascending(keys []keyPeaks, number func(*keyPeaks) float64) []float64 {
	n := make([]float64, len(keys))
	for i := range keys {
		n[i] = number(&keys[i])
	}
	slices.Sort(n)
	return n
}

// Point says how many keys have at most a peak.
type Point struct {
	Peak int64
	Keys int
}

const mostPoints = 60

// curveOf draws ascending peaks: the highest point, and others at even distances in the
// logarithm of the keys above them, because what matters happens at the last thousandth.
func curveOf(peaks []float64) []Point {
	var c []Point
	n := float64(len(peaks))
	for i := range mostPoints {
		above := math.Pow(n+1, 1-float64(i)/(mostPoints-1)) - 1
		at := min(len(peaks)-1, max(0, len(peaks)-1-int(above)))
		p := Point{Peak: int64(peaks[at])}
		p.Keys, _ = slices.BinarySearch(peaks, math.Nextafter(peaks[at], math.Inf(1)))
		if len(c) == 0 || c[len(c)-1] != p {
			c = append(c, p)
		}
	}
	return c
}

// kneeOf is where ascending peaks bend: up to there, a higher limit leaves many more keys untouched,
// and beyond, few more. It is the point of the curve (logarithm of the peak, share of keys) that is
// farthest above the line between its ends.
func kneeOf(peaks []float64) int64 {
	low, high := math.Log(peaks[0]), math.Log(peaks[len(peaks)-1])
	knee, best := peaks[len(peaks)-1], 0.0
	for i, p := range peaks {
		if i+1 < len(peaks) && peaks[i+1] == p {
			continue
		}
		above := float64(i+1)/float64(len(peaks)) - (math.Log(p)-low)/(high-low)
		if above > best {
			knee, best = p, above
		}
	}
	return int64(knee)
}
