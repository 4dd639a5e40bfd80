// Package sqlstore keeps the counts of Stint in a table of Postgres. It is an example of store.Rows:
// copy it, and adapt it to your database.
//
//	db, err := sql.Open("pgx", "postgres://localhost/app")
//	rows, err := sqlstore.New(ctx, db)
//	limiter := stint.NewLimiter(store.New(rows))
package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/store"
)

// The table is unlogged: that costs a fraction of a logged one, but after a crash of the server all
// counts start again. Keys are compared byte by byte, as COLLATE "C" does.
const schema = `
	CREATE UNLOGGED TABLE IF NOT EXISTS stint (
		key     text COLLATE "C" PRIMARY KEY,
		value   bytea NOT NULL,
		expires timestamptz NOT NULL
	);
	CREATE INDEX IF NOT EXISTS stint_expires ON stint (expires)`

// Rows are the rows of the table. They implement store.Rows and store.Scanner.
type Rows struct{ db *sql.DB }

// New returns Rows in db, and creates the table if it does not exist.
func New(ctx context.Context, db *sql.DB) (*Rows, error) {
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	return &Rows{db}, nil
}

const (
	// A row that does not exist cannot be locked, but its key can, until the transaction ends. keys
	// are in order, so two transactions never wait for each other.
	lock = `SELECT pg_advisory_xact_lock(hashtextextended(key, 0)) FROM unnest($1::text[]) AS key`
	// A statement sees what was committed before it began, so it is not the same one as the lock.
	// The left join returns the clock even if there is no row.
	read = `SELECT clock_timestamp(), ordinality, value
		FROM unnest($1::text[]) WITH ORDINALITY AS asked (key) LEFT JOIN stint USING (key)`
	write = `INSERT INTO stint SELECT * FROM unnest($1::text[], $2::bytea[], $3::timestamptz[])
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires`
	drop = `DELETE FROM stint WHERE key = ANY ($1::text[])`
)

// Update implements store.Rows.
func (r *Rows) Update(ctx context.Context, keys []string, change func(time.Time, [][]byte) ([]store.Row, error)) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return notWritten(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, lock, keys); err != nil {
		return notWritten(err)
	}
	now, values, err := values(ctx, tx, keys)
	if err != nil {
		return notWritten(err)
	}
	rows, err := change(now, values)
	if err != nil || len(rows) == 0 {
		return err // nothing to commit
	}
	if err := writeRows(ctx, tx, rows); err != nil {
		return notWritten(err)
	}
	return tx.Commit() // after an error, the outcome is unknown
}

func notWritten(err error) error { return fmt.Errorf("%w: %w", fleet.ErrNotCharged, err) }

func values(ctx context.Context, tx *sql.Tx, keys []string) (now time.Time, values [][]byte, err error) {
	found, err := tx.QueryContext(ctx, read, keys)
	if err != nil {
		return now, nil, err
	}
	defer found.Close()
	values = make([][]byte, len(keys))
	for found.Next() {
		var i int
		var value []byte
		if err := found.Scan(&now, &i, &value); err != nil {
			return now, nil, err
		}
		values[i-1] = value
	}
	return now, values, found.Err()
}

func writeRows(ctx context.Context, tx *sql.Tx, rows []store.Row) error {
	var keys, gone []string
	var values [][]byte
	var expires []time.Time
	for _, row := range rows {
		if row.Value == nil {
			gone = append(gone, row.Key)
			continue
		}
		keys, values, expires = append(keys, row.Key), append(values, row.Value), append(expires, row.Expires)
	}
	if len(gone) > 0 {
		if _, err := tx.ExecContext(ctx, drop, gone); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, write, keys, values, expires)
	return err
}

// Scan implements store.Scanner.
func (r *Rows) Scan(ctx context.Context, prefix string, yield func(time.Time, string, []byte) bool) error {
	found, err := r.db.QueryContext(ctx, `SELECT clock_timestamp(), key, value FROM stint WHERE starts_with(key, $1)`, prefix)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var now time.Time
		var key string
		var value []byte
		if err := found.Scan(&now, &key, &value); err != nil {
			return err
		}
		if !yield(now, key, value) {
			return nil
		}
	}
	return found.Err()
}

// Clean deletes expired rows. Call it now and then, such as once a minute. It skips rows that a
// transaction has locked, so that neither waits for the other.
func (r *Rows) Clean(ctx context.Context) error {
	_, err := r.db.ExecContext(ctx, `DELETE FROM stint WHERE key IN (
		SELECT key FROM stint WHERE expires < clock_timestamp() FOR UPDATE SKIP LOCKED)`)
	return err
}
