package main

import (
	"context"
	"sync"
	"time"

	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

var memoryPeers = []subject{
	{name: "x/time/rate in a sync.Map", kind: peer, open: openRate},
	{name: "sethvargo/go-limiter", kind: peer, open: openSethvargo},
	{name: "ulule/limiter", kind: peer, open: openUluleMemory},
	{name: "throttled, LRU", kind: peer, open: openThrottledMemory(4 * million)},
	{name: "throttled, unbounded", kind: peer, open: openThrottledMemory(0)},
}

// openRate keeps a rate.Limiter for each key, which is the usual way. Nothing is ever dropped.
func openRate(_ place, s spec) (*limiter, error) {
	var all sync.Map
	every := rate.Limit(float64(s.amount) / s.period.Seconds())
	of := func(key string) *rate.Limiter {
		if l, ok := all.Load(key); ok {
			return l.(*rate.Limiter)
		}
		l, _ := all.LoadOrStore(key, rate.NewLimiter(every, int(s.amount)))
		return l.(*rate.Limiter)
	}
	return &limiter{
		take: func(_ context.Context, key string) (bool, error) { return of(key).Allow(), nil },
		takeN: func(_ context.Context, key string, n int) (bool, error) {
			return of(key).AllowN(time.Now(), n), nil
		},
	}, nil
}

// openSethvargo leaves the sweeping of old keys at its default, every six hours.
func openSethvargo(_ place, s spec) (*limiter, error) {
	return sethvargoOf(sethvargo.Config{Tokens: uint64(s.amount), Interval: s.period})
}

func sethvargoOf(c sethvargo.Config) (*limiter, error) {
	store, err := sethvargo.New(&c)
	if err != nil {
		return nil, err
	}
	return &limiter{
		take: func(ctx context.Context, key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		close: func() { _ = store.Close(context.Background()) },
	}, nil
}

// openUluleMemory leaves the sweeping of old keys at its default, every 30 s.
func openUluleMemory(_ place, s spec) (*limiter, error) {
	return ululeOver(ululememory.NewStore(), s), nil
}

func ululeOver(store ulule.Store, s spec) *limiter {
	l := ulule.New(store, ulule.Rate{Period: s.period, Limit: s.amount})
	return &limiter{
		take: func(ctx context.Context, key string) (bool, error) {
			c, err := l.Get(ctx, key)
			return !c.Reached, err
		},
		takeN: func(ctx context.Context, key string, n int) (bool, error) {
			c, err := l.Increment(ctx, key, int64(n))
			return !c.Reached, err
		},
	}
}

// openThrottledMemory drops the least recently used beyond maxKeys; 0: never.
func openThrottledMemory(maxKeys int) func(place, spec) (*limiter, error) {
	return func(_ place, s spec) (*limiter, error) {
		store, err := memstore.NewCtx(maxKeys)
		if err != nil {
			return nil, err
		}
		return throttledOver(store, s)
	}
}

// throttledOver counts the burst beside the first request, hence the 1.
func throttledOver(store throttled.GCRAStoreCtx, s spec) (*limiter, error) {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(int(s.amount), s.period), MaxBurst: int(s.amount) - 1}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	return byUnits(func(ctx context.Context, key string, n int) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, n)
		return !limited && err == nil, err
	}), nil
}
