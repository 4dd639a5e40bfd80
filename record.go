package stint

import (
	"context"
	"iter"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
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

// recordOf is how a key with a record stands at an instant in µs.
func recordOf(key string, p *counts.Penalty, r *algo.Record, now int64) Record {
	violations, bans := p.Plan.Standing(r, now)
	return Record{Key: key, Penalty: p.Name, Violations: violations, Bans: bans, BanLeft: algo.Duration(p.Plan.BanLeft(r, now))}
}
