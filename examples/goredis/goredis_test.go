package goredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/examples/goredis"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/redislimit"
)

func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	store, err := redislimit.New(ctx, goredis.Client{UniversalClient: client}, redislimit.Options{Namespace: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	safe := fleet.New(store, fleet.Options{})
	defer safe.Close()
	limiter := stint.NewLimiter(safe)
	d, err := limiter.Allow(ctx, "user:42", stint.MustLimit("api: 100 per 1m"))
	fmt.Println(d.Allowed, err)
}

func over(t testing.TB, server *redistest.Server, namespace string) stint.Store {
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 64, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redislimit.New(context.Background(), goredis.Client{UniversalClient: client}, redislimit.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What differs from the Client of redislimit is how it sends and reads.
func TestKit(t *testing.T) {
	server := redistest.Start(t)
	if testing.Short() {
		limittest.Twins(t, new(stint.Memory), over(t, server, ""), 1_000, 1)
		return
	}
	namespaces := 0
	limittest.Kit{
		New: func(t *testing.T) stint.Store {
			namespaces++
			return over(t, server, fmt.Sprint("n", namespaces))
		},
		Steps: 20_000,
	}.Run(t)
}

// A pool of connections, beside one connection for all: BenchmarkConnections of redislimit.
func BenchmarkPool(b *testing.B) {
	limiter, limit := stint.NewLimiter(over(b, redistest.Start(b), "")), stint.MustLimit("1000000 per 1h")
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := limiter.Allow(context.Background(), fmt.Sprint("user:", rand.IntN(1_000_000)), limit); err != nil {
				b.Error(err)
			}
		}
	})
}
