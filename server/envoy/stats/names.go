package stats

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// group has counters whose names share a prefix.
type group struct {
	key       string // in names
	name      string // the prefix, clean, without a dot at its end
	kinds     []string
	n         []atomic.Uint64
	ofRequest bool // requests made the name

	// Run alone uses what follows.
	sent []uint64 // to statsd
	seen uint64   // the sum at the last sweep
	used time.Time

	// Guarded by exposition.mu.
	shown     []shown
	forgotten bool // and no longer in names
}

func newGroup(name string, kinds []string) *group {
	return &group{name: name, kinds: kinds, n: make([]atomic.Uint64, len(kinds)), sent: make([]uint64, len(kinds))}
}

func (g *group) sum() (sum uint64) {
	for i := range g.n {
		sum += g.n[i].Load()
	}
	return sum
}

func (g *group) isSent() bool {
	for i := range g.n {
		if g.n[i].Load() != g.sent[i] {
			return false
		}
	}
	return true
}

// names are groups by name. Requests may make up to the number most; the others are as many as the rules in
// the files. It may be used from many goroutines at once.
type names struct {
	prefix     string
	kinds      []string
	most       int64
	ofRequests atomic.Int64
	seed       maphash.Seed
	shards     [64]shard
}

type shard struct {
	mu     sync.RWMutex
	groups map[string]*group
	_      [96]byte // shards do not share cache lines
}

// longestName bounds the names that requests make, in bytes.
const longestName = 1024

func newNames(prefix string, kinds []string, most int64) *names {
	t := &names{prefix: prefix, kinds: kinds, most: most, seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].groups = map[string]*group{}
	}
	return t
}

// add adds h to the counters of a name. ofRequest: a request made the name. It returns false if there is no
// room for the name. The name is kept only as a copy.
func (t *names) add(key string, ofRequest bool, h *hits) bool {
	s := &t.shards[maphash.String(t.seed, key)%uint64(len(t.shards))]
	for {
		s.mu.RLock()
		if g := s.groups[key]; g != nil {
			for i := range g.n {
				if h[i] != 0 {
					g.n[i].Add(h[i])
				}
			}
			s.mu.RUnlock() // only now: sweep drops no group while a hit is added
			return true
		}
		s.mu.RUnlock()
		if !t.make(s, key, ofRequest) {
			return false
		}
	}
}

func (t *names) make(s *shard, key string, ofRequest bool) bool {
	if ofRequest && (len(key) > longestName || t.ofRequests.Load() >= t.most) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[key] != nil {
		return true
	}
	if ofRequest && t.ofRequests.Add(1) > t.most {
		t.ofRequests.Add(-1)
		return false
	}
	key = strings.Clone(key)
	g := newGroup(t.prefix+clean(key), t.kinds)
	g.key, g.ofRequest = key, ofRequest
	s.groups[key] = g
	return true
}

// appendAll appends all groups.
func (t *names) appendAll(all []*group) []*group {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, g := range s.groups {
			all = append(all, g)
		}
		s.mu.RUnlock()
	}
	return all
}

// sweep drops groups that have not been used for long, if done says that their hits were sent, and returns
// them. A group that comes back starts at 0.
func (t *names) sweep(now time.Time, done func(*group) bool) (dropped []*group) {
	for _, g := range t.appendAll(nil) {
		if sum := g.sum(); sum != g.seen || g.used.IsZero() {
			g.seen, g.used = sum, now
			continue
		}
		keep := keepFiles
		if g.ofRequest {
			keep = keepRequests
		}
		if now.Sub(g.used) < keep {
			continue
		}
		s := &t.shards[maphash.String(t.seed, g.key)%uint64(len(t.shards))]
		s.mu.Lock()
		if g.sum() == g.seen && done(g) {
			delete(s.groups, g.key)
			dropped = append(dropped, g)
			if g.ofRequest {
				t.ofRequests.Add(-1)
			}
		}
		s.mu.Unlock()
	}
	return dropped
}
