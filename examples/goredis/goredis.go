// Package goredis lets a redislimit.Store use a program's own go-redis client: copy Client.
package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Client is a redislimit.Client over go-redis. Turn off the retries of go-redis, which could charge
// twice, and make it obey contexts: redis.Options{MaxRetries: -1, ContextTimeoutEnabled: true}.
type Client struct{ redis.UniversalClient }

// Do implements redislimit.Client.
func (c Client) Do(ctx context.Context, args ...string) (any, error) {
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
