package suggest

import (
	"math"

	"github.com/stintdev/stint"
)

// choice is limits that leave the wished share of keys untouched, and how much they admit.
type choice struct {
	limits []Limit
	score  float64
}

// worthOne is by how much, in the mean over the windows, a second limit must lower what is
// admitted; worthBurst is the same for a burst of its own. Fewer numbers are easier to explain.
var worthOne, worthBurst = math.Log(1.25), math.Log(1.05)

// choose takes the one or two limits that admit least. What a limit admits is compared with its
// number in every window, also in those that it is not about: 1000 per 1h admits 1000 in 1s.
//
// A limit is a sliding_window, which admits its amount in any window, or a token_bucket with a
// burst of at most half the amount, where keys need no more: that holds in short windows, too.
func choose(all []Limit, amounts [windows]float64, stands int) choice {
	best := choice{score: math.Inf(1)}
	try := func(limits ...Limit) {
		score := worthOne * float64(len(limits)-1)
		for _, l := range limits {
			if l.Algorithm == stint.TokenBucket {
				score += worthBurst
			}
		}
		for w := range stands {
			least := math.Inf(1)
			for _, l := range limits {
				least = min(least, l.admits(w))
			}
			score += max(0, math.Log(least/amounts[w])) / float64(stands)
		}
		if score < best.score-1e-9 {
			best = choice{limits: limits, score: score}
		}
	}
	for i, a := range all {
		try(a)
		for _, b := range all[i+1:] {
			if a.window != b.window {
				try(a, b)
			}
		}
	}
	return best
}

// admits is the most that a limit admits in any window of a length.
func (l Limit) admits(w int) float64 {
	times := float64(periods[w]) / float64(l.Period)
	if l.Algorithm == stint.TokenBucket {
		return float64(l.Burst) + float64(l.Amount)*times
	}
	return float64(l.Amount) * math.Ceil(times)
}

// untouched reports whether a limit would never have refused a key outside an incident. It may
// say no where a replay says yes.
func (l Limit) untouched(k *keyPeaks) bool {
	if l.Algorithm == stint.TokenBucket {
		return k.burst(float64(l.Amount)/float64(l.Period)) <= float64(l.Burst)
	}
	units := k[l.window]
	if units > exact {
		units *= float32(parts) / (parts - 1) // its highest peak may be as much above
	}
	return units <= float32(l.Amount)
}

// raised is a limit that admits about 5% more.
func (l Limit) raised() Limit {
	l.Amount = roundUp(float64(l.Amount) * 1.04)
	if l.Burst > 0 {
		l.Burst = roundUp(float64(l.Burst) * 1.04)
	}
	return l
}

// burst is a bound of how many units a token bucket must hold at once so that it never refuses the
// key, if rate units come back in a nanosecond. A bucket of b refuses nothing if every span of time t
// has at most b + rate × t units. A span between two windows has at most what the longer one has. And
// it is some spans of the shorter one, which have at most its peak each, and a rest, for which a
// bound is known. Spans longer than the last window need no more if a bucket suffices for that.
func (k *keyPeaks) burst(rate float64) float64 {
	most := float64(k[0])
	for w := range windows - 1 {
		shorter := most
		comesBack := rate * float64(periods[w])
		for n := 1.0; n < float64(periods[w+1]/periods[w]); n++ {
			byLonger := float64(k[w+1]) - n*comesBack
			byShorter := shorter + n*(float64(k[w])-comesBack)
			most = max(most, min(byLonger, byShorter))
		}
	}
	if rate*float64(periods[windows-1]) < float64(k[windows-1]) {
		return math.Inf(1)
	}
	return most
}
