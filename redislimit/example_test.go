package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
)

func ExampleOpen() {
	ctx := context.Background()
	store, err := redislimit.Open(ctx, "redis://localhost:6379")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter := stint.NewLimiter(store.WithFallback())
	d, err := limiter.Allow(ctx, "user:42", stint.MustLimit("api: 100 per 1m"))
	fmt.Println(d.Allowed, err)
}

// How do I share limits by Redis, and have an answer in time whatever that does?
func ExampleStore_WithFallback() {
	example := func(ctx context.Context) error {
		store, err := redislimit.OpenLater("redis://localhost:6379", nil) // Redis need not be there yet
		if err != nil {
			return err
		}
		defer store.Close()
		limiter := stint.NewLimiter(store.WithFallback()) // decides by itself where Redis takes more than 25 ms
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

// How do I get all that the server does, such as no question to Redis where the answer
// is known? By layers of your own around the Store.
func ExampleOpenLater() {
	store, err := redislimit.OpenLater("redis://localhost:6379", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	fallback := &stint.Fallback{Store: store, Deadline: 50 * time.Millisecond}
	defer fallback.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go fallback.Follow(ctx) // counts the instances, which share the limits then
	denials := &stint.Denials{Store: fallback}
	defer denials.Close()
	limiter := stint.NewLimiter(denials)
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

// How do I bring the Redis client that I have, such as go-redis? It must be told
// not to send again what may have been charged, and to mind contexts.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	store, err := redislimit.New(ctx, goRedis{client}, redislimit.Options{Namespace: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := stint.NewLimiter(store.WithFallback())
	d, err := limiter.Allow(ctx, "user:42", stint.MustLimit("api: 100 per 1m"))
	fmt.Println(d.Allowed, err)
}
