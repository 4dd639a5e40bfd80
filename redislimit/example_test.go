package redislimit_test

import (
	"context"
	"fmt"
	"time"

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
