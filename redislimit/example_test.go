package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/redislimit"
)

// How do I share limits in Redis, and get an answer in time even while Redis is down?
func ExampleOpen() {
	example := func(ctx context.Context) error {
		store, err := redislimit.Open(ctx, "redis://localhost:6379") // err: the address is wrong; Redis may be down
		if err != nil {
			return err
		}
		defer store.Close()
		limiter := stint.NewLimiter(store) // decides within 25 ms, whatever Redis does
		perMinute := stint.MustLimit("api: 100 per 1m")

		d, err := limiter.Allow(ctx, "user:42", perMinute)
		if err == nil && !d.Allowed {
			// come back in d.RetryAfter
		}
		fmt.Println(d.Allowed, d.By)
		return err
	}
	fmt.Println(example(context.Background()))
}

// How do I choose how long to wait for Redis, and how many refusals each instance
// remembers? Make a fleet.Store around the Store that Connect returns.
func ExampleConnect() {
	ctx := context.Background()
	shared, err := redislimit.Connect(ctx, "redis://localhost:6379", redislimit.Options{Namespace: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := fleet.New(shared, fleet.Options{Deadline: 50 * time.Millisecond, MaxDenials: 10_000, OnClose: shared.Close})
	defer store.Close()
	limiter := stint.NewLimiter(store)
	d, err := limiter.Allow(ctx, "user:42", stint.MustLimit("api: 100 per 1m"))
	fmt.Println(d.Allowed, d.By, err)
}

// goRedis is a redislimit.Client over go-redis.
type goRedis struct{ redis.UniversalClient }

func (c goRedis) Do(ctx context.Context, args ...string) (any, error) {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	reply, err := c.UniversalClient.Do(ctx, all...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// How do I use my own Redis client, such as go-redis? Turn off its retries, which could
// charge twice, and make it obey contexts.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	store, err := redislimit.New(ctx, goRedis{client}, redislimit.Options{Namespace: "shop"})
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
