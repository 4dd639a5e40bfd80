package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/store"
)

func TestKit(t *testing.T) {
	steps := 40_000
	if testing.Short() {
		steps = 5_000
	}
	plain := func(rows *mapRows) stint.Store { return store.New(rows) }
	for _, c := range []struct {
		name string
		set  func(*mapRows)
		over func(*mapRows) stint.Store
	}{
		{"rows", func(*mapRows) {}, plain},
		{"conflicts", func(m *mapRows) { m.conflict = true }, plain},
		{"the clock of the rows", func(*mapRows) {}, func(rows *mapRows) stint.Store { return byClock{store.New(rows)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rows := func(t *testing.T) *mapRows {
				rows := newRows(t)
				c.set(rows)
				return rows
			}
			limittest.Kit{
				New: func(t *testing.T) stint.Store { return c.over(rows(t)) },
				Fleet: func(t *testing.T) []stint.Store {
					rows := rows(t)
					return []stint.Store{c.over(rows), c.over(rows)}
				},
				Steps: steps,
			}.Run(t)
		})
	}
}

// byClock has the clock of the rows show the instant of a request, which then has none: so rows are
// deleted by the instant, and the kit finds what was deleted too soon.
type byClock struct{ *store.Store }

func showing(ctx context.Context, r *stint.Request) (context.Context, *stint.Request) {
	if r.At.IsZero() {
		return ctx, r
	}
	at := r.At
	now := *r
	now.At = time.Time{}
	return context.WithValue(ctx, clock{}, at), &now
}

func (b byClock) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	ctx, r = showing(ctx, r)
	return b.Store.Take(ctx, r, out)
}

func (b byClock) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	now := make([]stint.Request, len(rs))
	for i := range rs {
		var r *stint.Request
		ctx, r = showing(ctx, &rs[i])
		now[i] = *r
	}
	b.Store.TakeBatch(ctx, now, answers)
}

func (b byClock) Refund(ctx context.Context, r *stint.Request) error {
	ctx, r = showing(ctx, r)
	return b.Store.Refund(ctx, r)
}

func (b byClock) Reset(ctx context.Context, r *stint.Request) error {
	ctx, r = showing(ctx, r)
	return b.Store.Reset(ctx, r)
}

func (b byClock) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	ctx, r = showing(ctx, r)
	return b.Store.Violate(ctx, r)
}

func (b byClock) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	ctx, _ = showing(ctx, &stint.Request{At: at})
	b.Store.Holds(ctx, time.Time{}, calls)
}
