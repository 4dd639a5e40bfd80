package promlimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Store returns next with its calls measured: their time, and how many failed. Refusals and
// malformed requests are not failures. A call counts once, however often and at whatever layer Store
// was called. For a store of package fleet, such as that of redislimit.Open, it measures the calls
// of its shared store for requests, and returns next itself.
//
// The Store unwraps to next, so its optional interfaces are found. If next is stint.Networked,
// so is the Store.
func (c *Collector) Store(next stint.Store) stint.Store {
	if c.measures(next) {
		return next
	}
	if f, ok := stint.As[watchable](next); ok {
		f.WatchCalls(c, func(took time.Duration, err error) { c.called(context.Background(), took, err) })
		return next
	}
	m := &measured{next, c}
	if n, ok := next.(stint.Networked); ok {
		return &networked{m, sync.OnceValue(func() stint.Store { return c.Store(n.WithFallback()) })}
	}
	return m
}

// watchable is a fleet.Fallback.
type watchable interface {
	WatchCalls(by any, called func(took time.Duration, err error))
}

// measures reports whether calls of s are measured by c.
func (c *Collector) measures(s stint.Store) bool {
	m, ok := stint.As[interface{ measuredBy(*Collector) bool }](s)
	return ok && m.measuredBy(c)
}

type measured struct {
	next stint.Store
	to   *Collector
}

func (m *measured) measuredBy(c *Collector) bool { return m.to == c || c.measures(m.next) }

// Take implements stint.Store.
func (m *measured) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	start := time.Now()
	d, err := m.next.Take(ctx, r, out)
	m.to.called(ctx, time.Since(start), err)
	return d, err
}

// TakeBatch implements stint.BatchTaker. It counts as one call; of several failures, the first
// counts.
func (m *measured) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	start := time.Now()
	stint.TakeBatch(ctx, m.next, rs, answers)
	var first error
	for i := range answers[:len(rs)] {
		if err := answers[i].Err; err != nil && !errors.Is(err, stint.ErrRequest) {
			first = err
			break
		}
	}
	m.to.called(ctx, time.Since(start), first)
}

// Unwrap returns the measured Store.
func (m *measured) Unwrap() stint.Store { return m.next }

// called counts a call.
func (c *Collector) called(ctx context.Context, took time.Duration, err error) {
	c.seconds.Observe(took.Seconds())
	if err != nil && !errors.Is(err, stint.ErrRequest) {
		c.failed[reasonOf(ctx, err)].Inc()
	}
}

// networked is a measured Store that is stint.Networked.
type networked struct {
	*measured
	fallback func() stint.Store
}

// WithFallback implements stint.Networked.
func (n *networked) WithFallback() stint.Store { return n.fallback() }
