package stint

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxKeys is how many counts a Memory keeps where its MaxKeys is 0.
const DefaultMaxKeys = 1_000_000

// Memory is a Store in the memory of one process. The zero Memory is empty and
// ready; it must not be copied once used, and may be used from many goroutines
// at once. It implements BatchTaker, Refunder, Resetter, Violator, Recorder and
// Inspector.
// Its only errors are ErrFull and, of Banned, the context's.
//
// Its clock is the wall clock of its first use, carried on by the monotonic
// clock, so that changes of the system's time neither mint nor take units.
//
// What has become unused is dropped while new keys come in, a little at a time.
// When MaxKeys is reached, a new key takes the place of an unused one, else of
// the one that has used the smallest share of its limit among those looked at.
// An exhausted key, or one that is banned, never gives way, for that would hand
// it a fresh limit: if there is nothing else, the newcomer gets ErrFull.
//
// Keys of counts are not kept. Those of records under a penalty are, but for keys of more
// than 64 bytes, of which Banned tells a hash; see Record.Hashed.
type Memory struct {
	// MaxKeys is how many counts are kept: one for each key under each limit,
	// and one for each key under each penalty that it violated. It must not be
	// changed once the Memory is in use. 0: DefaultMaxKeys. From 8,192 upward
	// the room is divided into up to 2,048 parts by a hash of the key, and a part
	// may be full when the whole is at 95 %.
	MaxKeys int
	// Precision, if it is not 0, lets the clock stand still for so long, which takes two
	// fifths off a decision about a hot key. It is then behind by up to Precision, and
	// by as much more as the goroutine that reads it has to wait for a processor: that
	// is how much sooner, at most, units come back to a key that was unused, and how
	// much later to one that was not. So over any time, a bucket admits at most what
	// comes back in that much time on top. Less than a millisecond is one. It
	// must not be changed once the Memory is in use. 0: every decision reads the
	// clock, and is exact.
	Precision time.Duration

	once   sync.Once
	ready  atomic.Bool // once is done; for takeOne, which takes less time than to ask that
	seed   maphash.Seed
	shards []shard
	start  time.Time
	wall   int64 // start in µs since 1970
	coarse coarseClock

	// least is the smallest cost that is asked here, which is more than 1 where a
	// Fallback counts for several instances: what has less left is exhausted. 0: 1.
	least atomic.Int64
}

// mostShards makes a part of ten million counts small enough to be moved into a
// larger table in less than a millisecond.
const mostShards = 2048

func (m *Memory) init() {
	m.once.Do(func() {
		room := m.MaxKeys
		if room <= 0 {
			room = DefaultMaxKeys
		}
		n := 1
		for n < mostShards && room/n >= 8192 {
			n *= 2
		}
		m.seed = maphash.MakeSeed()
		m.shards = make([]shard, n)
		for i := range m.shards {
			m.shards[i].open((room + n - 1 - i) / n)
		}
		m.start = time.Now()
		m.wall = m.start.UnixMicro()
		if m.Precision != 0 {
			m.Precision = max(m.Precision, time.Millisecond)
		}
		m.ready.Store(true)
	})
}

// clock is the instant by which counts are made here, µs since 1970.
func (m *Memory) clock() int64 {
	if m.Precision != 0 {
		return m.coarse.read(m)
	}
	return m.exactClock()
}

func (m *Memory) exactClock() int64 { return m.wall + time.Since(m.start).Microseconds() }

func (m *Memory) now(r *Request) int64 {
	if !r.At.IsZero() {
		return r.At.UnixMicro()
	}
	return m.clock()
}

func (m *Memory) hash(key string) uint64 { return maphash.String(m.seed, key) }

// shardOf is the shard of all counts of the key with a hash.
func (m *Memory) shardOf(hash uint64) *shard { return &m.shards[m.placeOf(hash)] }

func (m *Memory) placeOf(hash uint64) uint64 { return hash & uint64(len(m.shards)-1) }

// lock locks the shards of all keys of r, in their order in memory, so that two
// requests cannot wait for each other, and appends their places.
func (m *Memory) lock(r *Request, places []uint64) []uint64 {
	for i := range r.Asks {
		places = append(places, m.placeOf(m.hash(r.Asks[i].Key)))
	}
	if len(places) > 1 {
		slices.Sort(places)
		places = slices.Compact(places)
	}
	for _, p := range places {
		m.shards[p].mu.Lock()
	}
	return places
}

func (m *Memory) unlock(places []uint64) {
	for _, p := range places {
		m.shards[p].mu.Unlock()
	}
}

// Take implements Store.
func (m *Memory) Take(_ context.Context, r *Request, out []Decision) (d Decision, err error) {
	m.init()
	if a := &r.Asks[0]; len(r.Asks) == 1 && a.Penalty == nil && a.MaxDelay == 0 {
		at := int64(ownClock)
		if !r.At.IsZero() {
			at = r.At.UnixMicro()
		}
		if m.takeOne(a.Key, a.Limit, a.Units(), at, &d) {
			if out != nil {
				out[0] = d
			}
			return d, nil
		}
	} else if m.takeFew(r, out, &d) {
		return d, nil
	}
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
	return m.take(r, m.now(r), out)
}

// TakeBatch implements BatchTaker.
func (m *Memory) TakeBatch(ctx context.Context, rs []Request, answers []Answer) {
	for i := range rs {
		a := &answers[i]
		a.Decision, a.Err = m.Take(ctx, &rs[i], a.Each)
	}
}

// Refund implements Refunder.
func (m *Memory) Refund(_ context.Context, r *Request) error {
	m.init()
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
	now := m.now(r)
	for i := range r.Asks {
		a := &r.Asks[i]
		var c count
		m.look(a, &c)
		if !c.found() {
			continue
		}
		if a.Limit.plan.Refund(c.state(), now, a.Units()) {
			c.forget()
		} else {
			c.keep()
		}
	}
	return nil
}

// Reset implements Resetter.
func (m *Memory) Reset(_ context.Context, r *Request) error {
	m.init()
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit != nil {
			var c count
			if m.look(a, &c); c.found() {
				c.forget()
			}
		}
		if a.Penalty != nil {
			s, e := m.findRecord(a.Key, a.Penalty)
			s.remove(e)
		}
	}
	return nil
}

// Len is the number of counts kept, unused ones that were not dropped yet among
// them.
func (m *Memory) Len() int {
	m.init()
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.counts()
		s.mu.Unlock()
	}
	return n
}
