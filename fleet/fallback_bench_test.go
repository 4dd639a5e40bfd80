package fleet_test

import (
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// What a Fallback adds to a decision: the deadline, the breaker and the mirror.
func BenchmarkFallback(b *testing.B) {
	limit := stint.MustLimit("1000000000 per 1h")
	decide := func(b *testing.B, s stint.Store) {
		l := stint.NewLimiter(s)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := l.Allow(b.Context(), "k", limit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("without", func(b *testing.B) { decide(b, new(stint.Memory)) })
	b.Run("with", func(b *testing.B) {
		f := &fleet.Fallback{Store: new(stint.Memory)}
		defer f.Close()
		decide(b, f)
	})
	b.Run("with_deadline_keeper", func(b *testing.B) {
		f := &fleet.Fallback{Store: deadlineKeeper{new(stint.Memory)}}
		defer f.Close()
		decide(b, f)
	})
}
