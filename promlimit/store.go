package promlimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Store returns next with its calls measured: their time, and how many failed. Refusals are no
// failures, and neither are malformed requests. Around a store of package fleet, it measures
// what a caller waits for; to measure the calls of the shared store itself, wrap that one.
//
// The Store unwraps to next, so its optional interfaces are found. If next is stint.Networked,
// so is the Store.
func (c *Collector) Store(next stint.Store) stint.Store {
	m := &measured{next, c}
	if n, ok := next.(stint.Networked); ok {
		return &networked{m, sync.OnceValue(func() stint.Store { return &measured{n.WithFallback(), c} })}
	}
	return m
}

type measured struct {
	next stint.Store
	to   *Collector
}

// Take implements stint.Store.
func (m *measured) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	start := time.Now()
	d, err := m.next.Take(ctx, r, out)
	m.to.called(ctx, start, err)
	return d, err
}

// TakeBatch implements stint.BatchTaker. It is one call, and if it fails for several reasons,
// the first of them counts.
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
	m.to.called(ctx, start, first)
}

// Unwrap returns the Store that is measured.
func (m *measured) Unwrap() stint.Store { return m.next }

// called counts a call that began at start.
func (c *Collector) called(ctx context.Context, start time.Time, err error) {
	c.seconds.Observe(time.Since(start).Seconds())
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
