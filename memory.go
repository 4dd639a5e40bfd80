package stint

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// DefaultMaxKeys is how many counts a Memory keeps where its MaxKeys is 0.
const DefaultMaxKeys = 1_000_000

// Memory is a Store in the memory of one process. The zero Memory is empty and
// ready; it must not be copied once used, and may be used from many goroutines
// at once. It implements EachTaker, GiveBacker, Resetter, Violator and Recorder.
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
type Memory struct {
	// MaxKeys is how many counts are kept: one for each key under each limit,
	// and one for each key under each penalty that it violated. It must not be
	// changed once the Memory is in use. 0: DefaultMaxKeys. From 16,384 upward
	// the room is divided into up to 64 parts by a hash of the key, and a part
	// may be full when the whole is at 97 %.
	MaxKeys int

	once   sync.Once
	seed   maphash.Seed
	shards []shard
	start  time.Time
	wall   int64 // start in µs since 1970

	// least is the smallest cost that is asked here, which is more than 1 where a
	// Fallback counts for several instances: what has less left is exhausted. 0: 1.
	least atomic.Int64
}

// shard holds all counts of its keys, so that the limits of one key are decided
// under one lock.
type shard struct {
	mu    sync.Mutex
	index map[entryKey]*entry
	all   []*entry // the same, in no order
	hand  int      // where in all to look next for what may go
	room  int
	// reserved is how much of the room the request that is looking will take.
	reserved int
	_        [64]byte // its neighbour's lock lies in another cache line
}

type entryKey struct{ key, id string }

type entry struct {
	entryKey
	place   int   // in shard.all
	pinned  bool  // found by the request that is now looking for room
	unused  int64 // the instant from which it may be dropped, µs
	limit   *Limit
	penalty *Penalty // not nil: record counts, else state
	state   algo.State
	record  algo.Record
}

func (m *Memory) init() {
	m.once.Do(func() {
		room := m.MaxKeys
		if room <= 0 {
			room = DefaultMaxKeys
		}
		n := 1
		for n < 64 && room/n >= 16384 {
			n *= 2
		}
		m.seed = maphash.MakeSeed()
		m.shards = make([]shard, n)
		for i := range m.shards {
			m.shards[i].index = make(map[entryKey]*entry)
			m.shards[i].room = (room + n - 1 - i) / n
		}
		m.start = time.Now()
		m.wall = m.start.UnixMicro()
	})
}

func (m *Memory) now(r *Request) int64 {
	if !r.At.IsZero() {
		return r.At.UnixMicro()
	}
	return m.wall + time.Since(m.start).Microseconds()
}

// lock locks the shards of all keys of r, in their order in memory, so that two
// requests cannot wait for each other. The set has a bit for each shard.
func (m *Memory) lock(r *Request) (set uint64) {
	for i := range r.Asks {
		set |= 1 << m.shardOf(r.Asks[i].Key)
	}
	for s := set; s != 0; s &= s - 1 {
		m.shards[bits.TrailingZeros64(s)].mu.Lock()
	}
	return set
}

func (m *Memory) unlock(set uint64) {
	for s := set; s != 0; s &= s - 1 {
		m.shards[bits.TrailingZeros64(s)].mu.Unlock()
	}
}

func (m *Memory) shardOf(key string) int {
	if len(m.shards) == 1 {
		return 0
	}
	return int(maphash.String(m.seed, key) & uint64(len(m.shards)-1))
}

// find returns the count of key under id; nil: unused.
func (m *Memory) find(key, id string) *entry {
	return m.shards[m.shardOf(key)].index[entryKey{key, id}]
}

// Take implements Store.
func (m *Memory) Take(_ context.Context, r *Request, out []Decision) (Decision, error) {
	m.init()
	set := m.lock(r)
	defer m.unlock(set)
	return m.take(r, m.now(r), out)
}

// TakeEach implements EachTaker.
func (m *Memory) TakeEach(ctx context.Context, rs []Request, answers []Answer) {
	for i := range rs {
		a := &answers[i]
		a.Decision, a.Err = m.Take(ctx, &rs[i], a.Each)
	}
}

// step is what is known of one ask between looking and settling.
type step struct {
	entry *entry
	view  algo.View
	fits  bool
}

// stateOr is the state of a count; of nil, that of a key that is unused.
func (e *entry) stateOr(unused *algo.State) *algo.State {
	if e == nil {
		return unused
	}
	return &e.state
}

// fewAsks is how many asks are decided without allocating.
const fewAsks = 8

func (m *Memory) take(r *Request, now int64, out []Decision) (Decision, error) {
	d, stale := m.banned(r, now)
	if d.BanLeft > 0 {
		return d, nil
	}
	var few [fewAsks]step
	steps := few[:0]
	allowed := true
	var unused algo.State
	for i := range r.Asks {
		a := &r.Asks[i]
		s := step{entry: m.find(a.Key, a.Limit.id)}
		s.view = a.Limit.plan.Look(s.entry.stateOr(&unused), now)
		s.fits = a.Limit.plan.Fits(&s.view, a.Cost)
		allowed = allowed && s.fits
		steps = append(steps, s)
	}
	if allowed {
		if err := m.place(r, steps, now); err != nil {
			return Decision{}, err
		}
	}
	d = m.settle(r, steps, now, allowed, out)
	if !allowed {
		m.punish(r, steps, now, &d)
	} else if stale {
		m.dropStale(r, now)
	}
	return d, nil
}

// place finds room for the counts that are about to be charged and are not
// there yet: all of them, or none, and then nothing has given way.
func (m *Memory) place(r *Request, steps []step, now int64) error {
	missing := 0
	for i := range steps {
		if steps[i].entry != nil {
			steps[i].entry.pinned = true
		} else if r.Asks[i].Cost > 0 {
			missing++
		}
	}
	var err error
	if missing > 0 {
		err = m.placeMissing(r, steps, now)
	}
	for i := range steps {
		if e := steps[i].entry; e != nil {
			e.pinned = false
		}
	}
	return err
}

func (m *Memory) placeMissing(r *Request, steps []step, now int64) error {
	var victims []*entry
	for i := range steps {
		a := &r.Asks[i]
		if steps[i].entry != nil || a.Cost == 0 {
			continue
		}
		s := &m.shards[m.shardOf(a.Key)]
		m.sweep(s, r, now)
		if len(s.all)+s.reserved < s.room {
			s.reserved++
			continue
		}
		victim := s.victim(now, m.least.Load(), false)
		if victim == nil {
			m.unreserve(r)
			for _, v := range victims {
				v.pinned = false
			}
			return ErrFull
		}
		victim.pinned = true
		victims = append(victims, victim)
	}
	m.unreserve(r)
	for _, v := range victims {
		m.shards[m.shardOf(v.key)].remove(v)
	}
	for i := range steps {
		if a := &r.Asks[i]; steps[i].entry == nil && a.Cost > 0 {
			steps[i].entry = m.shards[m.shardOf(a.Key)].add(entryKey{a.Key, a.Limit.id})
		}
	}
	return nil
}

func (m *Memory) unreserve(r *Request) {
	for i := range r.Asks {
		m.shards[m.shardOf(r.Asks[i].Key)].reserved = 0
	}
}

// sweep is shard.sweep, where that may be. Where the caller gives the instant,
// which may lie before another that was given, what is unused at this one goes
// only if room is needed.
func (m *Memory) sweep(s *shard, r *Request, now int64) {
	if r.At.IsZero() {
		s.sweep(now)
	}
}

func (m *Memory) settle(r *Request, steps []step, now int64, allowed bool, out []Decision) Decision {
	var few [fewAsks]Decision
	if out == nil {
		out = few[:0]
		if len(steps) > fewAsks {
			out = make([]Decision, 0, len(steps))
		}
		out = out[:len(steps)]
	}
	for i := range steps {
		a, s := &r.Asks[i], &steps[i]
		var unused algo.State
		v := a.Limit.plan.Settle(s.entry.stateOr(&unused), &s.view, a.Cost, allowed)
		if allowed && a.Cost > 0 {
			s.entry.limit = a.Limit
			s.entry.unused = s.view.Now + v.Reset
		}
		out[i] = DecisionOf(a, v)
	}
	return Strictest(out[:len(steps)])
}

// banned answers with the ban of r's keys that runs longest, if one does. stale
// tells whether a record is from a future that cannot be.
func (m *Memory) banned(r *Request, now int64) (d Decision, stale bool) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil {
			continue
		}
		if e := m.find(a.Key, a.Penalty.id); e != nil {
			left := algo.Duration(a.Penalty.plan.BanLeft(&e.record, now))
			stale = stale || a.Penalty.plan.Ahead(&e.record, now)
			if left > d.BanLeft {
				d = Decision{Outcome: Banned, Key: a.Key, RetryAfter: left, BanLeft: left, Penalty: a.Penalty}
			}
		}
	}
	return d, stale
}

// dropStale forgets the records that lie too far ahead of now, of asks that were
// charged, so that no ban comes back when the clock has come to it again.
func (m *Memory) dropStale(r *Request, now int64) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil || a.Cost == 0 {
			continue
		}
		if e := m.find(a.Key, a.Penalty.id); e != nil && a.Penalty.plan.Ahead(&e.record, now) {
			m.shards[m.shardOf(a.Key)].remove(e)
		}
	}
}

// punish counts one violation for each key and penalty of an ask that refused.
func (m *Memory) punish(r *Request, steps []step, now int64, d *Decision) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty != nil && isFirst(r, i) && refused(r, steps, a) {
			sentence, left := m.violate(r, a, now)
			d.Punish(a.Penalty, sentence, algo.Duration(left))
		}
	}
}

// isFirst tells whether ask i is the first with its key and penalty.
func isFirst(r *Request, i int) bool {
	for j := range i {
		if r.Asks[j].sharesRecord(&r.Asks[i]) {
			return false
		}
	}
	return true
}

// refused tells whether an ask with the key and penalty of a refused.
func refused(r *Request, steps []step, a *Ask) bool {
	for i := range steps {
		if !steps[i].fits && r.Asks[i].sharesRecord(a) {
			return true
		}
	}
	return false
}

// violate counts a violation of a's key. Where there is no room to remember it
// but by forgetting what is in use, the request is refused all the same, and that
// is all.
func (m *Memory) violate(r *Request, a *Ask, now int64) (algo.Sentence, int64) {
	e := m.find(a.Key, a.Penalty.id)
	if e == nil {
		s := &m.shards[m.shardOf(a.Key)]
		m.sweep(s, r, now)
		if len(s.all) >= s.room {
			victim := s.victim(now, m.least.Load(), true)
			if victim == nil {
				return algo.Limited, 0
			}
			s.remove(victim)
		}
		e = s.add(entryKey{a.Key, a.Penalty.id})
	}
	p := &a.Penalty.plan
	e.penalty = a.Penalty
	sentence := p.Violate(&e.record, now)
	e.unused = p.Clean(&e.record)
	return sentence, p.BanLeft(&e.record, now)
}

// GiveBack implements GiveBacker.
func (m *Memory) GiveBack(_ context.Context, r *Request) error {
	m.init()
	defer m.unlock(m.lock(r))
	now := m.now(r)
	for i := range r.Asks {
		a := &r.Asks[i]
		e := m.find(a.Key, a.Limit.id)
		if e != nil && a.Limit.plan.GiveBack(&e.state, now, a.Cost) {
			m.shards[m.shardOf(a.Key)].remove(e)
		}
	}
	return nil
}

// Reset implements Resetter.
func (m *Memory) Reset(_ context.Context, r *Request) error {
	m.init()
	defer m.unlock(m.lock(r))
	for i := range r.Asks {
		a := &r.Asks[i]
		s := &m.shards[m.shardOf(a.Key)]
		if a.Limit != nil {
			s.remove(s.index[entryKey{a.Key, a.Limit.id}])
		}
		if a.Penalty != nil {
			s.remove(s.index[entryKey{a.Key, a.Penalty.id}])
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
		n += len(s.all)
		s.mu.Unlock()
	}
	return n
}
