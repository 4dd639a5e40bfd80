package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// reserve holds under a limit and settles, as a request does that knows its cost when it ends.
func reserve(ctx context.Context, s *redislimit.Store, key string, limit *stint.Limit, cost int64) error {
	id := stint.NewHoldID()
	r := stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}, Hold: id}
	if d, err := s.Take(ctx, &r, nil); err != nil || !d.Allowed {
		return fmt.Errorf("%+v, %w", d, err)
	}
	calls := []stint.HoldCall{{Key: key, Limit: limit, Hold: id, Units: 1, Cost: cost}}
	if s.Holds(ctx, time.Time{}, calls); calls[0].Err != nil || !calls[0].Found {
		return fmt.Errorf("%+v", calls[0])
	}
	return nil
}

// redisTime starts to measure what the server's process spends, user and system, and how many operations
// share a call of a script.
func redisTime(b *testing.B, server *redistest.Server) (stop func()) {
	spent := func() (seconds float64) {
		text, err := server.Do(b, "INFO", "cpu").ToString()
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "used_cpu_sys" || name == "used_cpu_user" {
				n, _ := strconv.ParseFloat(value, 64)
				seconds += n
			}
		}
		return seconds
	}
	before, calls := spent(), called(b, server, "evalsha")
	return func() {
		b.ReportMetric((spent()-before)*1e9/float64(b.N), "redis-ns/op")
		b.ReportMetric(float64(b.N)/float64(max(1, called(b, server, "evalsha")-calls)), "ops/call")
	}
}

// What it costs to hold and settle, beside a Take: 64 callers of one key, or of a million. The rows
// take turns, since the machine's pace changes.
func BenchmarkHold(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, server.URL())
	ctx := context.Background()
	take, budget, flight := stint.MustLimit("take: 1000000000 per 1h fixed_window"), stint.MustLimit("1000000000 per 1h fixed_window hold"), stint.MustLimit("1000 in_flight")
	for _, load := range []struct {
		name string
		keys int
	}{{"hot", 1}, {"1M", 1_000_000}} {
		row := func(name string, do func(key string) error) {
			b.Run(load.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				defer redisTime(b, server)()
				b.SetParallelism(32) // times GOMAXPROCS, which is 2
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := do(fmt.Sprint("user:", rand.IntN(load.keys))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
		row("Take", func(key string) error {
			_, err := s.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: take}}}, nil)
			return err
		})
		row("hold+settle", func(key string) error { return reserve(ctx, s, key, budget, 1) })
		row("acquire+release", func(key string) error { return reserve(ctx, s, key, flight, 0) })
	}
}

// What a decision costs beside so many holds under its key: one that holds and is settled, and one
// that asks.
func BenchmarkHolds(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, server.URL())
	ctx := context.Background()
	for _, text := range []string{"100000 per 1h fixed_window hold 1h", "100000 in_flight hold 1h"} {
		limit := stint.MustLimit(text)
		for _, n := range []int{0, 64, 127, 1000, 4000} {
			key := fmt.Sprint("k", n)
			holdSome(b, s, key, limit, n)
			name := fmt.Sprint(limit.Spec().Algorithm, "/", n)
			b.Run(name+"/ask", func(b *testing.B) {
				defer redisTime(b, server)()
				for b.Loop() {
					if _, err := s.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Peek: true}}}, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/hold+settle", func(b *testing.B) {
				defer redisTime(b, server)()
				for b.Loop() {
					if err := reserve(ctx, s, key, limit, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// What a look costs, by the time that Redis says its scripts took, beside 4,000 holds of which none runs
// out, and where one of them has run out before each look.
func BenchmarkHoldsOfTheDead(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, server.URL())
	defer redislimit.ClockOfInstants()()
	limit := stint.MustLimit("5000 in_flight hold 10s")
	const n, apart = 4000, 250 * time.Microsecond
	at := time.UnixMicro(4e15)
	for _, row := range []struct {
		name string
		dead time.Duration
	}{{"alive", 0}, {"dead", 10 * time.Second}} {
		b.Run(row.name, func(b *testing.B) {
			spent, place := 0, n
			look := func() {
				_, _ = s.Take(b.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Peek: true}}, At: at.Add(row.dead + time.Duration(place)*apart)}, nil)
				place++
			}
			for b.Loop() {
				if place == n {
					b.StopTimer()
					spent += scriptTime(b, server)
					server.Do(b, "FLUSHALL")
					for place = range n {
						r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}, Hold: stint.NewHoldID(), At: at.Add(time.Duration(place) * apart)}
						if _, err := s.Take(b.Context(), &r, nil); err != nil {
							b.Fatal(err)
						}
					}
					place = 0
					server.Do(b, "CONFIG", "RESETSTAT")
					b.StartTimer()
				}
				look()
			}
			b.ReportMetric(float64(spent+scriptTime(b, server))*1e3/float64(b.N), "redis-ns/op")
		})
	}
}

// scriptTime is how many µs the server's scripts took since its statistics were reset.
func scriptTime(b *testing.B, server *redistest.Server) (spent int) {
	b.Helper()
	text, err := server.Do(b, "INFO", "commandstats").ToString()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if after, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			_, _ = fmt.Sscanf(after[strings.Index(after, "usec="):], "usec=%d", &spent)
		}
	}
	return spent
}

// holdSome makes n holds, and returns their identities.
func holdSome(t testing.TB, s *redislimit.Store, key string, limit *stint.Limit, n int) (ids []stint.HoldID) {
	t.Helper()
	for range n {
		id := stint.NewHoldID()
		d, err := s.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}, Hold: id}, nil)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// What Redis's scripts spend on a group of holds, and on their settlement, for each hold.
func BenchmarkHoldGroups(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, server.URL())
	limit := stint.MustLimit("1000000000000 per 1h fixed_window hold 1h")
	for _, n := range []int{8, 32, 64} {
		rs, answers, calls := make([]stint.Request, n), make([]stint.Answer, n), make([]stint.HoldCall, n)
		for _, settle := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/settle=%v", n, settle), func(b *testing.B) {
				spent := 0
				for b.Loop() {
					b.StopTimer()
					for i := range rs {
						rs[i] = stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 5}}, Hold: stint.NewHoldID()}
						calls[i] = stint.HoldCall{Key: "k", Limit: limit, Hold: rs[i].Hold, Units: 5, Cost: 3}
					}
					b.StartTimer()
					before := 0
					if !settle {
						before = scriptTime(b, server)
					}
					s.TakeBatch(b.Context(), rs, answers)
					if settle {
						before = scriptTime(b, server)
					} else {
						spent += scriptTime(b, server) - before
					}
					s.Holds(b.Context(), time.Time{}, calls)
					if settle {
						spent += scriptTime(b, server) - before
					}
					if answers[0].Err != nil || calls[0].Err != nil || !calls[0].Found {
						b.Fatalf("%+v, %+v", answers[0], calls[0])
					}
				}
				b.ReportMetric(float64(spent)*1e3/float64(b.N*n), "redis-ns/hold")
			})
		}
	}
}
