// Package store makes a stint.Store from any database that can change a few rows of bytes atomically,
// with transactions or with a compare-and-swap over several keys. You write Rows, one method of some
// twenty lines, and get all algorithms, penalties and holds:
//
//	limiter := stint.NewLimiter(store.New(rows))
//
// The Store decides exactly as stint.Memory does, in the process that asks: in one transaction for each
// decision, it reads the rows of the keys, decides, and writes the new values. docs/write-a-store.md
// shows how to write Rows over Postgres, and how package limittest tests them.
package store

import (
	"context"
	"time"

	"github.com/stintdev/stint"
)

// Rows are rows of bytes in a database, each with a key. They may be used from many goroutines at once,
// and by many processes.
//
// Update replaces the values of some rows by those that change returns, as if nobody else read or wrote
// these rows meanwhile. It calls change with the value of each of keys, in their order, nil if there is
// no row, and then writes the rows that change returns: all of them or, after an error, none. If others
// have changed a row meanwhile, it may call change again with newer values, as often as necessary; only
// the rows of the last call are written. If change returns an error, Update writes nothing and returns
// that error.
//
// keys are distinct and in ascending order: Updates that lock rows in this order do not deadlock. A key
// is printable ASCII of at most MaxRowKey bytes, and the database must distinguish keys that differ only
// in case. A row that does not exist must be locked like one that does: of two Updates that both create
// it, the second must see what the first wrote.
//
// now is the instant of the change by the database's clock, read when the rows are locked, so that a
// fleet has one clock. A database without a clock passes the zero Time: then the clock of this
// process is used.
//
// After an error that wraps fleet.ErrNotCharged, certainly nothing was written; after any other it is
// unknown, so an Update must not repeat a commit that was not answered.
type Rows interface {
	Update(ctx context.Context, keys []string, change func(now time.Time, values [][]byte) ([]Row, error)) error
}

// MaxRowKey is the length of the longest key of a row, in bytes.
const MaxRowKey = 1024

// Row is a row to be written.
type Row struct {
	Key string // one of the keys of Update
	// Value replaces the row's value. nil: the row is deleted.
	Value []byte
	// Expires is when the row counts for nothing any more, by the clock of now: the database may
	// delete it then, and should do so eventually. It need not hide it.
	Expires time.Time
}

// Scanner is Rows that can list themselves, for Limiter.Banned. Scan calls yield for each row whose key
// begins with prefix, once, until yield returns false, which is not an error. now is as in Update. yield
// may call Update.
type Scanner interface {
	Scan(ctx context.Context, prefix string, yield func(now time.Time, key string, value []byte) bool) error
}

// Store is a stint.Store over Rows. It may be used from many goroutines at once. It implements
// stint.BatchTaker, stint.Refunder, stint.Resetter, stint.Violator, stint.Inspector and stint.Holder.
// Banned needs Rows that are a Scanner; the error wraps stint.ErrUnsupported if they are not.
//
// A call makes one Update; lists and batches make one for each 64 rows or so. The error is that of the
// Update. If a row cannot be read, it names the row and wraps fleet.ErrBroken and fleet.ErrNotCharged.
// It also wraps fleet.ErrNotCharged if the context had ended before. Request.Deadline ends the context
// of the Update.
//
// For a fleet, put fleet.New around it, which answers while the database does not.
type Store struct{ rows Rows }

// New returns a Store over rows. Stores over the same rows share all counts.
func New(rows Rows) *Store { return &Store{rows} }

// Take implements stint.Store.
func (s *Store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	answers := [1]stint.Answer{{Each: out}}
	s.takeSome(ctx, []stint.Request{*r}, answers[:])
	return answers[0].Decision, answers[0].Err
}

// rowsAtOnce bounds the rows of one Update of a batch or a list: databases have their own limits, and
// others wait for locked rows.
const rowsAtOnce = 64

// TakeBatch implements stint.BatchTaker.
func (s *Store) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for len(rs) > 0 {
		n, asks := 1, len(rs[0].Asks)
		for n < len(rs) && asks+len(rs[n].Asks) <= rowsAtOnce {
			asks += len(rs[n].Asks)
			n++
		}
		s.takeSome(ctx, rs[:n], answers[:n])
		rs, answers = rs[n:], answers[n:]
	}
}

func (s *Store) takeSome(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	if d := rs[0].Deadline; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	var t turn
	for i := range rs {
		t.addAsks(rs[i].Asks)
	}
	got := make([]stint.Answer, len(rs))
	err := s.update(ctx, &t, rs[0].At, func(m *stint.Memory, at time.Time) error {
		for i := range rs {
			g := &got[i]
			*g = stint.Answer{Each: append([]stint.Decision(nil), answers[i].Each...), Err: t.unreadable(rs[i].Asks)}
			if g.Err == nil {
				r := rs[i]
				r.At = at
				g.Decision, g.Err = m.Take(ctx, &r, g.Each)
			}
		}
		return nil
	})
	for i := range answers {
		a := &answers[i]
		if err != nil {
			a.Decision, a.Err = stint.Decision{}, err
			continue
		}
		a.Decision, a.Err = got[i].Decision, got[i].Err
		copy(a.Each, got[i].Each)
	}
}

// Refund implements stint.Refunder.
func (s *Store) Refund(ctx context.Context, r *stint.Request) error {
	return s.updateAsks(ctx, r, func(m *stint.Memory, r *stint.Request) error { return m.Refund(ctx, r) })
}

// Reset implements stint.Resetter. A row that cannot be read is deleted.
func (s *Store) Reset(ctx context.Context, r *stint.Request) error {
	var t turn
	t.addAsks(r.Asks)
	return s.update(ctx, &t, r.At, func(m *stint.Memory, _ time.Time) error {
		for _, p := range t.places {
			p.err = nil // so that it is written as empty, as in m
		}
		return m.Reset(ctx, r)
	})
}

// Violate implements stint.Violator.
func (s *Store) Violate(ctx context.Context, r *stint.Request) (d stint.Decision, err error) {
	err = s.updateAsks(ctx, r, func(m *stint.Memory, r *stint.Request) (err error) {
		d, err = m.Violate(ctx, r)
		return err
	})
	return d, err
}

func (s *Store) updateAsks(ctx context.Context, r *stint.Request, do func(*stint.Memory, *stint.Request) error) error {
	var t turn
	t.addAsks(r.Asks)
	return s.update(ctx, &t, r.At, func(m *stint.Memory, at time.Time) error {
		if err := t.unreadable(r.Asks); err != nil {
			return err
		}
		now := *r
		now.At = at
		return do(m, &now)
	})
}
