package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/redislimit"
)

// The rows of Stint. The token bucket is the default of limits.
const (
	mainRow    = "Stint token bucket"
	goRedisRow = "Stint token bucket, go-redis"
	severalRow = "Stint, three limits at once"
	manyRow    = "Stint, eight limits at once"
)

var memoryOurs = []subject{
	{name: mainRow, kind: ours, open: stintIn(memoryStore, stint.TokenBucket)},
	{name: "Stint leaky bucket", kind: ours, open: stintIn(memoryStore, stint.LeakyBucket)},
	{name: "Stint fixed window", kind: ours, open: stintIn(memoryStore, stint.FixedWindow)},
	{name: "Stint sliding window", kind: ours, open: stintIn(memoryStore, stint.SlidingWindow)},
	{name: "Stint sliding log", kind: ours, log: true, open: stintIn(memoryStore, stint.SlidingLog)},
	{name: severalRow, kind: ours, open: severalIn(memoryStore, 3)},
}

var memoryHotOurs = []subject{
	{name: "Stint sliding window of 60", kind: ours, open: stintOf(memoryStore, stint.Spec{Algorithm: stint.SlidingWindow, Buckets: 60})},
	{name: manyRow, kind: ours, open: severalIn(memoryStore, mostAsked)},
}

var redisOurs = []subject{
	{name: mainRow, kind: ours, open: stintIn(redisStore, stint.TokenBucket)},
	{name: "Stint token bucket, refusals remembered", kind: ours, open: stintIn(rememberingStore, stint.TokenBucket)},
	{name: goRedisRow, kind: ours, beside: incrGoRedis, open: stintIn(goRedisStore, stint.TokenBucket)},
	{name: "Stint sliding log", kind: ours, log: true, open: stintIn(redisStore, stint.SlidingLog)},
	{name: severalRow, kind: ours, open: severalIn(redisStore, 3)},
}

type storeOpener func(place) (stint.Store, func(), error)

func memoryStore(place) (stint.Store, func(), error) {
	return &stint.Memory{MaxKeys: 4 * million}, func() {}, nil
}

// redisStore is as documented: Open and an address.
func redisStore(p place) (stint.Store, func(), error) {
	s, err := redislimit.Connect(context.Background(), fmt.Sprintf("redis://%s/%d", p.redis, p.db), redislimit.Options{})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// rememberingStore is how the server uses its Redis, without the fallback.
func rememberingStore(p place) (stint.Store, func(), error) {
	s, end, err := redisStore(p)
	if err != nil {
		return nil, nil, err
	}
	d := &fleet.Denials{Store: s}
	return d, func() { d.Close(); end() }, nil
}

// goRedis is a redislimit.Client over the client that most peers use.
type goRedis struct{ *redis.Client }

func (c goRedis) Do(ctx context.Context, args ...string) (any, error) {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	reply, err := c.Client.Do(ctx, all...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

func goRedisStore(p place) (stint.Store, func(), error) {
	c := redis.NewClient(&redis.Options{Addr: p.redis, DB: p.db, MaxRetries: -1, ContextTimeoutEnabled: true})
	s, err := redislimit.New(context.Background(), goRedis{c}, redislimit.Options{})
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return s, func() { _ = c.Close() }, nil
}

func stintIn(open storeOpener, a stint.Algorithm) func(place, spec) (*limiter, error) {
	return stintOf(open, stint.Spec{Algorithm: a})
}

// stintOf is stintIn for a limit with more than an algorithm.
func stintOf(open storeOpener, limited stint.Spec) func(place, spec) (*limiter, error) {
	return func(p place, s spec) (*limiter, error) {
		limited := limited
		limited.Amount, limited.Period = s.amount, s.period
		limit, err := stint.NewLimit(limited)
		if err != nil {
			return nil, err
		}
		store, end, err := open(p)
		if err != nil {
			return nil, err
		}
		l := stint.NewLimiter(store)
		return &limiter{
			take: func(ctx context.Context, key string) (bool, error) {
				d, err := l.Allow(ctx, key, limit)
				return d.Allowed, err
			},
			takeN: func(ctx context.Context, key string, n int) (bool, error) {
				d, err := l.AllowN(ctx, key, limit, int64(n))
				return d.Allowed, err
			},
			fill:  filler(l, func(key string) []stint.Ask { return []stint.Ask{{Key: key, Limit: limit, Cost: 1}} }),
			close: end,
		}, nil
	}
}

// mostAsked is the most limits that a request of severalIn asks.
const mostAsked = 8

// severalIn asks n token buckets of one key in one request: all must allow.
func severalIn(open storeOpener, n int) func(place, spec) (*limiter, error) {
	return func(p place, s spec) (*limiter, error) {
		var limits [mostAsked]*stint.Limit
		for i := range limits {
			var err error
			limits[i], err = stint.NewLimit(stint.Spec{Name: fmt.Sprint("limit ", i), Amount: s.amount, Period: s.period})
			if err != nil {
				return nil, err
			}
		}
		store, end, err := open(p)
		if err != nil {
			return nil, err
		}
		l := stint.NewLimiter(store)
		takeN := func(ctx context.Context, key string, units int) (bool, error) {
			var asks [mostAsked]stint.Ask
			for i := range asks[:n] {
				asks[i] = stint.Ask{Key: key, Limit: limits[i], Cost: int64(units)}
			}
			d, err := l.Take(ctx, &stint.Request{Asks: asks[:n]}, nil)
			return d.Allowed, err
		}
		return &limiter{
			take:  func(ctx context.Context, key string) (bool, error) { return takeN(ctx, key, 1) },
			takeN: takeN,
			fill: filler(l, func(key string) []stint.Ask {
				asks := make([]stint.Ask, n)
				for i := range asks {
					asks[i] = stint.Ask{Key: key, Limit: limits[i], Cost: 1}
				}
				return asks
			}),
			close: end,
		}, nil
	}
}

// filler takes one unit of each key, many keys in a round trip.
func filler(l *stint.Limiter, asks func(key string) []stint.Ask) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error {
		const most = 500
		for len(keys) > 0 {
			n := min(most, len(keys))
			requests, answers := make([]stint.Request, n), make([]stint.Answer, n)
			for i, k := range keys[:n] {
				requests[i].Asks = asks(k)
			}
			l.TakeBatch(ctx, requests, answers)
			for i := range answers {
				if answers[i].Err != nil {
					return answers[i].Err
				}
				if !answers[i].Allowed {
					return errors.New("a first request was denied")
				}
			}
			keys = keys[n:]
		}
		return nil
	}
}
