package redislimit

import (
	"errors"
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// noRoom is the error of a server that refuses writes and has written nothing, but answers.
type noRoom struct{ error }

func (e noRoom) Unwrap() []error { return []error{fleet.ErrNotCharged, stint.ErrFull, e.error} }

func markNotCharged(err error) error {
	switch {
	case conn.WritesRefused(err):
		return noRoom{err}
	case conn.NothingWritten(err):
		return fmt.Errorf("%w: %w", fleet.ErrNotCharged, err)
	case conn.IsNoString(err):
		return fmt.Errorf("%w: %w", fleet.ErrBadReply, err)
	}
	return err
}

func notSent(err error) error {
	return fmt.Errorf("redislimit: %w: %w", fleet.ErrNotCharged, err)
}

// badReply is the error of a reply that no script of this package makes. It is unknown whether units
// were charged.
func badReply(format string, args ...any) error {
	return fmt.Errorf("redislimit: unexpected reply of the script: %w: %w", fleet.ErrBadReply, fmt.Errorf(format, args...))
}

// unwritten has the reasons why a server did not write a charge, by the numbers of room.lua.
var unwritten = map[int64]error{
	3: errors.New("OOM command not allowed when used memory > 'maxmemory'"),
	4: errors.New("MISCONF errors writing to the disk"),
	5: errors.New("NOREPLICAS not enough good replicas to write"),
}

func brokenKey(key string, wrongType bool) error {
	what := "a value that is not Stint's"
	if wrongType {
		what = "another type of value"
	}
	return fmt.Errorf("redislimit: key %q holds %s: %w: delete the key, or give Stint a namespace or database of its own", key, what, fleet.ErrBroken)
}
