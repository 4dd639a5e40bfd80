package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/examples/sqlstore"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/store"
)

func TestPostgres(t *testing.T) {
	server := start(t)
	t.Run("kit", func(t *testing.T) { passesKit(t, server) })
	t.Run("crowd", func(t *testing.T) { servesCrowd(t, server) })
	t.Run("clean", func(t *testing.T) { cleans(t, server) })
	t.Run("away", func(t *testing.T) { isAway(t, server) })
}

// The two stores of a fleet have connections of their own.
func passesKit(t *testing.T, server *server) {
	kit := limittest.Kit{
		New: func(t *testing.T) stint.Store { return store.New(server.rows(t, server.schema(t))) },
		Fleet: func(t *testing.T) []stint.Store {
			schema := server.schema(t)
			return []stint.Store{store.New(server.rows(t, schema)), store.New(server.rows(t, schema))}
		},
		Steps: 20_000,
		Skip:  []string{"Burst"}, // of 20,000 calls about one key, one after another: servesCrowd is shorter
	}
	if testing.Short() { // what takes long proves the arithmetic, which is package store's
		kit.Steps = 500
		kit.Skip = append(kit.Skip, "Vectors", "HoldVectors", "LongLogs", "ManyHolds", "SlidingLogIsExact", "BucketsRefillAtTheRate",
			"DenialChangesNothing", "RetryAfterIsExact", "RetryAfterSuffices", "RemainingIsExact", "ResetAfterIsExact",
			"TogetherNoMoreThanTheLargest", "Clocks", "ClocksOfBans", "TakeBatch", "Linearizable", "LinearizableHolds")
	}
	kit.Run(t)
}

// A crowd over several keys, in any order, takes all or nothing, and none waits for another for ever.
func servesCrowd(t *testing.T, server *server) {
	schema := server.schema(t)
	const callers, each, amount = 16, 20, 100
	limit, other := stint.MustLimit("one: 100 per 1000h"), stint.MustLimit("other: 100 per 1000h fixed_window")
	var allowed atomic.Int64
	done := make(chan error, callers)
	for i := range callers {
		s := store.New(server.rows(t, schema))
		go func() {
			var errs error
			for j := range each {
				asks := []stint.Ask{{Key: "a", Limit: limit}, {Key: "b", Limit: other}}
				if (i+j)%2 == 0 {
					asks[0], asks[1] = asks[1], asks[0]
				}
				d, err := s.Take(t.Context(), &stint.Request{Asks: asks}, nil)
				errs = errors.Join(errs, err)
				if d.Allowed {
					allowed.Add(1)
				}
			}
			done <- errs
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if allowed.Load() != amount {
		t.Errorf("%d were allowed of %d", allowed.Load(), amount)
	}
}

// Clean deletes what counts for nothing, and no more.
func cleans(t *testing.T, server *server) {
	rows := server.rows(t, server.schema(t))
	write := func(key string, expires time.Duration) {
		err := rows.Update(t.Context(), []string{key}, func(now time.Time, _ [][]byte) ([]store.Row, error) {
			return []store.Row{{Key: key, Value: []byte("x"), Expires: now.Add(expires)}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	write("ended", -time.Millisecond)
	write("lasts", time.Hour)
	if err := rows.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := rows.Update(t.Context(), []string{"ended", "lasts"}, func(_ time.Time, values [][]byte) ([]store.Row, error) {
		if values[0] != nil || string(values[1]) != "x" {
			t.Errorf("there are %q", values)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Without the server nothing is charged, and the error says so.
func isAway(t *testing.T, server *server) {
	rows := server.rows(t, server.schema(t))
	server.stop()
	_, err := stint.NewLimiter(store.New(rows)).Allow(t.Context(), "k", stint.MustLimit("5 per 1h"))
	if !errors.Is(err, fleet.ErrNotCharged) {
		t.Errorf("the error is %v", err)
	}
}

// BenchmarkDecisions compares a decision with the least that a transaction takes.
func BenchmarkDecisions(b *testing.B) {
	server := start(b)
	limit := stint.MustLimit("1000000000 per 1h")
	for _, callers := range []int{1, 32} {
		db := server.open(b, "public")
		rows, err := sqlstore.New(b.Context(), db)
		if err != nil {
			b.Fatal(err)
		}
		s := store.New(rows)
		for _, bench := range []struct {
			name string
			do   func(i int64) error
		}{
			{"floor", func(int64) error { return floor(b.Context(), db) }},
			{"decision", func(i int64) error {
				_, err := s.Take(b.Context(), &stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint(i % 10_000), Limit: limit}}}, nil)
				return err
			}},
			{"decision about one key", func(int64) error {
				_, err := s.Take(b.Context(), &stint.Request{Asks: []stint.Ask{{Key: "hot", Limit: limit}}}, nil)
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, callers), func(b *testing.B) { inParallel(b, callers, bench.do) })
		}
	}
}

// floor is a transaction that does nothing.
func floor(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
		return err
	}
	return tx.Commit()
}

func inParallel(b *testing.B, callers int, do func(i int64) error) {
	var next atomic.Int64
	done := make(chan error, callers)
	for range callers {
		go func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := do(i); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
