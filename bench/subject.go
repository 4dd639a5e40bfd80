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

// spec is the limit that all subjects of a table are told.
type spec struct {
	amount int64
	period time.Duration
}

// A subject is something that is measured.
type subject struct {
	name string
	kind kind
	// log marks what remembers each request. It is given the table's limit for
	// logs, for under a long period it would remember millions.
	log bool
	// holds marks what a request holds from its start to its end, so that it takes two calls.
	holds bool
	// foreign marks a process that is not ours, so that its allocations are not known.
	foreign bool
	// beside names the floor that its ratios are taken to. Empty: the table's.
	beside string
	open   func(place, spec) (*limiter, error)
}

type place struct {
	redis string // host:port
	db    int    // its database there, so that what its keys take can be told apart
}

type limiter struct {
	// take decides a request of one unit.
	take func(ctx context.Context, key string) (allowed bool, err error)
	// takeN decides one of several units; nil: the subject has no such thing.
	takeN func(ctx context.Context, key string, n int) (bool, error)
	// fill makes all keys known, as one request for each would. nil: by take.
	fill func(ctx context.Context, keys []string) error
	// used tells what a server's process has used, and begins or ends a profile. nil: no server.
	used func(profile bool) (usage, error)
	// close ends it; nil: there is nothing to end.
	close func()
}

func (l *limiter) end() {
	if l.close != nil {
		l.close()
	}
}

// only is a limiter that is one function, which always allows.
func only(do func(key string)) *limiter {
	return &limiter{take: func(_ context.Context, key string) (bool, error) { do(key); return true, nil }}
}

// byUnits is a limiter that takes one unit as it takes several.
func byUnits(takeN func(ctx context.Context, key string, n int) (bool, error)) *limiter {
	return &limiter{takeN: takeN, take: func(ctx context.Context, key string) (bool, error) { return takeN(ctx, key, 1) }}
}
