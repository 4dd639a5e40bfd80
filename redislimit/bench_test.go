package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// Each row decides over the same server and engine as the first, which is a bare
// command: 64 callers, one hot key or a million; and a lone caller, beside bare calls
// of a script that does nothing and of one that reads a key and writes it, with its
// expiry, as any limiter's must. redis-ns/op is what the server's process spent, user
// and system.
func BenchmarkRedis(b *testing.B) {
	const million = 1_000_000
	server := redistest.Start(b)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	limiter := stint.NewLimiter(open(b, server.URL()))
	ctx := context.Background()
	cpu := func() (seconds float64) {
		text, err := client.Do(ctx, client.B().Info().Section("cpu").Build()).ToString()
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
	names := make([]string, million)
	for i := range names {
		names[i] = fmt.Sprint("user:", i)
	}
	fall := &fleet.Fallback{Store: open(b, server.URL()), Deadline: 10 * time.Second}
	defer fall.Close()
	behind := stint.NewLimiter(fall)
	row := func(name string, do func(key string) error) {
		for _, load := range []struct {
			name    string
			keys    int
			callers int
		}{{"hot", 1, 64}, {"1M", million, 64}, {"lone", million, 1}} {
			b.Run(load.name+"/"+name, func(b *testing.B) {
				server.Do(b, "FLUSHALL")
				b.ReportAllocs()
				before := cpu()
				b.ResetTimer()
				if load.callers == 1 {
					for b.Loop() {
						if err := do(names[rand.IntN(load.keys)]); err != nil {
							b.Error(err)
						}
					}
				} else {
					b.SetParallelism(32) // times GOMAXPROCS, which is 2
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							if err := do(names[rand.IntN(load.keys)]); err != nil {
								b.Error(err)
							}
						}
					})
				}
				b.StopTimer()
				b.ReportMetric((cpu()-before)*1e9/float64(b.N), "redis-ns/op")
			})
		}
	}
	row("bare_INCR", func(key string) error { return client.Do(ctx, client.B().Incr().Key(key).Build()).Error() })
	row("bare_SET_PX", func(key string) error {
		return client.Do(ctx, client.B().Set().Key(key).Value("0123456789ab").PxMilliseconds(3_600_000).Build()).Error()
	})
	load := func(script string) string {
		sha, err := client.Do(ctx, client.B().ScriptLoad().Script(script).Build()).ToString()
		if err != nil {
			b.Fatal(err)
		}
		return sha
	}
	empty := load("return 1")
	least := load(`local t = redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], '0123456789ab', 'PXAT', t[1] * 1000 + 3600000)
return 'a string'`)
	row("bare_EVALSHA", func(key string) error {
		return client.Do(ctx, client.B().Evalsha().Sha1(empty).Numkeys(1).Key(key).Arg("").Build()).Error()
	})
	row("bare_EVALSHA_GET_SET", func(key string) error {
		return client.Do(ctx, client.B().Evalsha().Sha1(least).Numkeys(1).Key(key).Arg("").Build()).Error()
	})
	for _, text := range []string{"1000000 per 1h", "1000000 per 1h leaky_bucket", "1000000 per 1h fixed_window", "1000000 per 1h sliding_log", "1000000 per 1h sliding_window"} {
		limit := stint.MustLimit(text)
		row(limit.Spec().Algorithm.String(), func(key string) error {
			_, err := limiter.Allow(ctx, key, limit)
			return err
		})
	}
	limit := stint.MustLimit("1000000 per 1h")
	row("behind_Fallback", func(key string) error {
		_, err := behind.Allow(ctx, key, limit)
		return err
	})
	denied := stint.MustLimit("1 per 24h")
	row("denied", func(key string) error {
		_, err := limiter.Allow(ctx, key, denied)
		return err
	})
}

// A Cluster, where a call holds one slot: a million keys have nearly all of them.
func BenchmarkCluster(b *testing.B) {
	var hosts []string
	for _, s := range redistest.StartCluster(b, 3) {
		hosts = append(hosts, s.Addr)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: hosts, DisableCache: true, DisableRetry: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	limiter := stint.NewLimiter(open(b, "redis+cluster://"+strings.Join(hosts, ",")))
	limit := stint.MustLimit("1000000 per 1h")
	ctx := context.Background()
	for _, c := range []struct {
		name string
		do   func(key string) error
	}{
		{"bare_INCR", func(key string) error { return client.Do(ctx, client.B().Incr().Key(key).Build()).Error() }},
		{"token_bucket", func(key string) error { _, err := limiter.Allow(ctx, key, limit); return err }},
	} {
		for _, keys := range []int{1, 1_000_000} {
			b.Run(fmt.Sprint(keys, "/", c.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := c.do(fmt.Sprint("user:", rand.IntN(keys))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// How many connections decide fastest, for 64 callers of a million keys. examples/goredis has the
// same with a pool.
func BenchmarkConnections(b *testing.B) {
	server := redistest.Start(b)
	limit := stint.MustLimit("1000000 per 1h")
	row := func(name string, s *redislimit.Store) {
		limiter := stint.NewLimiter(s)
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := limiter.Allow(context.Background(), fmt.Sprint("user:", rand.IntN(1_000_000)), limit); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	for _, n := range []string{"1", "2", "4", "16", "64"} {
		row(n, open(b, server.URL()+"?connections="+n))
	}
}

// What it costs to know, in a Cluster, on which server a key lies, and beside it a decision
// of a lone caller there.
func BenchmarkPart(b *testing.B) {
	s := open(b, redistest.StartReplicated(b, 3, 0).URL())
	b.Run("part", func(b *testing.B) {
		for s.Partition(nil, "192.0.2.1") == "" {
			time.Sleep(time.Millisecond)
		}
		b.ReportAllocs()
		for b.Loop() {
			s.Partition(nil, "192.0.2.1")
		}
	})
	b.Run("decision", func(b *testing.B) {
		f := &fleet.Fallback{Store: s, Deadline: time.Second}
		defer f.Close()
		l, limit := stint.NewLimiter(f), stint.MustLimit("1000000 per 1s")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Allow(b.Context(), "192.0.2.1", limit); err != nil {
				b.Fatal(err)
			}
		}
	})
}
