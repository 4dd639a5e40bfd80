package suggest

import (
	"math"
	"math/bits"
	"slices"
)

// dayPeaks are how many keys had which peak on a day, for each window: a histogram.
type dayPeaks struct {
	keys [windows][]uint32
}

func dayIn(days map[int32]*dayPeaks, day int32) *dayPeaks {
	d := days[day]
	if d == nil {
		d = new(dayPeaks)
		days[day] = d
	}
	return d
}

// count adds the peaks of a key on its day.
func (d *dayPeaks) count(k *key) {
	for w, peak := range k.today {
		b := bucketOf(uint64(peak))
		for len(d.keys[w]) <= b {
			d.keys[w] = append(d.keys[w], 0)
		}
		d.keys[w][b]++
	}
}

func (d *dayPeaks) clone() *dayPeaks {
	c := new(dayPeaks)
	for w := range windows {
		c.keys[w] = slices.Clone(d.keys[w])
	}
	return c
}

// bucketOf numbers the buckets of a histogram: one for each number below 16, then eight for each
// power of two.
func bucketOf(n uint64) int {
	if n < 16 {
		return int(n)
	}
	e := bits.Len64(n) - 4
	return e*8 + int(n>>e)
}

// midOf is the logarithm of the middle of a bucket.
func midOf(bucket int) float64 {
	if bucket < 16 {
		return math.Log(float64(max(bucket, 1)))
	}
	e := bucket/8 - 1
	return math.Log(math.Ldexp(float64(bucket-e*8)+0.5, e))
}

const views = 3

// views are numbers that tell whether most keys, or many keys, had higher peaks on a day than on
// others: the logarithm of the peaks, in the mean and at 90% and 97% of the keys. Few keys that
// attack move none of them.
func (d *dayPeaks) views(w int) (v [views]float64, ok bool) {
	var n, below uint64
	for _, k := range d.keys[w] {
		n += uint64(k)
	}
	if n < fewestKeys {
		return v, false
	}
	for b, k := range d.keys[w] {
		for i, share := range []float64{0.9, 0.97} {
			at := uint64(math.Ceil(share * float64(n)))
			if below < at && at <= below+uint64(k) {
				v[1+i] = midOf(b)
			}
		}
		below += uint64(k)
		v[0] += float64(k) * midOf(b) / float64(n)
	}
	return v, true
}

// apartDays are the days that do not count, since 1970.
type apartDays []int32

// of reports which days do not count for a window. A window of a day that ends on the day after an
// incident may still contain it.
func (a apartDays) of(w int) func(day uint16) bool {
	return func(day uint16) bool {
		return slices.Contains(a, int32(day)) || w == windows-1 && slices.Contains(a, int32(day)-1)
	}
}

const (
	fewestDays = 4 // with which one of them can be called unusual
	mostApart  = 2 // days, as keys remember the peaks of three
)

// daysApart are the days of an incident: most keys, or many, had peaks far above those of other
// days. It is none if there are too many of them, or if they recur, because what happens every
// week is no incident.
func (s *Study) daysApart() apartDays {
	days := map[int32]*dayPeaks{}
	for day, d := range s.days {
		days[day] = d.clone()
	}
	for _, e := range s.keys {
		k := e.state()
		dayIn(days, k.day).count(&k)
	}
	apart := map[int32]bool{}
	for w := range windows {
		seen := map[int32][views]float64{}
		for day, d := range days {
			if v, ok := d.views(w); ok {
				seen[day] = v
			}
		}
		if len(seen) < fewestDays {
			continue
		}
		for i := range views {
			for _, day := range unusual(seen, i) {
				apart[day] = true
			}
		}
	}
	var a apartDays
	for day := range apart {
		a = append(a, day)
	}
	slices.Sort(a)
	if len(a) > max(1, min(mostApart, len(days)/4)) {
		return nil
	}
	return a
}

// unusual are the days on which a view is far above its usual value: by 30%, and by six times the
// usual deviation. A day like the one a week before or after is usual.
func unusual(seen map[int32][views]float64, view int) (days []int32) {
	var all []float64
	for _, v := range seen {
		all = append(all, v[view])
	}
	usual := median(all)
	for i := range all {
		all[i] = math.Abs(all[i] - usual)
	}
	least := max(math.Log(1.3), 6*1.4826*median(all))
	for day, v := range seen {
		above := v[view] - usual
		if above <= least {
			continue
		}
		recurs := false
		for _, other := range []int32{day - 7, day + 7} {
			if o, ok := seen[other]; ok && o[view]-usual > above/2 {
				recurs = true
			}
		}
		if !recurs {
			days = append(days, day)
		}
	}
	return days
}

// median sorts numbers and returns the one in their middle.
func median(n []float64) float64 {
	slices.Sort(n)
	return (n[(len(n)-1)/2] + n[len(n)/2]) / 2
}
