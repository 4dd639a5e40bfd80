package stint_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// What a Reservation costs beside a plain request, in memory.
func BenchmarkReserve(b *testing.B) {
	held := stint.MustLimit("held: 1000000000 per 1h fixed_window hold")
	plain := stint.MustLimit("plain: 1000000000 per 1h fixed_window")
	inFlight := stint.MustLimit("flying: 1000 in_flight")
	reserve := func(limit *stint.Limit) func(*testing.B, *stint.Limiter) {
		return func(b *testing.B, l *stint.Limiter) {
			r, d, err := l.Reserve(b.Context(), &stint.Request{Asks: []stint.Ask{{Key: "user:42", Limit: limit, Cost: 1}}})
			if err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
			if err := r.Settle(b.Context(), 1); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name string
		do   func(*testing.B, *stint.Limiter)
	}{
		{"take", func(b *testing.B, l *stint.Limiter) {
			if d, err := l.Allow(b.Context(), "user:42", plain); err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}},
		{"hold+settle by hand", func(b *testing.B, l *stint.Limiter) {
			r := stint.Request{Asks: []stint.Ask{{Key: "user:42", Limit: held}}, Hold: stint.NewHoldID()}
			if d, err := l.Take(b.Context(), &r, nil); err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
			l.Holds(b.Context(), []stint.HoldCall{{Key: "user:42", Limit: held, Hold: r.Hold, Units: 1, Cost: 1}})
		}},
		{"reserve+settle", reserve(held)},
		{"reserve+settle in_flight", reserve(inFlight)},
		{"acquire+release", func(b *testing.B, l *stint.Limiter) {
			release, d, err := l.Acquire(b.Context(), "user:42", inFlight)
			if err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
			release()
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := new(stint.Limiter)
			b.ReportAllocs()
			for b.Loop() {
				c.do(b, l)
			}
		})
	}
}

// The same beside 10,000 requests that run.
func BenchmarkReserveBesideMany(b *testing.B) {
	l := new(stint.Limiter)
	limit := stint.MustLimit("flying: 1000 in_flight")
	var running []*stint.Reservation
	for i := range 10_000 {
		r, d, err := l.Reserve(b.Context(), &stint.Request{Asks: []stint.Ask{{Key: string(rune('a' + i)), Limit: limit}}, HoldFor: time.Hour})
		if err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
		running = append(running, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		release, d, err := l.Acquire(b.Context(), "user:42", limit)
		if err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
		release()
	}
	for _, r := range running {
		_ = r.Cancel(b.Context())
	}
}

// The same from many goroutines at once, each with a key of its own: the keeper is shared.
func BenchmarkReserveParallel(b *testing.B) {
	limit := stint.MustLimit("flying: 1000 in_flight")
	for _, c := range []struct {
		name string
		do   func(l *stint.Limiter, key string) error
	}{
		{"by hand", func(l *stint.Limiter, key string) error {
			r := stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}, Hold: stint.NewHoldID()}
			if _, err := l.Take(b.Context(), &r, nil); err != nil {
				return err
			}
			l.Holds(b.Context(), []stint.HoldCall{{Key: key, Limit: limit, Hold: r.Hold, Units: 1}})
			return nil
		}},
		{"reserved", func(l *stint.Limiter, key string) error {
			r, _, err := l.Reserve(b.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}})
			if err != nil {
				return err
			}
			return r.Cancel(b.Context())
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := new(stint.Limiter)
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				key := strconv.FormatInt(n.Add(1), 10)
				for pb.Next() {
					if err := c.do(l, key); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
