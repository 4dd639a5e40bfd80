package watch

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
)

// Bans are the running bans that penalties imposed through this instance. Each ban is imposed through one
// instance, so the sum over a fleet is the total, except for bans of instances that were restarted.
//
// Keys are stored as hashes, because clients choose their length.
type Bans struct {
	mu    sync.Mutex
	seed  maphash.Seed
	ends  map[uint64]banned
	swept time.Time
}

type banned struct {
	rule string
	end  int64 // µs since 1970
}

func (b *Bans) hash(rule, key string) uint64 {
	return maphash.Comparable(b.seed, [2]string{rule, key})
}

// decided is for watcher.
func (b *Bans) decided(_ context.Context, e event) {
	if key, began := e.BeganBan(); began {
		b.impose(e.Rule.Name, key, e.BanLeft)
	}
}

// violated is for watcher.
func (b *Bans) violated(_ context.Context, v violation) {
	if v.Decision.Outcome == stint.Banned {
		b.impose(v.Rule.Name, v.Ask.Key, v.Decision.BanLeft)
	}
}

// impose records that a key was banned under a rule's penalty.
func (b *Bans) impose(rule, key string, left time.Duration) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends == nil {
		b.ends, b.seed = map[uint64]banned{}, maphash.MakeSeed()
	}
	if len(b.ends) >= config.MaxCountedBans && now.Sub(b.swept) > time.Second {
		b.sweep(now)
	}
	if len(b.ends) < config.MaxCountedBans {
		b.ends[b.hash(rule, key)] = banned{rule, now.Add(left).UnixMicro()}
	}
}

// Lift forgets a ban.
func (b *Bans) Lift(rule, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends != nil {
		delete(b.ends, b.hash(rule, key))
	}
}

func (b *Bans) sweep(now time.Time) {
	b.swept = now
	for k, ban := range b.ends {
		if ban.end <= now.UnixMicro() {
			delete(b.ends, k)
		}
	}
}

// Count returns the number of running bans by rule.
func (b *Bans) Count() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(time.Now())
	n := map[string]int{}
	for _, ban := range b.ends {
		n[ban.rule]++
	}
	return n
}

// Running is the number of bans, including those that ended in the last 5 seconds. It looks
// at each ban only every 5 seconds, so it can be called often.
func (b *Bans) Running() int64 {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.swept) > 5*time.Second {
		b.sweep(now)
	}
	return int64(len(b.ends))
}
