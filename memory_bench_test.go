package stint

import (
	"fmt"
	"testing"
)

// BenchmarkHot lets one caller for each processor (-cpu 1,2) ask for the same key,
// under as many limits as the name says. The ratios to "bucket" are what counts.
func BenchmarkHot(b *testing.B) {
	plenty := func(n int, algorithm string) []*Limit {
		var all []*Limit
		for i := range n {
			all = append(all, MustLimit(fmt.Sprintf("%d: 1000000000 per 1h %s", i, algorithm)))
		}
		return all
	}
	for _, c := range []struct {
		name   string
		limits []*Limit
	}{
		{"bucket", plenty(1, "")},
		{"buckets 3", plenty(3, "")},
		{"buckets 8", plenty(8, "")},
		{"window", plenty(1, "sliding_window")},
		{"window of 60", []*Limit{MustLimit("1000000000 per 1h sliding_window buckets 60")}},
		{"log of 100 per 10ms", []*Limit{MustLimit("100 per 10ms sliding_log")}},
		{"log of 1000 per 1h", []*Limit{MustLimit("1000 per 1h sliding_log")}},
		{"log of 1000000 per 100ms", []*Limit{MustLimit("1000000 per 100ms sliding_log")}},
		{"bucket and log", append(plenty(1, ""), MustLimit("1000000 per 100ms sliding_log"))},
		{"bucket denied", []*Limit{MustLimit("1 per 1h")}},
		{"buckets 3 denied", append(plenty(2, ""), MustLimit("1 per 1h"))},
		{"window denied", []*Limit{MustLimit("1 per 1h sliding_window")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var l Limiter
			b.ReportAllocs()
			b.RunParallel(func(next *testing.PB) {
				ctx := b.Context()
				if len(c.limits) == 1 {
					for next.Next() {
						_, _ = l.Allow(ctx, "user:42", c.limits[0])
					}
					return
				}
				r := Request{Asks: make([]Ask, len(c.limits))}
				for next.Next() {
					for i := range r.Asks {
						r.Asks[i] = Ask{Key: "user:42", Limit: c.limits[i], Cost: 1}
					}
					_, _ = l.Take(ctx, &r, nil)
				}
			})
		})
	}
}
