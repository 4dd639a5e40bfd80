package stint

import (
	"context"
	"iter"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Record is how a key stands under a penalty. Where nothing is remembered of the
// key, or nothing that still counts, its numbers are 0.
type Record struct {
	Key string
	// Hashed means that the store has kept a hash of the key, and Key is that:
	// "#" and what follows. Such a ban can be lifted only by who knows the key.
	Hashed bool
	// Penalty is the Name of the penalty's spec.
	Penalty string
	// Violations is how many the next one is added to.
	Violations int64
	// Bans is how many the next ban's growth is reckoned from, a running one
	// among them.
	Bans int64
	// BanLeft is how long the ban still runs; 0: none does.
	BanLeft time.Duration
}

// Record tells how key stands under p, and changes nothing. The error wraps
// ErrUnsupported where the Store cannot do it.
func (l *Limiter) Record(ctx context.Context, key string, p *Penalty) (Record, error) {
	if err := checkPunished(key, p); err != nil {
		return Record{}, err
	}
	if s, ok := As[Inspector](l.store()); ok {
		return s.Record(ctx, key, p)
	}
	return Record{}, unsupported("record")
}

// Banned is every key whose ban runs, with the penalty's name, in no order. A ban
// that is imposed or lifted meanwhile may or may not be there. The Limiter may be
// used meanwhile. An error comes last and with a zero Record; then there may be
// more. It wraps ErrUnsupported where the Store cannot tell.
func (l *Limiter) Banned(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		s, ok := As[Inspector](l.store())
		if !ok {
			yield(Record{}, unsupported("banned"))
			return
		}
		stopped := false
		err := s.Banned(ctx, func(r Record) bool {
			stopped = !yield(r, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Record{}, err)
		}
	}
}

// Record implements Inspector.
func (m *Memory) Record(_ context.Context, key string, p *Penalty) (Record, error) {
	m.init()
	r := Request{Asks: []Ask{{Key: key, Penalty: p}}}
	var few [1]uint64
	defer m.unlock(m.lock(&r, few[:0]))
	var record algo.Record
	if _, e := m.findRecord(key, p); e != nil {
		record = e.record.Record
	}
	return recordOf(key, p, &record, m.now(&r)), nil
}

// recordOf is how a key with a record stands at an instant in µs.
func recordOf(key string, p *Penalty, r *algo.Record, now int64) Record {
	violations, bans := p.plan.Standing(r, now)
	return Record{Key: key, Penalty: p.spec.Name, Violations: violations, Bans: bans, BanLeft: algo.Duration(p.plan.BanLeft(r, now))}
}

// Banned implements Inspector.
func (m *Memory) Banned(ctx context.Context, yield func(Record) bool) error {
	m.init()
	for i := range m.shards {
		seen := make(map[uint64]bool)
		for left := -1; left != 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			var some []Record
			some, left = m.bannedIn(&m.shards[i], left, seen)
			for _, r := range some {
				if !yield(r) {
					return nil
				}
			}
		}
	}
	return nil
}

// lookedAt is how many entries are looked at under one lock.
const lookedAt = 4096

// bannedIn returns the bans among the last entries before place left (-1: the end)
// and the place that it has come to. It walks towards the front, for an entry
// only ever moves that way: none is missed, and what has moved was seen.
func (m *Memory) bannedIn(s *shard, left int, seen map[uint64]bool) ([]Record, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock()
	if left < 0 || left > len(s.all) {
		left = len(s.all)
	}
	var banned []Record
	front := max(0, left-lookedAt)
	for _, e := range s.all[front:left] {
		if e.record == nil || seen[e.print] {
			continue
		}
		if r := recordOf(e.record.key, e.record.penalty, &e.record.Record, now); r.BanLeft > 0 {
			r.Hashed = e.record.hashed
			seen[e.print] = true
			banned = append(banned, r)
		}
	}
	return banned, front
}
