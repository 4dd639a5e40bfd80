package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

var redisPeers = []subject{
	{name: "redis_rate", kind: peer, beside: incrGoRedis, open: openRedisRate},
	{name: "ulule/limiter", kind: peer, beside: incrGoRedis, open: openUluleRedis},
	{name: "throttled", kind: peer, beside: incrGoRedis, open: openThrottledRedis},
	{name: "sorted-set log, rueidis", kind: peer, log: true, open: openSortedSet},
}

func openRedisRate(p place, s spec) (*limiter, error) {
	c := newGoRedis(p)
	l := redis_rate.NewLimiter(c)
	limit := redis_rate.Limit{Rate: int(s.amount), Burst: int(s.amount), Period: s.period}
	one := byUnits(func(ctx context.Context, key string, n int) (bool, error) {
		r, err := l.AllowN(ctx, key, limit, n)
		return err == nil && r.Allowed > 0, err
	})
	// One request leaves the instant at which the bucket is full again, in seconds since 2017.
	one.fill = func(ctx context.Context, keys []string) error {
		full := float64(time.Now().Add(s.period/time.Duration(s.amount)).UnixMicro())/1e6 - 1483228800
		return setAll(ctx, p, keys, "rate:", strconv.FormatFloat(full, 'f', -1, 64))
	}
	one.close = func() { _ = c.Close() }
	return one, nil
}

func openUluleRedis(p place, s spec) (*limiter, error) {
	c := newGoRedis(p)
	store, err := ululeredis.NewStore(c)
	if err != nil {
		return nil, err
	}
	l := ululeOver(store, s)
	// One request leaves its number.
	l.fill = func(ctx context.Context, keys []string) error { return setAll(ctx, p, keys, "limiter:", "1") }
	l.close = func() { _ = c.Close() }
	return l, nil
}

func openThrottledRedis(p place, s spec) (*limiter, error) {
	c := newGoRedis(p)
	store, err := goredisstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, err
	}
	l, err := throttledOver(store, s)
	if err != nil {
		return nil, err
	}
	// One request leaves the instant at which the bucket is full again, in ns.
	l.fill = func(ctx context.Context, keys []string) error {
		full := time.Now().Add(s.period / time.Duration(s.amount)).UnixNano()
		return setAll(ctx, p, keys, "throttled:", strconv.FormatInt(full, 10))
	}
	l.close = func() { _ = c.Close() }
	return l, nil
}

// sortedSet is the log of tutorials in its correct form: the server's clock, a member for each
// request, none for denied ones.
var sortedSet = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local period, amount = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - period)
if redis.call('ZCARD', KEYS[1]) >= amount then
  return 0
end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(period / 1000))
return 1
`)

func openSortedSet(p place, s spec) (*limiter, error) {
	c, err := newRueidis(p)
	if err != nil {
		return nil, err
	}
	var number atomic.Int64
	caller := strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	period, amount := fmt.Sprint(s.period.Microseconds()), fmt.Sprint(s.amount)
	return &limiter{
		take: func(ctx context.Context, key string) (bool, error) {
			member := caller + strconv.FormatInt(number.Add(1), 36)
			n, err := sortedSet.Exec(ctx, c, []string{"log:" + key}, []string{period, amount, member}).AsInt64()
			return n == 1, err
		},
		fill: func(ctx context.Context, keys []string) error {
			return pipelined(ctx, p, keys, func(c rueidis.Client, key string) []rueidis.Completed {
				now := float64(time.Now().UnixMicro())
				return []rueidis.Completed{
					c.B().Zadd().Key("log:"+key).ScoreMember().ScoreMember(now, caller+"0").Build(),
					c.B().Pexpire().Key("log:" + key).Milliseconds(s.period.Milliseconds()).Build(),
				}
			})
		},
		close: c.Close,
	}, nil
}
