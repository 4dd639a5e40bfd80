package suggest

import (
	"cmp"
	"math"
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/untouched"
)

// worthSecond is by how much, in the mean over the windows, a second limit must lower what is
// admitted; worthBurst is the same for a burst of its own. Fewer numbers are easier to explain.
var worthSecond, worthBurst = math.Log(1.25), math.Log(1.05)

// choose takes the one or two limits that admit least. What a limit admits is compared with its
// number in every window, also in those that it is not about: 1000 per 1h admits 1000 in 1s.
func choose(all []Limit, amounts [windows]float64, stands int) (best []Limit) {
	lowest := math.Inf(1)
	try := func(limits ...Limit) {
		score := worthSecond * float64(len(limits)-1)
		for _, l := range limits {
			if l.Burst > 0 {
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
		if score < lowest-1e-9 {
			best, lowest = limits, score
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

// candidates are the limits for a window. Each leaves the share of keys untouched.
//
// A token_bucket whose burst is its amount refuses no key whose peak is not above the amount, but
// admits up to twice the amount in a window. With a burst of at most half the amount, where keys need
// no more, it admits less, in short windows, too. A sliding_window admits least, but counts
// some of what is up to a tenth of its period older: a client that sends its batch at the same
// minute of each hour would have two of them counted. So it is a candidate only if it has room
// for what keys use in that tenth.
func candidates(people []keyPeaks, w int, window Window, share, margin float64) []Limit {
	plain := Limit{
		Amount: untouched.RoundUp(float64(window.Needed) * (1 + margin)), Period: window.Period, Algorithm: stint.TokenBucket,
		Needed: window.Needed, window: w,
	}
	all := []Limit{plain}
	rate := float64(plain.Amount) / float64(plain.Period)
	burst := untouched.Quantile(ascending(people, func(k *keyPeaks) float64 { return k.burst(rate) }), share)
	if roomy := burst * (1 + margin); roomy <= float64(plain.Amount)/2 {
		l := plain
		l.NeededBurst, l.Burst = int64(math.Ceil(burst)), untouched.RoundUp(roomy)
		all = append(all, l)
	}
	if untouched.Quantile(ascending(people, func(k *keyPeaks) float64 { return k.counted(w) }), share) <= float64(plain.Amount) {
		l := plain
		l.Algorithm = stint.SlidingWindow
		all = append(all, l)
	}
	return slices.DeleteFunc(all, func(l Limit) bool {
		_, err := l.Limit()
		return err != nil // the amount is too large
	})
}

// admits is the most that a limit admits in any window of a length.
func (l Limit) admits(w int) float64 {
	times := float64(periods[w]) / float64(l.Period)
	if l.Algorithm == stint.SlidingWindow {
		return float64(l.Amount) * math.Ceil(times)
	}
	return float64(cmp.Or(l.Burst, l.Amount)) + float64(l.Amount)*times
}

// untouched reports whether a limit would never have refused a key outside an incident. It may
// say no where a replay says yes.
func (l Limit) untouched(k *keyPeaks) bool {
	switch {
	case l.Algorithm == stint.SlidingWindow:
		return k.counted(l.window) <= float64(l.Amount)
	case l.Burst > 0:
		return k.burst(float64(l.Amount)/float64(l.Period)) <= float64(l.Burst)
	}
	return k.most(l.window) <= float64(l.Amount)
}

// most is a bound of the peak: what was measured can be that of a window shorter by one part.
func (k *keyPeaks) most(w int) float64 {
	if k[w] <= exact {
		return float64(k[w])
	}
	return float64(k[w]) * parts / (parts - 1)
}

// counted is a bound of what a sliding_window counts: a window and a tenth.
func (k *keyPeaks) counted(w int) float64 {
	tenth := k[max(0, w-1)] // of the next window, which is at least as long
	if w == windows-1 {
		tenth = min(3*tenth, k[w])
	}
	return k.most(w) + float64(tenth)
}

// raised is a limit that admits about 5% more.
func (l Limit) raised() Limit {
	l.Amount = untouched.RoundUp(float64(l.Amount) * 1.04)
	if l.Burst > 0 {
		l.Burst = untouched.RoundUp(float64(l.Burst) * 1.04)
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
