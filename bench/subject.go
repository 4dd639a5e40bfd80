package main

import (
	"context"
	"time"
)

type kind string

const (
	floor kind = "floor"
	ours  kind = "Stint"
	peer  kind = "peer"
)

// spec is the limit of all subjects of a table.
type spec struct {
	amount int64
	period time.Duration
}

// A subject is measured.
type subject struct {
	name string
	kind kind
	// log marks subjects that remember each request. They get the table's limit for
	// logs, because under a long period they would remember millions.
	log bool
	// holds marks subjects with holds from a request's start to its end, so that it takes two calls.
	holds bool
	// foreign marks a process of another program, whose allocations are not known.
	foreign bool
	// beside names the floor of its ratios. Empty: the table's.
	beside string
	open   func(place, spec) (*limiter, error)
}

type place struct {
	redis string // host:port
	db    int    // its database there, so that the memory of its keys can be measured
}

type limiter struct {
	// take decides a request of one unit.
	take func(ctx context.Context, key string) (allowed bool, err error)
	// takeN decides a request of several units; nil: not supported.
	takeN func(ctx context.Context, key string, n int) (bool, error)
	// fill makes all keys known, as one request for each would. nil: take does it.
	fill func(ctx context.Context, keys []string) error
	// used returns a server process's usage, and begins or ends a profile. nil: no server.
	used func(profile bool) (usage, error)
	// close ends the limiter; nil: nothing to end.
	close func()
}

func (l *limiter) end() {
	if l.close != nil {
		l.close()
	}
}

// only is a limiter of one function that always allows.
func only(do func(key string)) *limiter {
	return &limiter{take: func(_ context.Context, key string) (bool, error) { do(key); return true, nil }}
}

// byUnits is a limiter that takes one unit in the same way as several.
func byUnits(takeN func(ctx context.Context, key string, n int) (bool, error)) *limiter {
	return &limiter{takeN: takeN, take: func(ctx context.Context, key string) (bool, error) { return takeN(ctx, key, 1) }}
}
