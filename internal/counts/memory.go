// Package counts keeps the counts of stint.Memory and decides by them. It knows the arithmetic of
// limits and penalties, hashes of their IDs, keys, costs and instants, but not stint's requests and
// decisions. All instants and durations are µs.
//
// Counts are in tables of words without pointers, one table for each of many shards. See
// docs/decisions/0005-memory.md.
package counts

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Memory holds counts. It must be opened before use, and must not be copied. It may be used from
// many goroutines at once. A request must have at least one ask.
//
// Its clock is the wall clock of its first use, carried on by the monotonic clock.
type Memory struct {
	once   sync.Once
	ready  atomic.Bool // once is done
	seed   maphash.Seed
	shards []shard
	start  time.Time
	wall   int64 // start in µs since 1970

	// least is the smallest cost of a request, see SetLeastCost. 0: 1.
	least atomic.Int64
	// placed is the latest instant of Placed.
	placed atomic.Int64

	holds holdRoom
}

// mostShards keeps shards of ten million counts so small that a table grows in less than 1 ms.
const mostShards = 2048

// DefaultRoom is how many counts a Memory keeps by default.
const DefaultRoom = 1_000_000

// HoldsBeside is how many records of holds a Memory with room for this many counts keeps: a sixteenth,
// and at least those of two keys.
func HoldsBeside(room int64) int64 { return max(2*algo.MostHolds, room/16) }

// Open makes room for this many counts, unless it was called before.
func (m *Memory) Open(room int) {
	if !m.ready.Load() {
		m.open(room)
	}
}

func (m *Memory) open(room int) {
	m.once.Do(func() {
		n := 1
		for n < mostShards && room/n >= 8192 {
			n *= 2
		}
		now := time.Now()
		m.start, m.wall = now, now.UnixMicro()
		m.makeShards(n, room, HoldsBeside(int64(room)))
	})
}

// makeShards makes n shards with room for these numbers of counts and holds.
func (m *Memory) makeShards(n, room int, holds int64) {
	m.seed = maphash.MakeSeed()
	m.shards = make([]shard, n)
	m.holds.most, m.holds.shards = holds, m.shards
	for i := range m.shards {
		m.shards[i].holds.room = &m.holds
		m.shards[i].open((room + n - 1 - i) / n)
	}
	m.ready.Store(true)
}

// Now is the instant of a decision by the Memory's own clock, µs since 1970.
func (m *Memory) Now() int64 { return m.wall + time.Since(m.start).Microseconds() }

// InstantOf is what Now was at t.
func (m *Memory) InstantOf(t time.Time) int64 { return m.wall + t.Sub(m.start).Microseconds() }

// SetLeastCost sets the least cost of requests: keys with less left do not give way. 0: 1.
func (m *Memory) SetLeastCost(cost int64) {
	if m.least.Load() != cost {
		m.least.Store(cost)
	}
}

// Len is the number of counts kept, including unused ones that were not dropped yet.
func (m *Memory) Len() int {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.counts()
		s.mu.Unlock()
	}
	return n
}

// Holds returns how many records of holds made here are kept, including expired ones that were not
// dropped yet, and how many there may be. It does not count learned records.
func (m *Memory) Holds() (made, most int64) {
	return m.holds.total.Load() - m.holds.learned.Load(), m.holds.most
}

func (m *Memory) at(at int64) int64 {
	if at == OwnClock {
		return m.Now()
	}
	return at
}

func (m *Memory) hash(key string) uint64 { return maphash.String(m.seed, key) }

func (m *Memory) shardOf(hash uint64) *shard { return &m.shards[m.placeOf(hash)] }

func (m *Memory) placeOf(hash uint64) uint64 { return hash & uint64(len(m.shards)-1) }

// lock locks a request's shards in a fixed order, against deadlock, and appends their places.
func (m *Memory) lock(asks []Ask, places []uint64) []uint64 {
	for i := range asks {
		places = append(places, m.placeOf(m.hash(asks[i].Key)))
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

func (m *Memory) lockKey(key string) *shard {
	s := m.shardOf(m.hash(key))
	s.mu.Lock()
	return s
}

// Refund returns the cost of each ask with a Limit to its count.
func (m *Memory) Refund(asks []Ask, at int64) {
	var few [fewAsks]uint64
	defer m.unlock(m.lock(asks, few[:0]))
	now := m.at(at)
	for i := range asks {
		a := &asks[i]
		if a.Limit == nil {
			continue
		}
		var c count
		m.look(a.Key, a.Limit, &c)
		if !c.found() {
			continue
		}
		if a.Limit.Plan.Refund(c.state(), now, a.Cost) {
			c.forget()
		} else {
			c.keep()
		}
	}
}

// Reset forgets the count of each ask with a Limit, and the record of each with a Penalty.
func (m *Memory) Reset(asks []Ask) {
	var few [fewAsks]uint64
	defer m.unlock(m.lock(asks, few[:0]))
	for i := range asks {
		a := &asks[i]
		if a.Limit != nil {
			var c count
			if m.look(a.Key, a.Limit, &c); c.found() {
				c.forget()
			}
		}
		if a.Penalty != nil {
			s, e := m.findRecord(a.Key, a.Penalty)
			s.remove(e)
		}
	}
}

// Held describes the count of a key under a limit. The zero Held: unused.
type Held struct {
	InUse   bool
	Idle    int64 // since the last charge
	Expires int64 // from now
}

// Inspect returns the Held of key under each limit.
func (m *Memory) Inspect(key string, limits []*Limit) []Held {
	s := m.lockKey(key)
	defer s.mu.Unlock()
	now := m.Now()
	all := make([]Held, len(limits))
	for i, l := range limits {
		var c count
		if m.look(key, l, &c); !c.found() {
			continue
		}
		plan, state := c.plan(), c.state()
		v := plan.Look(state, now)
		if reset := plan.Settle(state, &v, 0, true).Reset; v.Used > 0 {
			all[i] = Held{InUse: true, Idle: max(0, now-state.Last), Expires: reset}
		}
		c.release()
	}
	return all
}

// lookAt gives each ask the Verdict that it would get alone, and takes nothing. The shards must be
// locked.
func (m *Memory) lookAt(asks []Ask, by *Holding, now int64, own bool) {
	for i := range asks {
		a := &asks[i]
		if a.Limit == nil {
			a.Verdict = algo.Verdict{Allowed: true}
			continue
		}
		var s step
		m.look(a.Key, a.Limit, &s.count)
		s.look(a, by, now, own)
		s.decide(a, false)
		s.release()
	}
}
