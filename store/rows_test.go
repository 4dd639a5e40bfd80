package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/store"
)

// mapRows are Rows in a map. They delete a row as soon as they may, and check what they are asked.
type mapRows struct {
	t *testing.T

	mu      sync.Mutex
	rows    map[string]store.Row
	before  map[string]store.Row // as the last Update found them
	updates int
	written int

	unclear  bool  // they have no clock
	conflict bool  // each change is made twice, the first time of old values
	fail     error // of each Update, in place of a write
}

func newRows(t *testing.T) *mapRows { return &mapRows{t: t, rows: map[string]store.Row{}} }

// clock is the key under which a context has the instant that the rows' clock shows.
type clock struct{}

func now(ctx context.Context) time.Time {
	if at, ok := ctx.Value(clock{}).(time.Time); ok {
		return at
	}
	return time.Now()
}

func (m *mapRows) Update(ctx context.Context, keys []string, change func(time.Time, [][]byte) ([]store.Row, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updates++
	m.check(keys)
	now := now(ctx)
	told := now
	if m.unclear {
		told = time.Time{}
	}
	maps.DeleteFunc(m.rows, func(_ string, r store.Row) bool { return !r.Expires.After(now) })
	if m.conflict {
		_, _ = change(told, valuesOf(m.before, keys))
	}
	rows, err := change(told, valuesOf(m.rows, keys))
	if err != nil {
		return fmt.Errorf("rolled back: %w", err)
	}
	if m.fail != nil {
		return m.fail
	}
	m.before = maps.Clone(m.rows)
	for _, r := range rows {
		m.written++
		switch _, there := m.rows[r.Key]; {
		case !slices.Contains(keys, r.Key):
			m.t.Errorf("%q is written, of %q", r.Key, keys)
		case r.Value == nil && !there && !m.conflict:
			m.t.Errorf("%q is deleted and was not there", r.Key)
		case r.Value == nil:
			delete(m.rows, r.Key)
		case !r.Expires.After(now) && !m.unclear:
			m.t.Errorf("%q is written and has ended by %s", r.Key, now.Sub(r.Expires))
		default:
			m.rows[r.Key] = r
		}
	}
	return nil
}

func valuesOf(rows map[string]store.Row, keys []string) [][]byte {
	values := make([][]byte, len(keys))
	for i, k := range keys {
		values[i] = rows[k].Value
	}
	return values
}

func (m *mapRows) check(keys []string) {
	if len(keys) == 0 || !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		m.t.Errorf("keys %q: not in order, or equal", keys)
	}
	for _, k := range keys {
		if len(k) > store.MaxRowKey || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }) {
			m.t.Errorf("key %q of %d bytes", k, len(k))
		}
	}
}

func (m *mapRows) Scan(ctx context.Context, prefix string, yield func(time.Time, string, []byte) bool) error {
	m.mu.Lock()
	rows := slices.SortedFunc(maps.Values(m.rows), func(a, b store.Row) int { return strings.Compare(a.Key, b.Key) })
	m.mu.Unlock()
	for _, r := range rows {
		if strings.HasPrefix(r.Key, prefix) && !yield(now(ctx), r.Key, r.Value) {
			return nil
		}
	}
	return nil
}

func (m *mapRows) snapshot() map[string]store.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.rows)
}

var errAway = errors.New("the database is away")
