package dry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/recent"
	"github.com/stintdev/stint/server/internal/watch"
	"github.com/stintdev/stint/server/rules"
)

// peaksOf are the peaks of a rule's limits, for requests of one key.
func peaksOf(t testing.TB, limits string, all []use) []adminapi.PreviewPeaks {
	t.Helper()
	set, err := rules.Parse("rules", []byte("rules: [{name: r, key: attrs.user, limits: ["+limits+"]}]"))
	if err != nil {
		t.Fatal(err)
	}
	p, r := newPeaks(peakBytes), set.Rules[0]
	for _, u := range all {
		plan := rules.Plan{}
		for _, l := range r.Limits {
			plan.Asks, plan.Rules = append(plan.Asks, stint.Ask{Key: "ann", Limit: l, Cost: int64(u.units)}), append(plan.Rules, r)
		}
		p.observe(&plan, int64(u.at))
	}
	return p.result(set, PreviewWindow, func(key string) string { return key })
}

const second = 1_000_000 // µs

func TestPeak(t *testing.T) {
	for what, c := range map[string]struct {
		limit string
		all   []use // with seconds
		want  string
	}{
		"one request":                                       {"9 per 10s", []use{{0, 1}}, "1"},
		"units count, not requests":                         {"9 per 10s", []use{{0, 3}, {1, 4}}, "7"},
		"all within a period":                               {"9 per 10s", []use{{0, 1}, {4, 1}, {9, 1}}, "3"},
		"a period later, the first has left":                {"9 per 10s", []use{{0, 1}, {10, 1}}, "1"},
		"the highest window, not the last":                  {"9 per 10s", []use{{0, 5}, {1, 5}, {60, 1}}, "10"},
		"windows begin anywhere, also those that do not":    {"9 per 10s fixed_window", []use{{9, 2}, {11, 2}}, "4"},
		"a sliding_window counts a sub-window more":         {"9 per 10s sliding_window", []use{{0, 1}, {10, 1}, {11, 1}}, "2"},
		"and the shorter the more of them there are":        {"9 per 10s sliding_window buckets 100", []use{{0, 1}, {10, 1}, {11, 1}}, "2"},
		"and none then":                                     {"9 per 10s sliding_window buckets 100", []use{{0, 1}, {11, 1}}, "1"},
		"what no window contains with another":              {"9 per 1s sliding_log", []use{{0, 1}, {1, 1}, {2, 1}}, "1"},
		"a period beyond what is recorded has all of it":    {"9 per 1h", []use{{0, 1}, {299, 2}}, "3, at least"},
		"an amount of 0":                                    {"0 per 1m", []use{{0, 2}}, "2"},
		"many units":                                        {"9 per 10s", []use{{0, 1<<32 - 1}, {1, 1<<32 - 1}, {12, 1}}, "8589934590"},
		"a burst of its own":                                {"9 per 10s burst 5", []use{{0, 1}}, "capacity"},
		"a burst that is the amount, as long as it is that": {"9 per 10s burst 9", []use{{0, 1}}, "capacity"},
		"a lease": {"900 per 10s lease 5%", []use{{0, 1}}, "capacity"},
		"a lease of nothing, as long as the amount is low": {"9 per 10s lease 5%", []use{{0, 1}}, "capacity"},
		"a leased window, whose capacity is the amount":    {"900 per 10s fixed_window lease 5%", []use{{0, 1}}, "1"},
		"requests at once":         {"9 in_flight", []use{{0, 1}}, "held"},
		"a budget":                 {"9 per 10s hold", []use{{0, 1}}, "held"},
		"a window of the calendar": {"9 per day", []use{{0, 1}}, "calendar"},
		"no amount":                {"unlimited", []use{{0, 1}}, "unlimited"},
		"a leaky_bucket that does not delay its requests":   {"9 per 10s leaky_bucket", []use{{0, 1}}, "1"},
		"a leaky_bucket with a place for each that it lets": {"9 per 10s leaky_bucket burst 5", []use{{0, 1}}, "capacity"},
	} {
		for i := range c.all {
			c.all[i].at *= second
		}
		p := peaksOf(t, c.limit, c.all)[0]
		got := p.Unmeasured
		if got == "" {
			got = fmt.Sprint(p.Top[0].Peak)
		}
		if p.AtLeast {
			got += ", at least"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// The peak is that of a slow, obvious count. A limit whose amount is the peak refuses no request, and a sliding_log
// with less refuses one.
func TestPeakIsWhatALimitNeeds(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	for range 400 {
		period := time.Duration(1+random.IntN(40)) * 50 * time.Millisecond
		var all []use
		for at := uint32(0); len(all) < 1+random.IntN(60); at += uint32(random.IntN(3)) * uint32(random.IntN(400_000)) {
			all = append(all, use{at, uint32(1 + random.IntN(3))})
		}
		for _, kind := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "sliding_window buckets 5"} {
			text := fmt.Sprintf("1000 per %s %s", period, kind)
			peak := peaksOf(t, text, all)[0].Top[0].Peak
			window := period
			if n := stint.MustLimit(text).Spec().Buckets; kind[:7] == "sliding" && kind != "sliding_log" {
				window += period / time.Duration(max(n, 5))
				if n == 0 {
					window = period + period/10
				}
			}
			if want := slowPeak(all, window); peak != want {
				t.Fatalf("%s: peak %d, want %d: %v", text, peak, want, all)
			}
			if n := refused(t, fmt.Sprintf("%d per %s %s", peak, period, kind), all); n > 0 {
				t.Fatalf("%s: %d of %v are refused under the peak, %d", text, n, all, peak)
			}
			if kind == "sliding_log" && peak > 1 && refused(t, fmt.Sprintf("%d per %s %s", peak-1, period, kind), all) == 0 {
				t.Fatalf("%s: none of %v is refused under less than the peak, %d", text, all, peak)
			}
		}
	}
}

// slowPeak counts each window that ends with a use.
func slowPeak(all []use, window time.Duration) (peak int64) {
	for i, last := range all {
		sum := int64(0)
		for _, u := range all[:i+1] {
			if time.Duration(last.at-u.at)*time.Microsecond < window {
				sum += int64(u.units)
			}
		}
		peak = max(peak, sum)
	}
	return peak
}

// refused is how many of the uses a limit refuses.
func refused(t *testing.T, text string, all []use) (n int) {
	limiter, limit := stint.NewLimiter(new(stint.Memory)), stint.MustLimit(text)
	for _, u := range all {
		r := stint.Request{At: time.UnixMicro(1_700_000_000_123_456 + int64(u.at)), Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: int64(u.units)}}}
		d, err := limiter.Take(context.Background(), &r, nil)
		if err != nil {
			t.Fatal(text, err)
		}
		if !d.Allowed {
			n++
		}
	}
	return n
}

// A curve says of each of its amounts how many peaks are not higher, has the marks, and ends with the highest peak.
func TestCurve(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		peaks := make([]int64, 1+random.IntN(500))
		for i := range peaks {
			peaks[i] = 1 + int64(random.ExpFloat64()*float64(1+random.IntN(300)))
		}
		slices.Sort(peaks)
		marks := []int64{int64(random.IntN(2000)), int64(random.IntN(50))}
		curve := curveOf(peaks, marks)
		var amounts []int64
		for _, p := range curve {
			amounts = append(amounts, p[0])
			keys := int64(0)
			for _, peak := range peaks {
				if peak <= p[0] {
					keys++
				}
			}
			if p[1] != keys {
				t.Fatalf("%v: %d keys have at most %d, want %d", curve, p[1], p[0], keys)
			}
		}
		ascending := slices.IsSorted(amounts) && len(slices.Compact(slices.Clone(amounts))) == len(amounts)
		if len(curve) > mostPoints || !ascending || !slices.Contains(amounts, peaks[len(peaks)-1]) || !slices.Contains(amounts, marks[0]) || !slices.Contains(amounts, marks[1]) {
			t.Fatalf("%v of %v with %v", curve, peaks, marks)
		}
		if different := slices.Compact(slices.Clone(peaks)); len(different) <= mostPoints-2 {
			for _, peak := range different {
				if !slices.Contains(amounts, peak) {
					t.Fatalf("%v lacks %d", curve, peak)
				}
			}
		}
	}
}

func TestSuggestedAmount(t *testing.T) {
	for _, c := range []struct {
		keys   int
		amount int64
		share  float64
	}{{19, 0, 0}, {20, 20, 0.8}, {30, 33, 0.9}, {100, 120, 0.95}, {300, 360, 0.99}, {3000, 3600, 0.999}, {100_000, 120_000, 0.999}} {
		var peaks []int64
		for i := range c.keys {
			peaks = append(peaks, int64(i+1))
		}
		s := suggested(peaks)
		if s == nil {
			s = &adminapi.PreviewSuggestion{}
		}
		if s.Amount != c.amount || s.Share != c.share {
			t.Errorf("%d keys with peaks from 1: %+v, want %d and %g", c.keys, *s, c.amount, c.share)
		}
	}
}

// The heap has no more than is counted, and what takes most is forgotten when the room is used up.
func TestPeaksAreBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	of := &limitPeaks{window: time.Minute, keys: map[string]*usage{}}
	var counted int64
	for i := range 10_000 {
		for j := range i % 9 {
			header := fmt.Sprintf("192.0.2.%d%2000d", i, 0)
			counted += of.add(header[:strings.IndexByte(header, ' ')], int64(j), 1)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > counted {
		t.Errorf("%d bytes in %d uses take %d", counted, len(of.keys), took)
	}
	runtime.KeepAlive(of)

	set, err := rules.Parse("rules", []byte("rules: [{name: few, limits: [5 per 1s]}, {name: many, limits: [5 per 1m]}]"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPeaks(100_000)
	for at := range 10_000 {
		plan := rules.Plan{}
		for _, r := range set.Rules {
			plan.Asks, plan.Rules = append(plan.Asks, stint.Ask{Key: "k", Limit: r.Limits[0]}), append(plan.Rules, r)
		}
		p.observe(&plan, int64(at)*1000)
	}
	all := p.result(set, PreviewWindow, func(key string) string { return key })
	if len(all) != 2 || all[0].Unmeasured != "" || all[0].Top[0].Peak != 1000 || all[1].Unmeasured != "memory" || len(all[1].Curve) != 0 {
		t.Errorf("%+v", all)
	}
}

// asked are the peaks of one request, of which nothing is known, and what it asks of the rules of a text.
func asked(t *testing.T, text string) (p *peaks, set *rules.Set, plan rules.Plan) {
	t.Helper()
	set, err := rules.Parse("rules", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p = newPeaks(peakBytes)
	if err := set.Asks(&rules.Input{Cost: 1}, &plan); err != nil {
		t.Fatal(err)
	}
	p.observe(&plan, 0)
	return p, set, plan
}

// Of many limits, those that requests asked first are shown.
func TestPeaksOfManyLimits(t *testing.T) {
	text := "rules:\n"
	for i := range 60 {
		text += fmt.Sprintf("  - {name: r%d, key: '\"all\"', limits: [9 per 1m]}\n", i)
	}
	p, set, plan := asked(t, text)
	p.observe(&plan, second)
	all := p.result(set, PreviewWindow, func(key string) string { return key })
	if len(all) != maxPeakLimits || p.more != 10 || all[49].Rule != "r49" || all[49].Top[0].Peak != 2 {
		t.Errorf("%d limits and %d more, the last %+v", len(all), p.more, all[len(all)-1])
	}
}

func BenchmarkPeaks(b *testing.B) {
	l := stint.MustLimit("100 per 1m")
	r := &rules.Rule{Name: "r", Limits: []*stint.Limit{l}}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("192.0.2.", i)
	}
	p, plan := newPeaks(peakBytes), rules.Plan{Asks: []stint.Ask{{Limit: l}}, Rules: []*rules.Rule{r}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		plan.Asks[0].Key = keys[i%len(keys)]
		p.observe(&plan, int64(i)*3000)
	}
}

// Requests are only about in order. One that is older than that of another key is still in a window with the older
// ones of its own.
func TestPeakOfRequestsOutOfOrder(t *testing.T) {
	set, err := rules.Parse("rules", []byte("rules: [{name: r, key: attrs.user, limits: [1 per 10s sliding_log]}]"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Previewer{Door: &door.Door{Settings: &config.Settings{}, Watch: &watch.Watch{Privacy: &watch.Privacy{}}}}
	epoch := time.Unix(1_700_000_000, 999)
	p := previewed{now: newTally(set), then: newTally(set), peaks: newPeaks(peakBytes), alike: map[caseKind]int{}, origin: epoch.UnixMicro()}
	for _, came := range []struct {
		user  string
		after time.Duration
	}{{"ann", time.Second}, {"bob", 11 * time.Second}, {"ann", 10 * time.Second}} {
		q := &recent.Request{At: came.after, Input: &rules.Input{Cost: 1, Attrs: map[string]any{"user": came.user}}}
		if !p.try(t.Context(), s, q, epoch.Add(came.after)) {
			t.Fatal("it cannot be decided")
		}
	}
	top := p.peaks.result(set, PreviewWindow, func(key string) string { return key })[0].Top
	if p.then.counts.Refused != 1 || top[0] != (adminapi.PreviewPeak{Key: "ann", Peak: 2}) {
		t.Errorf("%d refused, and the peaks are %v", p.then.counts.Refused, top)
	}
}
