package server

import (
	"strings"
	"sync"
	"time"
)

// mostBans bounds what an instance remembers of the bans that it saw imposed, for
// nothing but the metric.
const mostBans = 100_000

// bans are those that penalties imposed by the word of this instance and that
// still run. Each ban is imposed through one instance, so the sum over a fleet is
// the fleet's, but for those of instances that were restarted.
type bans struct {
	mu    sync.Mutex
	ends  map[banned]time.Time
	swept time.Time
}

type banned struct{ rule, key string }

// impose remembers that a key was banned under a rule's penalty.
func (b *bans) impose(rule, key string, left time.Duration) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends == nil {
		b.ends = map[banned]time.Time{}
	}
	if len(b.ends) >= mostBans && now.Sub(b.swept) > time.Second {
		b.sweep(now)
	}
	if len(b.ends) < mostBans {
		b.ends[banned{rule, strings.Clone(key)}] = now.Add(left)
	}
}

func (b *bans) lift(rule, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ends, banned{rule, key})
}

func (b *bans) sweep(now time.Time) {
	b.swept = now
	for k, end := range b.ends {
		if !end.After(now) {
			delete(b.ends, k)
		}
	}
}

// count is how many run, by rule.
func (b *bans) count() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(time.Now())
	n := map[string]int{}
	for k := range b.ends {
		n[k.rule]++
	}
	return n
}
