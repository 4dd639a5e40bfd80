package limittest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// checkInspect reads counts by the store's own clock, and compares them with charges and answers.
func checkInspect(t testing.TB, e *env) {
	store := e.open()
	inspector, ok := stint.As[stint.Inspector](store)
	if !ok {
		t.Skipf("%T is no stint.Inspector", store)
	}
	limits := oneOfEach(10, 1000*time.Hour, "}inspect")
	for _, key := range oddKeys {
		c := inspection{TB: t, store: store, inspector: inspector, key: key, limits: limits}
		c.play()
	}
	if _, err := inspector.Inspect(context.Background(), "unknown", limits[:1]); err != nil {
		t.Errorf("Inspect of a key that is not there: %v", err)
	}
}

type inspection struct {
	testing.TB
	store     stint.Store
	inspector stint.Inspector
	key       string
	limits    []*stint.Limit
	// The last charge was made between these instants.
	sent, answered time.Time
	// reset has the ResetAfters of its answer.
	reset []time.Duration
}

func (c *inspection) play() {
	c.Helper()
	c.holds("before the first charge", false)
	c.charge(4)
	c.holds("after a charge", true)
	c.take(7, false)
	c.take(0, true)
	c.holds("after a refusal and a look", true)
	c.charge(5)
	c.holds("after the next charge", true)
	ctx, r := context.Background(), c.request(1)
	if s, ok := stint.As[stint.Refunder](c.store); ok {
		if err := s.Refund(ctx, r); err != nil && !errors.Is(err, stint.ErrUnsupported) {
			c.Fatal(err)
		}
		c.reset = nil // it may be sooner
		c.holds("after a refund", true)
	}
	if s, ok := stint.As[stint.Resetter](c.store); ok {
		if err := s.Reset(ctx, r); err != nil {
			c.Fatal(err)
		}
		c.holds("after a reset", false)
	}
}

func (c *inspection) request(cost int64) *stint.Request {
	r := &stint.Request{}
	for _, l := range c.limits {
		r.Asks = append(r.Asks, stint.Ask{Key: c.key, Limit: l, Cost: cost, Peek: cost == 0})
	}
	return r
}

func (c *inspection) take(cost int64, allowed bool) []stint.Decision {
	c.Helper()
	each := make([]stint.Decision, len(c.limits))
	if d, err := c.store.Take(context.Background(), c.request(cost), each); d.Allowed != allowed || err != nil {
		c.Fatalf("Take of %d: %s, %v", cost, show(&d), err)
	}
	return each
}

func (c *inspection) charge(cost int64) {
	c.Helper()
	c.sent = time.Now()
	each := c.take(cost, true)
	c.answered = time.Now()
	c.reset = nil
	for i := range each {
		c.reset = append(c.reset, each[i].ResetAfter)
	}
	time.Sleep(5 * time.Millisecond) // so that it is noticed if the next call counts as a charge
}

// holds inspects the key. A store may round to ms.
func (c *inspection) holds(when string, held bool) {
	c.Helper()
	const rounding = 2 * time.Millisecond
	asked := time.Now()
	all, err := c.inspector.Inspect(context.Background(), c.key, c.limits)
	if err != nil || len(all) != len(c.limits) {
		c.Fatalf("Inspect %s: %v, %v", when, all, err)
	}
	now := time.Now()
	for i, s := range all {
		longest, shortest := now.Sub(c.sent)+rounding, asked.Sub(c.answered)-rounding
		switch {
		case !held && s != (stint.Stored{}):
			c.Errorf("Inspect %s: %s: %+v of nothing", when, c.limits[i], s)
		case held && (!s.Held || s.Idle > longest || s.Idle < shortest):
			c.Errorf("Inspect %s: %s: %+v, and the charge was from %s to %s ago", when, c.limits[i], s, shortest, longest)
		case held && c.reset != nil && (s.Expires > c.reset[i]-shortest+rounding || s.Expires < c.reset[i]-longest):
			c.Errorf("Inspect %s: %s: %+v, and it was told to be unused in %s, from %s to %s ago", when, c.limits[i], s, c.reset[i], shortest, longest)
		case held && s.Expires <= 0:
			c.Errorf("Inspect %s: %s: %+v", when, c.limits[i], s)
		}
	}
}
