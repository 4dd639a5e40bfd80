package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const (
	incrRueidis = "INCR, rueidis"
	incrGoRedis = "INCR, go-redis"
	leastScript = "script of one read and one write, rueidis"
)

// redisFloors are the least work of a limiter in Redis: one command or script in one round trip. An exact
// limiter needs a read and a write.
var redisFloors = []subject{
	{name: incrRueidis, kind: floor, open: openIncrRueidis},
	{name: incrGoRedis, kind: floor, open: openIncrGoRedis},
	{name: "empty script, rueidis", kind: floor, open: openEmptyScript},
	{name: leastScript, kind: floor, open: openLeastScript},
	{name: "SET … PX, rueidis", kind: floor, open: openSet},
}

func newRueidis(p place) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{p.redis},
		SelectDB:          p.db,
		ForceSingleClient: true,
		DisableCache:      true,
		DisableRetry:      true,
	})
}

// newGoRedis has the defaults, as in the documentation of peers.
func newGoRedis(p place) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: p.redis, DB: p.db})
}

func openIncrRueidis(p place, _ spec) (*limiter, error) {
	return overRueidis(p, "incr:", "1", func(ctx context.Context, c rueidis.Client, key string) error {
		return c.Do(ctx, c.B().Incr().Key(key).Build()).Error()
	})
}

func openEmptyScript(p place, _ spec) (*limiter, error) {
	return overScript(p, "script:", "", "return 1")
}

// openLeastScript reads the clock and the value, and writes as much, with its expiry.
func openLeastScript(p place, _ spec) (*limiter, error) {
	return overScript(p, "least:", "0123456789ab", `
redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], '0123456789ab', 'PX', 3600000)
return 1
`)
}

func overScript(p place, prefix, value, text string) (*limiter, error) {
	script := rueidis.NewLuaScript(text)
	return overRueidis(p, prefix, value, func(ctx context.Context, c rueidis.Client, key string) error {
		return script.Exec(ctx, c, []string{key}, nil).Error()
	})
}

func openSet(p place, _ spec) (*limiter, error) {
	return overRueidis(p, "set:", "1", func(ctx context.Context, c rueidis.Client, key string) error {
		return c.Do(ctx, c.B().Set().Key(key).Value("1").Px(time.Hour).Build()).Error()
	})
}

// overRueidis is a floor; value is the initial value of its keys; empty: none.
func overRueidis(p place, prefix, value string, do func(context.Context, rueidis.Client, string) error) (*limiter, error) {
	c, err := newRueidis(p)
	if err != nil {
		return nil, err
	}
	return &limiter{
		take: func(ctx context.Context, key string) (bool, error) {
			err := do(ctx, c, prefix+key)
			return err == nil, err
		},
		fill: func(ctx context.Context, keys []string) error {
			if value == "" {
				return nil
			}
			return setAll(ctx, p, keys, prefix, value)
		},
		close: c.Close,
	}, nil
}

func openIncrGoRedis(p place, _ spec) (*limiter, error) {
	c := newGoRedis(p)
	return &limiter{
		take: func(ctx context.Context, key string) (bool, error) {
			err := c.Incr(ctx, "goincr:"+key).Err()
			return err == nil, err
		},
		fill:  func(ctx context.Context, keys []string) error { return setAll(ctx, p, keys, "goincr:", "1") },
		close: func() { _ = c.Close() },
	}, nil
}

func setAll(ctx context.Context, p place, keys []string, prefix, value string) error {
	return pipelined(ctx, p, keys, func(c rueidis.Client, key string) []rueidis.Completed {
		return []rueidis.Completed{c.B().Set().Key(prefix + key).Value(value).Px(24 * time.Hour).Build()}
	})
}

func pipelined(ctx context.Context, p place, keys []string, commands func(rueidis.Client, string) []rueidis.Completed) error {
	c, err := newRueidis(p)
	if err != nil {
		return err
	}
	defer c.Close()
	for len(keys) > 0 {
		n := min(1000, len(keys))
		var all []rueidis.Completed
		for _, k := range keys[:n] {
			all = append(all, commands(c, k)...)
		}
		for _, r := range c.DoMulti(ctx, all...) {
			if err := r.Error(); err != nil {
				return err
			}
		}
		keys = keys[n:]
	}
	return nil
}
