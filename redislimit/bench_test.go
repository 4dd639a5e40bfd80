package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
)

// Each row decides over the same server and engine as the first, which is a bare
// INCR: 64 callers, one hot key or a million.
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
	row := func(name string, do func(key string) error) {
		for keys, kind := range map[int]string{1: "hot", million: "1M"} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				server.Do(b, "FLUSHALL")
				b.ReportAllocs()
				b.SetParallelism(32)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := do(fmt.Sprint("user:", rand.IntN(keys))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
	row("bare_INCR", func(key string) error { return client.Do(ctx, client.B().Incr().Key(key).Build()).Error() })
	for _, text := range []string{"1000000 per 1h", "1000000 per 1h leaky_bucket", "1000000 per 1h fixed_window", "1000000 per 1h sliding_log", "1000000 per 1h sliding_window"} {
		limit := stint.MustLimit(text)
		row(limit.Spec().Algorithm.String(), func(key string) error {
			_, err := limiter.Allow(ctx, key, limit)
			return err
		})
	}
	denied := stint.MustLimit("1 per 24h")
	row("denied", func(key string) error {
		_, err := limiter.Allow(ctx, key, denied)
		return err
	})
}
