package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
)

var kit = stint.Internal(friend.Of{})

// turn has the rows of one Update.
type turn struct {
	keys   []string
	places map[string]*place // by key
}

// place is the content of a row: a count, or a record under a penalty.
type place struct {
	key     string
	limit   *stint.Limit // nil: it is a record
	penalty *stint.Penalty
	before  []byte
	err     error // why before cannot be read
}

func (t *turn) addAsks(asks []stint.Ask) {
	for i := range asks {
		a := &asks[i]
		t.addCount(a.Key, a.Limit)
		if a.Penalty != nil {
			t.add(recordKey(a.Key, a.Penalty), &place{key: a.Key, penalty: a.Penalty})
		}
	}
}

// addCount adds the count of a key under a limit. Limits that let all or nothing pass have no count.
func (t *turn) addCount(key string, l *stint.Limit) {
	if l != nil && !l.IsUnlimited() && l.Capacity() > 0 {
		t.add(countKey(key, l), &place{key: key, limit: l})
	}
}

func (t *turn) add(row string, p *place) {
	if t.places == nil {
		t.places = make(map[string]*place)
	}
	if t.places[row] == nil {
		t.places[row] = p
		t.keys = append(t.keys, row)
	}
}

// unreadable returns why asks cannot be decided.
func (t *turn) unreadable(asks []stint.Ask) error {
	for i := range asks {
		a := &asks[i]
		if err := t.unreadableCount(a.Key, a.Limit); err != nil {
			return err
		}
		if a.Penalty != nil {
			if p := t.places[recordKey(a.Key, a.Penalty)]; p.err != nil {
				return p.err
			}
		}
	}
	return nil
}

func (t *turn) unreadableCount(key string, l *stint.Limit) error {
	if l != nil {
		if p := t.places[countKey(key, l)]; p != nil {
			return p.err
		}
	}
	return nil
}

// update lets do change the rows of t, in a Memory. at is the instant of the request or, if it has
// none, the database's.
func (s *Store) update(ctx context.Context, t *turn, at time.Time, do func(m *stint.Memory, at time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return notCharged(err)
	}
	slices.Sort(t.keys)
	called, failed := false, error(nil)
	change := func(now time.Time, values [][]byte) ([]Row, error) {
		if now.IsZero() {
			now = time.Now()
		}
		called = true
		var m *stint.Memory
		if m, failed = t.read(now, values); failed == nil {
			instant := at
			if at.IsZero() {
				instant = now
			}
			failed = do(m, instant)
		}
		if failed != nil {
			return nil, failed
		}
		return t.written(m, now, !at.IsZero()), nil
	}
	if len(t.keys) == 0 {
		_, err := change(time.Time{}, nil)
		return err
	}
	err := s.rows.Update(ctx, t.keys, change)
	switch {
	case failed != nil:
		return notCharged(failed)
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case !called:
		return notCharged(errors.New("Rows.Update returned without a change and without an error"))
	}
	return nil
}

func notCharged(err error) error { return fmt.Errorf("store: %w: %w", fleet.ErrNotCharged, err) }

// read puts the values of rows into a Memory.
func (t *turn) read(now time.Time, values [][]byte) (*stint.Memory, error) {
	if len(values) != len(t.keys) {
		return nil, fmt.Errorf("Rows.Update read %d values of %d rows", len(values), len(t.keys))
	}
	m := kit.MemoryFor(now.UnixMicro())
	for i, row := range t.keys {
		p := t.places[row]
		p.before, p.err = values[i], nil
		if values[i] == nil {
			continue
		}
		if err := p.put(m, values[i]); err != nil {
			p.err = notCharged(fmt.Errorf("row %q: %w: %w", row, fleet.ErrBroken, err))
		}
	}
	return m, nil
}

func (p *place) put(m *stint.Memory, value []byte) error {
	if p.limit == nil {
		r, err := readRecord(value)
		if err == nil {
			kit.PutRecord(m, p.key, p.penalty, &r)
		}
		return err
	}
	k, err := readKept(kit.Plan(p.limit), value)
	if err == nil {
		kit.Put(m, p.key, p.limit, &k)
	}
	return err
}

// keepGiven is how long a row lasts if requests give their own instants, in tests and simulations:
// the database's clock must not end it.
const keepGiven = 24 * time.Hour

// written returns the rows that have changed in m.
func (t *turn) written(m *stint.Memory, now time.Time, given bool) []Row {
	var rows []Row
	for _, row := range t.keys {
		p := t.places[row]
		if p.err != nil {
			continue
		}
		value, unused := p.value(m)
		expires := time.UnixMicro(unused)
		if given {
			expires = now.Add(keepGiven)
		}
		switch {
		case value == nil || !expires.After(now):
			if p.before != nil {
				rows = append(rows, Row{Key: row})
			}
		case !bytes.Equal(value, p.before):
			rows = append(rows, Row{row, value, expires})
		}
	}
	return rows
}

// keepRunOut is how long an expired hold is kept, in µs, because a clock may step back.
const keepRunOut = 1_000_000

// value returns the value in m, nil if nothing counts, and the instant from which it counts for
// nothing.
func (p *place) value(m *stint.Memory) (value []byte, unused int64) {
	if p.limit == nil {
		r := kit.KeptRecord(m, p.key, p.penalty)
		if r.Last == 0 && r.Forget == 0 {
			return nil, 0
		}
		return appendRecord(nil, &r), r.Clean()
	}
	k := kit.Kept(m, p.key, p.limit)
	if !k.State.IsZero() {
		unused = kit.Plan(p.limit).Unused(&k.State)
	} else if len(k.Holds) == 0 {
		return nil, 0
	}
	for i := range k.Holds {
		unused = max(unused, k.Holds[i].Until+keepRunOut)
	}
	return appendKept(nil, kit.Plan(p.limit), &k), unused
}
