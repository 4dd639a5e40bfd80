package suggest

import (
	"cmp"
	"maps"
	"slices"
)

// hours is a span of time, in hours since the first day of the log began; that of to is no part.
type hours struct{ from, to uint16 }

func (h hours) contains(hour uint16) bool { return h.from <= hour && hour < h.to }

const (
	fewestDays = 4    // of which one can be called unusual
	mostLed    = 0.3  // a day with more of the highest peaks is looked at
	leastFall  = 1.15 // by which the number falls without the incident
	timesMore  = 2.0  // keys were above the number on those days than there should be
	leastMore  = 6.0
)

// incidentOf finds the hours of an incident on at most two days in a row. In some window, the number
// would be far lower without those days, although other days were as many chances for high peaks,
// and many keys are above that number. So what recurs, such as the traffic of a Monday, is no
// incident once the log has two.
func incidentOf(keys []*key, share float64, days int) (found hours) {
	if days < fewestDays {
		return found
	}
	fall := leastFall
	for w := range windows - 1 {
		with := numberOf(keys, w, share, days, hours{})
		for _, run := range leaders(keys, w, with) {
			without := numberOf(keys, w, share, days, run)
			// Numbers are whole: a fall by one is none.
			if f := (with - 1) / without; f > fall {
				usual := (1 - share) * float64(len(keys)) * (1 - run.rest(days))
				if above := peaksIn(keys, w, without, run); float64(len(above)) > timesMore*usual+leastMore {
					found, fall = middle(above), f
				}
			}
		}
	}
	return found
}

// leaders are the days, and pairs of days, on which many of the peaks were that are not below the number.
func leaders(keys []*key, w int, number float64) (runs []hours) {
	led, n := map[uint16]int{}, 0
	for _, k := range keys {
		if float64(k.top[w][0]) >= number {
			led[k.topAt[w][0]/24]++
			n++
		}
	}
	for _, day := range slices.Sorted(maps.Keys(led)) {
		if float64(led[day]) >= mostLed*float64(n) {
			runs = append(runs, hours{day * 24, (day + 1) * 24})
			if float64(led[day+1]) >= mostLed*float64(n) {
				runs = append(runs, hours{day * 24, (day + 2) * 24})
			}
		}
	}
	return runs
}

// peaksIn are the hours, ascending, of the keys whose highest peak is above the number and in the run.
func peaksIn(keys []*key, w int, number float64, run hours) (at []uint16) {
	for _, k := range keys {
		if float64(k.top[w][0]) > number && run.contains(k.topAt[w][0]) {
			at = append(at, k.topAt[w][0])
		}
	}
	slices.Sort(at)
	return at
}

// middle is the span of hours that has the middle 80% of those given, and an hour more at both
// ends. Some keys have their highest peak on that day, but not because of the incident.
func middle(at []uint16) hours {
	tenth := len(at) / 10
	from, to := at[tenth], at[len(at)-1-tenth]
	return hours{max(from, 1) - 1, to + 2}
}

// numberOf is the number of a window for a share of keys, estimated without some hours.
func numberOf(keys []*key, w int, share float64, days int, without hours) float64 {
	var peaks []float64
	for _, k := range keys {
		if p := k.highest(w, without); p > 0 {
			peaks = append(peaks, float64(p))
		}
	}
	if len(peaks) == 0 {
		return 1
	}
	slices.Sort(peaks)
	return quantileOf(peaks, share, without.rest(days))
}

// met reports whether a key was active during an incident. Then it had its highest peak of a
// day there, in most cases, as its requests were many times the usual.
func (k *key) met(during hours) bool {
	const hour = windows - 2
	for i := range kept {
		if k.top[hour][i] > 0 && during.contains(k.topAt[hour][i]) {
			return true
		}
	}
	return false
}

// highest is the highest peak of a window outside an incident. If all that are kept are in it, it is the
// lowest of these, which no other day exceeded; 0 if the key came on no other day.
func (k *key) highest(w int, without hours) float32 {
	if w == windows-1 && without.to > 0 {
		if !k.met(without) {
			return k.top[w][0]
		}
		without.to += 24 // windows that end later contain some of it
	}
	for i := range kept {
		if k.top[w][i] == 0 || !without.contains(k.topAt[w][i]) {
			return k.top[w][i]
		}
	}
	return k.top[w][kept-1]
}

// rest is the part of days that is left without the hours.
func (h hours) rest(days int) float64 { return 1 - float64(h.to-h.from)/24/float64(days) }

// restOf is the part that is left for a window. Of a day's windows, only those keys lose some that
// met the incident: how many do, is that share of the busiest twentieth.
func (h hours) restOf(w int, keys []*key, days int) float64 {
	if w < windows-1 || h.to == 0 {
		return h.rest(days)
	}
	keys = slices.Clone(keys)
	slices.SortStableFunc(keys, func(a, b *key) int { return cmp.Compare(b.highest(w, h), a.highest(w, h)) })
	keys = keys[:(len(keys)+19)/20]
	met := 0
	for _, k := range keys {
		if k.met(h) {
			met++
		}
	}
	h.to += 24
	return 1 - (1-h.rest(days))*float64(met)/float64(len(keys))
}
