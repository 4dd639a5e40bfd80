package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
)

// The rows of tables of holds. A call with a hold is a request from its start to its end.
const (
	oneTake       = "Stint, one decision"
	settledRow    = "Stint, hold and settle"
	acquiredRow   = "Stint, acquire and release"
	variedTake    = "Stint, one decision, costs vary"
	variedSettled = "Stint, hold and settle, costs vary"
	semaphoreRow  = "sorted-set semaphore, rueidis"
	holdsGroup    = "holds"
	besideOneHold = ", beside 1 hold"
	besideMany    = ", beside 4,000 holds" // a key has room for 4,096, and the callers hold some
)

// atOnce is how many requests may be in flight under one key: more than there ever are.
const atOnce = 100_000

func heldOurs(open storeOpener) []subject {
	return []subject{
		{name: oneTake, kind: ours, open: stintIn(open, stint.FixedWindow)},
		{name: settledRow, kind: ours, holds: true, open: settledIn(open, 0, alike)},
		{name: acquiredRow, kind: ours, holds: true, open: acquiredIn(open, 0)},
	}
}

// besideHolds has rows of each kind beside one hold of the same key, and beside many.
func besideHolds(open storeOpener) (all []subject) {
	for _, kind := range []struct {
		name  string
		holds bool
		open  func(n int) func(place, spec) (*limiter, error)
	}{
		{oneTake, false, func(n int) func(place, spec) (*limiter, error) { return askedIn(open, n) }},
		{settledRow, true, func(n int) func(place, spec) (*limiter, error) { return settledIn(open, n, alike) }},
		{acquiredRow, true, func(n int) func(place, spec) (*limiter, error) { return acquiredIn(open, n) }},
	} {
		all = append(all,
			subject{name: kind.name + besideOneHold, kind: ours, holds: kind.holds, open: kind.open(1)},
			subject{name: kind.name + besideMany, kind: ours, holds: kind.holds, beside: kind.name + besideOneHold, open: kind.open(4000)})
	}
	return all
}

var (
	redisHeld = slices.Concat([]subject{{name: incrRueidis, kind: floor, open: openIncrRueidis}}, heldOurs(redisStore), []subject{
		{name: variedTake, kind: ours, open: variedIn(redisStore)},
		{name: variedSettled, kind: ours, holds: true, beside: variedTake, open: settledIn(redisStore, 0, varied)},
		{name: "redis_rate", kind: peer, open: openRedisRate},
		{name: semaphoreRow, kind: peer, holds: true, open: openSemaphore(0)},
	})
	redisBesideHolds = append(besideHolds(redisStore),
		subject{name: semaphoreRow + besideOneHold, kind: peer, holds: true, open: openSemaphore(1)},
		subject{name: semaphoreRow + besideMany, kind: peer, holds: true, beside: semaphoreRow + besideOneHold, open: openSemaphore(4000)})
	memoryHeld = append(heldOurs(memoryStore),
		subject{name: "x/time/rate in a sync.Map", kind: peer, open: openRate},
		subject{name: "channels in a sync.Map", kind: peer, holds: true, open: openChannels})
)

// holdTables are all tables of holds.
func holdTables() []table {
	base := table{group: holdsGroup, than: "one decision", floor: oneTake, keys: 1, fill: true, limit: plenty}
	through := base
	through.redis, through.callers, through.batch, through.slice = true, 64, 1, 200*time.Millisecond
	memory := base
	memory.procs, memory.batch, memory.slice = 1, 256, 100*time.Millisecond

	redis := through
	redis.name, redis.title, redis.subjects = "holds-redis", "Holds through Redis; 64 callers", redisHeld
	redis.about = "64 callers use the same key. Each starts a request after the end of its previous one. Redis answers twice for a request that holds: when it starts and when it ends."
	local := memory
	local.name, local.title, local.subjects = "holds-memory", "Holds in memory; one processor", memoryHeld
	local.about = "One caller starts and ends requests of one key."

	const beside = "The same, while 1 or 4,000 other requests hold units of the same key. The ratio of a row beside 4,000 is to the row beside 1."
	redisMany, localMany := through, memory
	redisMany.name, redisMany.title, redisMany.subjects = "holds-redis-many", "Beside 4,000 holds, through Redis; 64 callers", redisBesideHolds
	localMany.name, localMany.title, localMany.subjects = "holds-memory-many", "Beside 4,000 holds, in memory; one processor", besideHolds(memoryStore)
	for _, t := range []*table{&redisMany, &localMany} {
		t.about, t.than, t.floor = beside, "beside 1", ""
	}
	return []table{redis, redisMany, local, localMany}
}

// heldIn opens a limiter over a store. n requests hold a unit of the first key until it is closed.
func heldIn(open storeOpener, p place, limited stint.Spec, n int) (*stint.Limiter, *stint.Limit, func(), error) {
	limit, err := stint.NewLimit(limited)
	if err != nil {
		return nil, nil, nil, err
	}
	store, end, err := open(p)
	if err != nil {
		return nil, nil, nil, err
	}
	l := stint.NewLimiter(store)
	all := make([]*stint.Reservation, n)
	for i := range all {
		r, d, err := l.Reserve(context.Background(), &stint.Request{Asks: []stint.Ask{{Key: makeKey(0), Limit: limit}}})
		if err != nil || !d.Allowed {
			end()
			return nil, nil, nil, fmt.Errorf("a hold: allowed is %v, error %w", d.Allowed, err)
		}
		all[i] = r
	}
	return l, limit, func() { runtime.KeepAlive(all); end() }, nil // otherwise they are dropped, and end
}

// budget is a limit of s whose units are held.
func budget(s spec) stint.Spec {
	return stint.Spec{Algorithm: stint.FixedWindow, Amount: s.amount, Period: s.period, Hold: stint.DefaultHold}
}

// The costs of requests: all equal, or varied like tokens. Stint sends identical requests of many callers as
// one.
func alike() int64  { return 1 }
func varied() int64 { return 1 + rand.Int64N(1000) }

// askedIn takes one unit at once, beside n holds.
func askedIn(open storeOpener, n int) func(place, spec) (*limiter, error) {
	return func(p place, s spec) (*limiter, error) {
		l, limit, end, err := heldIn(open, p, budget(s), n)
		if err != nil {
			return nil, err
		}
		return &limiter{close: end, take: func(ctx context.Context, key string) (bool, error) {
			d, err := l.Allow(ctx, key, limit)
			return d.Allowed, err
		}}, nil
	}
}

// variedIn takes a request's cost at once, under a limit that is not held.
func variedIn(open storeOpener) func(place, spec) (*limiter, error) {
	plain := stintIn(open, stint.FixedWindow)
	return func(p place, s spec) (*limiter, error) {
		l, err := plain(p, s)
		if err == nil {
			l.take = func(ctx context.Context, key string) (bool, error) { return l.takeN(ctx, key, int(varied())) }
		}
		return l, err
	}
}

// settledIn holds an estimate, and settles the request's final cost, beside n holds.
func settledIn(open storeOpener, n int, cost func() int64) func(place, spec) (*limiter, error) {
	return func(p place, s spec) (*limiter, error) {
		l, limit, end, err := heldIn(open, p, budget(s), n)
		if err != nil {
			return nil, err
		}
		return &limiter{close: end, take: func(ctx context.Context, key string) (bool, error) {
			r, d, err := l.Reserve(ctx, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: cost()}}})
			if err != nil {
				return false, err
			}
			return d.Allowed, r.Settle(ctx, cost())
		}}, nil
	}
}

// acquiredIn begins and ends a request in flight, beside n others.
func acquiredIn(open storeOpener, n int) func(place, spec) (*limiter, error) {
	return func(p place, _ spec) (*limiter, error) {
		l, limit, end, err := heldIn(open, p, stint.Spec{Algorithm: stint.InFlight, Amount: atOnce}, n)
		if err != nil {
			return nil, err
		}
		return &limiter{close: end, take: func(ctx context.Context, key string) (bool, error) {
			release, d, err := l.Acquire(ctx, key, limit)
			release()
			return d.Allowed, err
		}}, nil
	}
}

// acquireOne is the semaphore of tutorials in its correct form: the server's clock, a member for each
// holder, scored with the instant at which it runs out. A holder removes its own.
var acquireOne = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
`)

// openSemaphore opens the semaphore with n holders.
func openSemaphore(n int) func(place, spec) (*limiter, error) {
	return func(p place, _ spec) (*limiter, error) {
		c, err := newRueidis(p)
		if err != nil {
			return nil, err
		}
		var number atomic.Int64
		caller, most := strconv.FormatInt(time.Now().UnixNano(), 36)+"-", strconv.Itoa(atOnce)
		acquire := func(ctx context.Context, key string, last time.Duration) (member string, allowed bool, err error) {
			member = caller + strconv.FormatInt(number.Add(1), 36)
			got, err := acquireOne.Exec(ctx, c, []string{key}, []string{most, strconv.FormatInt(last.Milliseconds(), 10), member}).AsInt64()
			return member, got == 1, err
		}
		l := &limiter{close: c.Close}
		l.take = func(ctx context.Context, key string) (bool, error) {
			key = "semaphore:" + key
			member, allowed, err := acquire(ctx, key, stint.DefaultHold)
			if err != nil || !allowed {
				return false, err
			}
			return true, c.Do(ctx, c.B().Zrem().Key(key).Member(member).Build()).Error()
		}
		for range n {
			if _, _, err := acquire(context.Background(), "semaphore:"+makeKey(0), 24*time.Hour); err != nil {
				c.Close()
				return nil, err
			}
		}
		return l, nil
	}
}

// openChannels keeps a channel for each key, the usual semaphore of one process.
func openChannels(place, spec) (*limiter, error) {
	var all sync.Map
	return &limiter{take: func(_ context.Context, key string) (bool, error) {
		places, ok := all.Load(key)
		if !ok {
			places, _ = all.LoadOrStore(key, make(chan struct{}, atOnce))
		}
		select {
		case places.(chan struct{}) <- struct{}{}:
			<-places.(chan struct{})
			return true, nil
		default:
			return false, nil
		}
	}}, nil
}

// holdsInShort compares the time of holds with one decision, and with a semaphore.
func (r *run) holdsInShort(w io.Writer) {
	for _, m := range r.tables {
		one, settled, acquired := m.find(oneTake), m.find(settledRow), m.find(acquiredRow)
		if one == nil || settled == nil || acquired == nil {
			continue
		}
		title, _, _ := strings.Cut(m.table.title, ";")
		fmt.Fprintf(w, "\n%s: to hold and settle takes %s times as long as one decision, and to acquire and release takes %s times as long.",
			title, ratio(settled.over(one)), ratio(acquired.over(one)))
		if one, settled := m.find(variedTake), m.find(variedSettled); one != nil && settled != nil {
			fmt.Fprintf(w, " Where costs vary, to hold and settle takes %s times as long as one decision.", ratio(settled.over(one)))
		}
		if semaphore := m.find(semaphoreRow); semaphore != nil {
			fmt.Fprintf(w, " A semaphore in a sorted set takes %s times as long.", ratio(semaphore.over(one)))
		}
		fmt.Fprintln(w)
	}
	for _, m := range r.tables {
		for i := range m.results {
			many := &m.results[i]
			kind, ok := strings.CutSuffix(many.subject.name, besideMany)
			if one := m.find(kind + besideOneHold); ok && one != nil && kind == oneTake {
				fmt.Fprintf(w, "\n%s: one decision takes %s times as long as beside 1 hold.\n", m.table.title, ratio(many.over(one)))
			}
		}
	}
}
