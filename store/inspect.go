package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// Record implements stint.Inspector.
func (s *Store) Record(ctx context.Context, key string, p *stint.Penalty) (r stint.Record, err error) {
	err = s.updateAsks(ctx, &stint.Request{Asks: []stint.Ask{{Key: key, Penalty: p}}}, func(m *stint.Memory, _ *stint.Request) (err error) {
		r, err = m.Record(ctx, key, p)
		return err
	})
	return r, err
}

// Inspect implements stint.Inspector.
func (s *Store) Inspect(ctx context.Context, key string, limits []*stint.Limit) (stored []stint.Stored, err error) {
	err = s.look(ctx, key, limits, func(m *stint.Memory, _ time.Time) (err error) {
		stored, err = m.Inspect(ctx, key, limits)
		return err
	})
	return stored, err
}

// Held implements stint.Holder.
func (s *Store) Held(ctx context.Context, key string, limits []*stint.Limit) (held []stint.Hold, err error) {
	limits = slices.DeleteFunc(slices.Clone(limits), func(l *stint.Limit) bool { return !l.IsHeld() })
	err = s.look(ctx, key, limits, func(m *stint.Memory, _ time.Time) (err error) {
		held, err = m.Held(ctx, key, limits)
		return err
	})
	return held, err
}

// look calls do with a Memory that has the counts of a key.
func (s *Store) look(ctx context.Context, key string, limits []*stint.Limit, do func(m *stint.Memory, now time.Time) error) error {
	var t turn
	for _, l := range limits {
		t.addCount(key, l)
	}
	return s.update(ctx, &t, time.Time{}, func(m *stint.Memory, now time.Time) error {
		for _, l := range limits {
			if err := t.unreadableCount(key, l); err != nil {
				return err
			}
		}
		return do(m, now)
	})
}

// Banned implements stint.Inspector. It needs a Scanner, and reads the records of all keys, also of those
// that are not banned. It skips rows that cannot be read.
func (s *Store) Banned(ctx context.Context, yield func(stint.Record) bool) error {
	scanner, ok := s.rows.(Scanner)
	if !ok {
		return fmt.Errorf("store: banned: %w: the Rows are no Scanner", stint.ErrUnsupported)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: banned: %w", err)
	}
	err := scanner.Scan(ctx, records, func(now time.Time, row string, value []byte) bool {
		if now.IsZero() {
			now = time.Now()
		}
		subject, hashed, penalty, ok := parseRecordKey(row)
		r, err := readRecord(value)
		if !ok || err != nil {
			return true
		}
		// A running ban has no violations and no forgotten bans, so the penalty is not needed.
		left := new(algo.Penalty).BanLeft(&r, now.UnixMicro())
		return left == 0 || yield(stint.Record{
			Key: subject, Hashed: hashed, Penalty: penalty, Violations: r.Violations, Bans: r.Bans, BanLeft: algo.Duration(left),
		})
	})
	if err != nil {
		return fmt.Errorf("store: banned: %w", err)
	}
	return nil
}
