package stint

import (
	"context"
	"errors"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// Memory is a Store in the memory of one process. The zero Memory is empty and ready. It
// must not be copied once used, and may be used from many goroutines at once. It implements
// BatchTaker, Refunder, Resetter, Violator, Inspector and Holder. Its errors wrap ErrFull;
// those of Banned are the context's.
//
// Its clock ignores changes of the system's time. Unused counts are dropped while new keys
// come in. When MaxKeys is reached, a new key takes the place of an unused one, else of one
// that has used little of its limit. An exhausted or banned key never gives way: if there
// is no other, the new key gets ErrFull.
//
// It does not keep the keys of counts. It keeps the keys of penalty records, those of more than 64
// bytes as a hash: see Record.Hashed. docs/decisions/0005-memory.md describes the layout.
type Memory struct {
	// MaxKeys is how many counts are kept: one for each key under each limit, and one
	// for each key under each penalty that it violated. It must not be changed once the
	// Memory is in use. 0: 1,000,000. From 8,192 on, a hash of the key divides the room
	// into up to 2,048 parts, and a part may be full when the whole is 95 % full.
	//
	// There is separate room for records of holds: a sixteenth of MaxKeys, and at least
	// 8,192. A hold beyond that gets ErrFull.
	MaxKeys int

	counts counts.Memory
}

func (m *Memory) open() *counts.Memory {
	room := m.MaxKeys
	if room <= 0 {
		room = counts.DefaultRoom
	}
	m.counts.Open(room)
	return &m.counts
}

// takeOne decides a request of one ask, without a penalty and a MaxDelay, faster than
// making a Request. It returns false if it cannot, for example because the request is
// malformed. d must be zero, and then still is.
func (m *Memory) takeOne(key string, l *Limit, cost, at int64, d *Decision) bool {
	var v algo.Verdict
	if l == nil || l.IsUnlimited() || l.letsNothingPass() || key == "" || len(key) > MaxKey || cost < 0 || !m.counts.TakeOne(key, &l.counted, cost, at, &v) {
		return false
	}
	d.set(key, l, &v)
	return true
}

// fewAsks is how many asks a Memory decides about without allocating.
const fewAsks = 8

// Take implements Store.
func (m *Memory) Take(_ context.Context, r *Request, out []Decision) (d Decision, err error) {
	at := r.instant()
	if r.asOf != 0 {
		now := m.open().Now()
		at = now - int64(uint32(now)-r.asOf)
	}
	if a := &r.Asks[0]; len(r.Asks) == 1 && a.Penalty == nil && a.MaxDelay == 0 {
		if m.takeOne(a.Key, a.Limit, a.Units(), at, &d) {
			if out != nil {
				out[0] = d
			}
			return d, nil
		}
	}
	if len(r.Asks) <= fewAsks/2 { // use no more stack than needed
		var few [fewAsks / 2]counts.Ask
		err = m.take(r, r.counted(few[:]), at, out, &d)
	} else {
		var few [fewAsks]counts.Ask
		err = m.take(r, r.counted(few[:]), at, out, &d)
	}
	return d, err
}

// asOf is Request.asOf for an instant; 0 if l does not count in a Memory.
func (l *Limiter) asOf(t time.Time) uint32 {
	m, ok := As[*Memory](l.store())
	if !ok {
		return 0
	}
	return uint32(m.open().InstantOf(t))
}

// take decides r, whose asks are asks. d must be zero.
func (m *Memory) take(r *Request, asks []counts.Ask, at int64, out []Decision, d *Decision) error {
	var answer counts.Answer
	if err := m.open().Take(asks, r.holding(), at, &answer); err != nil {
		if errors.Is(err, counts.ErrTwice) {
			return r.Asks[answer.Of].duplicate()
		}
		return ErrFull
	}
	if answer.Of == counts.None {
		by := &answer.Punishment
		*d = internals{}.Banned(&r.Asks[by.By], by.BanLeft)
		d.RetryAfter = max(d.RetryAfter, algo.Duration(answer.Wait))
		return nil
	}
	for i := range out {
		out[i] = Decision{}
		out[i].set(r.Asks[i].Key, r.Asks[i].Limit, &asks[i].Verdict)
	}
	v := &asks[answer.Of].Verdict
	v.Delay = answer.Delay
	d.set(r.Asks[answer.Of].Key, r.Asks[answer.Of].Limit, v)
	if p := &answer.Punishment; p.By != counts.None {
		d.RetryAfter = max(d.RetryAfter, algo.Duration(answer.Wait))
		d.punish(r.Asks[p.By].Penalty, p.Punishment)
	}
	return nil
}

// counted returns the asks of r, in the given space if that is enough.
func (r *Request) counted(space []counts.Ask) []counts.Ask {
	if len(r.Asks) > len(space) {
		space = make([]counts.Ask, len(r.Asks))
	}
	asks := space[:len(r.Asks)]
	for i := range asks {
		a, c := &r.Asks[i], &asks[i]
		c.Key, c.Cost, c.MaxDelay = a.Key, a.Units(), a.MaxDelay
		if a.Limit != nil && !a.Limit.IsUnlimited() {
			c.Limit = &a.Limit.counted
		}
		if a.Penalty != nil {
			c.Penalty = &a.Penalty.counted
		}
	}
	return asks
}

// holding has the identity under which r holds units; nil: it holds none.
func (r *Request) holding() *counts.Holding {
	if r.Hold == (HoldID{}) {
		return nil
	}
	return &counts.Holding{ID: counts.HoldID(r.Hold), For: r.HoldFor.Microseconds()}
}

// instant is that of r, or counts.OwnClock.
func (r *Request) instant() int64 {
	if r.At.IsZero() {
		return counts.OwnClock
	}
	return r.At.UnixMicro()
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
	var few [fewAsks / 2]counts.Ask
	m.open().Refund(r.counted(few[:]), r.instant())
	return nil
}

// Reset implements Resetter.
func (m *Memory) Reset(_ context.Context, r *Request) error {
	m.open().Reset(r.counted(nil))
	return nil
}

// Violate implements Violator.
func (m *Memory) Violate(_ context.Context, r *Request) (Decision, error) {
	asks := r.counted(nil)
	for i := range asks {
		asks[i].Cost = r.Asks[i].Cost // the number of violations, not units
	}
	p := m.open().Violate(asks, r.instant())
	if p.By == counts.None {
		return Decision{Outcome: Limited, Key: r.Asks[0].Key}, nil
	}
	a := &r.Asks[p.By]
	if p.Violations == 0 {
		return internals{}.Banned(a, p.BanLeft), nil
	}
	d := Decision{Outcome: Limited, Key: a.Key}
	d.punish(a.Penalty, p.Punishment)
	return d, nil
}

// Record implements Inspector.
func (m *Memory) Record(_ context.Context, key string, p *Penalty) (Record, error) {
	r, now := m.open().Record(key, &p.counted)
	return internals{}.Record(key, p, &r, now), nil
}

// Banned implements Inspector.
func (m *Memory) Banned(ctx context.Context, yield func(Record) bool) error {
	return m.open().Bans(ctx, func(b *counts.Ban) bool {
		r := recordOf(b.Key, b.Penalty, &b.Record, b.Now)
		r.Hashed = b.Hashed
		return yield(r)
	})
}

// Inspect implements Inspector.
func (m *Memory) Inspect(_ context.Context, key string, limits []*Limit) ([]Stored, error) {
	counted := make([]*counts.Limit, len(limits))
	for i, l := range limits {
		counted[i] = &l.counted
	}
	stored := make([]Stored, len(limits))
	for i, held := range m.open().Inspect(key, counted) {
		stored[i] = Stored{Held: held.InUse, Idle: algo.Duration(held.Idle), Expires: algo.Duration(held.Expires)}
	}
	return stored, nil
}

// Len is how many counts are kept, including unused ones that were not dropped yet.
func (m *Memory) Len() int { return m.open().Len() }
