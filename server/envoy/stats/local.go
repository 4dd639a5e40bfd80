package stats

import "sync/atomic"

// localCache counts descriptors that were refused without Redis, and the others, under the names of
// envoyproxy/ratelimit's cache. A nil localCache counts nothing.
type localCache struct{ hits, misses atomic.Uint64 }

// note counts a descriptor. Without a localCache, its refusal is an ordinary one.
func (l *localCache) note(h *hits) {
	switch {
	case l == nil:
		h[overLimitWithLocalCache] = 0
	case h[overLimitWithLocalCache] > 0:
		l.hits.Add(1)
	default:
		l.misses.Add(1)
	}
}

func (l *localCache) appendTo(all []gauge) []gauge {
	if l == nil {
		return all
	}
	hits, misses := l.hits.Load(), l.misses.Load()
	return append(all,
		gauge{"ratelimit.localcache.hitCount", hits},
		gauge{"ratelimit.localcache.missCount", misses},
		gauge{"ratelimit.localcache.lookupCount", hits + misses},
	)
}
