package stint

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// looksForUnnamed is how many asks a Limiter checks for limits that count together by mistake: enough
// for a program that makes it at each request, and free for a program that runs long.
const looksForUnnamed = 1000

// unnamed finds two limits without a name that share a count of one key although they differ, such
// as 10 per 1m and 100 per 1m: their author expects separate counts.
type unnamed struct {
	done atomic.Bool // stop checking

	mu   sync.Mutex
	seen map[entryKey]*Limit
	left int
}

// look logs once if limit, asked for key, shares a count by mistake.
func (u *unnamed) look(key string, limit *Limit) {
	if u.done.Load() || limit == nil || limit.spec.Name != "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done.Load() {
		return
	}
	if u.seen == nil {
		u.seen, u.left = map[entryKey]*Limit{}, looksForUnnamed
	}
	u.left--
	of := entryKey{key, limit.id}
	other := u.seen[of]
	if other != nil && other != limit && other.terms != limit.terms {
		slog.Default().Warn("stint: two limits without a name share one count of a key: give each a name",
			"limit", other.terms, "other", limit.terms, "better", "NAME: "+limit.terms)
		u.left = 0
	}
	u.seen[of] = limit
	if u.left == 0 {
		u.seen = nil
		u.done.Store(true)
	}
}
