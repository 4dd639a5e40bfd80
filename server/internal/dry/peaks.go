package dry

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

const (
	// maxPeakLimits is how many limits a preview shows the peaks of, and maxTop how many keys of each.
	maxPeakLimits, maxTop = 50, 10
	// peakBytes is the memory for peaks. The bound of an instance's memory has it among the keys of a preview,
	// which take half of what it assumes.
	peakBytes = 2 << 20
	// useBytes is the memory of a use that may be in a window, with the room that a slice leaves, and usageBytes
	// that of a key besides its text.
	useBytes, usageBytes = 16, 130
	// mostUnits bounds the cost of a request, so that sums do not overflow, and mostPeak what is shown: no
	// amount is as high.
	mostUnits, mostPeak = 1 << 40, 1 << 52
)

// peaks measures what the keys of each limit use at most. It is exact: it remembers each use as long as a window
// may contain it. If room is used up, it forgets the limit that takes most.
type peaks struct {
	limits      map[*stint.Limit]*limitPeaks // nil: a limit that is not shown
	shown, more int64                        // limits up to maxPeakLimits, and above
	room        int64                        // in bytes
	secret      func(*rules.Rule) bool       // whether its keys must not be shown; nil: none
}

func newPeaks(bytes int64) *peaks {
	return &peaks{limits: map[*stint.Limit]*limitPeaks{}, room: bytes}
}

// limitPeaks are those of a limit. keys is nil if they are not measured.
type limitPeaks struct {
	adminapi.PreviewPeaks
	tier   int           // in the rule's; -1: none
	window time.Duration // in which a peak is measured
	keys   map[string]*usage
	bytes  int64 // that keys take
}

// observe counts what a request asks, at an instant in µs since PreviewWindow before the preview.
func (p *peaks) observe(plan *rules.Plan, at int64) {
	for i := range plan.Asks {
		ask := &plan.Asks[i]
		if ask.Limit == nil {
			continue
		}
		of, known := p.limits[ask.Limit]
		if !known {
			of = p.open(plan.Rules[i], ask.Limit)
			p.limits[ask.Limit] = of
		}
		if units := ask.Units(); units > 0 && of != nil && of.keys != nil {
			bytes := of.add(ask.Key, at, min(units, mostUnits))
			of.bytes += bytes
			if p.room -= bytes; p.room < 0 {
				p.forget()
			}
		}
	}
}

// forget stops to measure the limit that takes most memory.
func (p *peaks) forget() {
	most := &limitPeaks{}
	for _, of := range p.limits {
		if of != nil && of.bytes > most.bytes {
			most = of
		}
	}
	p.room += most.bytes
	most.bytes, most.keys = 0, nil
	most.Unmeasured, most.Amount, most.Period = "memory", 0, 0
}

// open returns an empty limitPeaks of a rule's limit. nil: it is an override's, whose amount is not in the rules,
// or there are too many limits.
func (p *peaks) open(rule *rules.Rule, l *stint.Limit) *limitPeaks {
	tier, i := -1, slices.Index(rule.Limits, l)
	for t := range rule.Tiers {
		if i < 0 {
			tier, i = t, slices.Index(rule.Tiers[t].Limits, l)
		}
	}
	if i < 0 {
		return nil
	}
	if p.shown == maxPeakLimits {
		p.more++
		return nil
	}
	p.shown++
	s := l.Spec()
	of := &limitPeaks{tier: tier, window: s.Period}
	of.PreviewPeaks = adminapi.PreviewPeaks{
		Rule: rule.Name, Index: i, Limit: l.Terms(), Unmeasured: unmeasured(rule, l), Curve: [][2]int64{}, Top: []adminapi.PreviewPeak{},
		Numbered: p.secret != nil && p.secret(rule),
	}
	if tier >= 0 {
		of.Tier = rule.Tiers[tier].Name
	}
	if of.Unmeasured != "" {
		return of
	}
	of.Amount, of.Period, of.keys = s.Amount, s.Period.Microseconds(), map[string]*usage{}
	if s.Algorithm == stint.SlidingWindow {
		of.window += s.Period / time.Duration(cmp.Or(s.Buckets, algo.DefaultBuckets))
	}
	return of
}

// unmeasured says why a peak in the period says nothing about the amount of l, as adminapi.PreviewPeaks has it.
func unmeasured(rule *rules.Rule, l *stint.Limit) string {
	s := l.Spec()
	switch {
	case l.IsUnlimited():
		return "unlimited"
	case l.IsHeld() || s.Algorithm == stint.InFlight:
		return "held"
	case s.Calendar.Unit != 0:
		return "calendar"
	case s.Burst != 0 || s.Lease != 0 && s.Algorithm == stint.TokenBucket: // also one that would matter for other amounts
		return "capacity"
	case rule.Shape && s.Algorithm == stint.LeakyBucket:
		return "shape"
	}
	return ""
}

// add counts a use of a key at an instant in µs, and returns by how many bytes more are remembered. One that is
// earlier than the key's last leaves windows with that, as if it came then: that is how the algorithms count.
func (of *limitPeaks) add(key string, at, units int64) (bytes int64) {
	u := of.keys[key]
	if u == nil {
		u = &usage{}
		of.keys[strings.Clone(key)] = u // it may be part of a long header
		bytes = usageBytes + int64(len(key))
	}
	before := len(u.uses)
	if of.window <= PreviewWindow { // else each use stays in it
		u.leave(at - of.window.Microseconds())
		u.remember(at, units)
	}
	u.units += units
	u.peak = max(u.peak, min(u.units, mostPeak))
	return bytes + int64(len(u.uses)-before)*useBytes
}

// usage is what a key uses.
type usage struct {
	uses  []use // that may still be in a window, the oldest first
	gone  int   // how many of uses are not
	units int64 // of the others
	peak  int64
}

// use is at an instant in µs, as for peaks.observe.
type use struct{ at, units uint32 }

// leave drops the uses up to an instant: a window does not contain its beginning, as those of the algorithms.
func (u *usage) leave(until int64) {
	for u.gone < len(u.uses) && int64(u.uses[u.gone].at) <= until {
		u.units -= int64(u.uses[u.gone].units)
		u.gone++
	}
	if 2*u.gone >= len(u.uses) {
		u.uses = append(u.uses[:0], u.uses[u.gone:]...)
		u.gone = 0
	}
}

// remember adds a use, in parts if it has many units.
func (u *usage) remember(at, units int64) {
	for ; units > 0; units -= math.MaxUint32 {
		u.uses = append(u.uses, use{uint32(at), uint32(min(units, math.MaxUint32))})
	}
}

// result returns the peaks in the order of the rules' text.
func (p *peaks) result(set *rules.Set, span time.Duration, shown func(string) string) []adminapi.PreviewPeaks {
	all := slices.Collect(maps.Values(p.limits))
	all = slices.DeleteFunc(all, func(of *limitPeaks) bool { return of == nil })
	place := map[string]int{}
	for i, r := range set.Rules {
		place[r.Name] = i
	}
	slices.SortFunc(all, func(a, b *limitPeaks) int {
		return cmp.Or(place[a.Rule]-place[b.Rule], a.tier-b.tier, a.Index-b.Index)
	})
	result := make([]adminapi.PreviewPeaks, 0, len(all))
	for _, of := range all {
		if of.keys != nil {
			of.sum(span, shown)
		}
		result = append(result, of.PreviewPeaks)
	}
	return result
}

// sum fills in what all keys together say.
func (of *limitPeaks) sum(span time.Duration, shown func(string) string) {
	peaks := make([]int64, 0, len(of.keys))
	top := make([]adminapi.PreviewPeak, 0, maxTop+1)
	highest := func(a, b adminapi.PreviewPeak) int {
		return cmp.Or(cmp.Compare(b.Peak, a.Peak), cmp.Compare(a.Key, b.Key))
	}
	for key, u := range of.keys {
		peaks = append(peaks, u.peak)
		one := adminapi.PreviewPeak{Key: rules.Key(key), Peak: u.peak}
		at, _ := slices.BinarySearchFunc(top, one, highest)
		if at < maxTop {
			top = slices.Insert(top, at, one)
			top = top[:min(len(top), maxTop)]
		}
	}
	slices.Sort(peaks)
	for i := range top {
		if of.Numbered {
			top[i].Key = rules.Key("#" + strconv.Itoa(i+1))
		} else {
			top[i].Key = rules.Key(shown(string(top[i].Key)))
		}
	}
	of.Keys, of.Top = int64(len(peaks)), top
	of.AtLeast = of.window > span
	marks := []int64{of.Amount}
	if of.Suggested = suggested(peaks); of.AtLeast {
		of.Suggested = nil
	} else if of.Suggested != nil {
		marks = append(marks, of.Suggested.Amount)
	}
	of.Curve = curveOf(peaks, marks)
}
