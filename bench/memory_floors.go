package main

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// memoryFloors are the least work of a limiter in memory.
var memoryFloors = []subject{
	{name: "compare-and-swap of one word", kind: floor, open: openSwap},
	{name: "time.Now", kind: floor, open: openNow},
	{name: "map lookup", kind: floor, open: openMap},
	{name: "map lookup and the clock", kind: floor, open: openMapAndClock},
	{name: "sharded map lookup, locked", kind: floor, open: openShards},
	{name: "sync.Map load", kind: floor, open: openSyncMap},
}

func openSwap(place, spec) (*limiter, error) {
	var word atomic.Int64
	return only(func(string) {
		for {
			if old := word.Load(); word.CompareAndSwap(old, old+1) {
				return
			}
		}
	}), nil
}

// sink keeps the compiler from leaving out the measured code.
var sink atomic.Int64

func openNow(place, spec) (*limiter, error) {
	return only(func(string) {
		if now := time.Now(); now.IsZero() {
			sink.Add(1)
		}
	}), nil
}

type mapped [1]int64

// openMap needs no lock, as nobody writes while it is measured.
func openMap(place, spec) (*limiter, error) {
	m := map[string]*mapped{}
	l := &limiter{take: func(_ context.Context, key string) (bool, error) { return m[key] != nil, nil }}
	l.fill = func(_ context.Context, keys []string) error {
		for _, k := range keys {
			m[k] = new(mapped)
		}
		return nil
	}
	return l, nil
}

func openMapAndClock(p place, s spec) (*limiter, error) {
	l, err := openMap(p, s)
	if err != nil {
		return nil, err
	}
	start, look := time.Now(), l.take
	l.take = func(ctx context.Context, key string) (bool, error) {
		found, err := look(ctx, key)
		return found && time.Since(start) >= 0, err
	}
	return l, nil
}

func openShards(place, spec) (*limiter, error) {
	type shard struct {
		sync.Mutex
		m map[string]*mapped
		_ [64]byte
	}
	var shards [64]shard
	seed := maphash.MakeSeed()
	of := func(key string) *shard { return &shards[maphash.String(seed, key)%uint64(len(shards))] }
	for i := range shards {
		shards[i].m = map[string]*mapped{}
	}
	l := &limiter{take: func(_ context.Context, key string) (bool, error) {
		s := of(key)
		s.Lock()
		found := s.m[key] != nil
		s.Unlock()
		return found, nil
	}}
	l.fill = func(_ context.Context, keys []string) error {
		for _, k := range keys {
			of(k).m[k] = new(mapped)
		}
		return nil
	}
	return l, nil
}

func openSyncMap(place, spec) (*limiter, error) {
	var m sync.Map
	l := &limiter{take: func(_ context.Context, key string) (bool, error) {
		v, _ := m.Load(key)
		return v != nil, nil
	}}
	l.fill = func(_ context.Context, keys []string) error {
		for _, k := range keys {
			m.Store(k, new(mapped))
		}
		return nil
	}
	return l, nil
}
