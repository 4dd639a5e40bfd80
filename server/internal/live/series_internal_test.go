package live

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
)

// The memory bounds count this many bytes for the series of a rule.
const bytesOfSeries = 5000

// The series of rules take the bytes that config.Footprint counts, however many rules there are,
// and a busy rule is not dropped for quiet ones.
func TestBytesOfSeries(t *testing.T) {
	var s series
	now := time.Now()
	before := heapInUse()
	for i := range 3 * config.MaxSeries {
		now = now.Add(time.Second)
		s.add(now, time.Second, &Counts{Rules: map[string]RuleCounts{fmt.Sprintf("%060d", i): {Allowed: 1}, "busy": {Allowed: 1}}})
	}
	if len(s.rules) != config.MaxSeries || s.rules["busy"] == nil {
		t.Errorf("%d rules", len(s.rules))
	}
	if each := (heapInUse() - before) / config.MaxSeries; each > bytesOfSeries {
		t.Errorf("%d bytes a rule, want at most %d", each, bytesOfSeries)
	}
	var parts int
	settings := config.Default()
	for _, p := range settings.FitMemory().Parts {
		if p.Name == "series of rules" && p.Each == bytesOfSeries && p.Most == config.MaxSeries {
			parts++
		}
	}
	if parts != 1 {
		t.Error("the memory bounds do not count the series")
	}
	runtime.KeepAlive(&s)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What is added in pieces of any length is in the steps of its time, as an obvious model says that
// spreads each piece evenly.
func TestSeriesAsModel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		var s series
		start := time.Unix(1_700_000_000+r.Int64N(1000), r.Int64N(1e9))
		now := start
		type piece struct {
			from, to time.Time
			n        int64
		}
		var all []piece
		for range 300 {
			over := time.Duration(r.Int64N(int64(3 * time.Second)))
			if r.IntN(30) == 0 {
				over = time.Duration(r.Int64N(int64(2 * time.Minute)))
			}
			p := piece{now, now.Add(over), r.Int64N(100)}
			now = p.to
			all = append(all, p)
			c := Counts{Rules: map[string]RuleCounts{"login": {Limited: p.n}}}
			c.Outcomes[Limited] = p.n
			s.add(now, over, &c)
		}
		for _, rule := range []string{"", "login"} {
			got := s.show(rule)
			rates := got.Outcomes["limited"]
			steps := min(stepOf(now)-stepOf(start), Steps-1)
			if int64(len(rates)) != steps || !got.Until.Equal(time.Unix(stepOf(now)*5, 0)) {
				t.Fatalf("%d steps until %v, want %d until %v", len(rates), got.Until, steps, now)
			}
			for i, rate := range rates {
				begin := time.Unix((stepOf(now)-steps+int64(i))*5, 0)
				want := 0.0
				for _, p := range all {
					if in := earlier(p.to, begin.Add(Step)).Sub(later(p.from, begin)); in > 0 {
						want += float64(p.n) * float64(in) / float64(p.to.Sub(p.from)) / Step.Seconds()
					} else if p.to.Equal(p.from) && stepOf(p.to) == stepOf(begin) {
						want += float64(p.n) / Step.Seconds()
					}
				}
				if math.Abs(rate-want) > 0.01 {
					t.Fatalf("%q step %d: %v, want %v", rule, i, rate, want)
				}
			}
		}
	}
}
