package limittest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

const (
	briefly = 30 * time.Millisecond
	// grace is how late an answer may come on a busy machine.
	grace = time.Second
	// granule is how far the clocks of a machine's processors may be apart.
	granule = time.Millisecond
)

// checkDeadlines sends several requests at a time to a store that never answers: some may wait for
// others.
func checkDeadlines(t testing.TB, e *env) {
	switch {
	case e.frozen == nil && keepsDeadlines(e.open()):
		t.Skip("the store is fleet.DeadlineKeeper, which only Kit.Frozen can test")
	case e.frozen == nil:
		t.Skip("Kit.Frozen makes no store")
	}
	store := e.frozen()
	if !keepsDeadlines(store) {
		t.Skipf("%T is not fleet.DeadlineKeeper", store)
	}
	for _, c := range []struct {
		name     string
		deadline time.Duration // the request's
		left     time.Duration // of the context; 0: it never ends
	}{
		{"by the context alone", 0, briefly},
		{"by the context, before the request", time.Hour, briefly},
		{"by the request, before the context", briefly, briefly + 2*grace},
		{"by the request alone", briefly, 0}, // last: a store that fails here never returns
	} {
		const callers = 8
		told := make(chan error, callers)
		for range callers {
			go func() { told <- lateness(store, c.deadline, c.left) }()
		}
		for range callers {
			select {
			case err := <-told:
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
			case <-time.After(briefly + 3*grace):
				t.Fatalf("%s: it has not returned", c.name)
			}
		}
	}
}

func keepsDeadlines(s stint.Store) bool {
	p, ok := s.(fleet.DeadlineKeeper)
	return ok && p.KeepsDeadline()
}

// lateness asks a store that does not answer, and returns an error if that ends wrongly.
func lateness(s stint.Store, deadline, left time.Duration) error {
	began := time.Now() // before the context begins
	ctx := context.Background()
	if left > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: one, Cost: 1}}, Deadline: deadline}
	d, err := s.Take(ctx, &r, nil)
	switch took := time.Since(began); {
	case err == nil:
		return fmt.Errorf("it answered: %s", show(&d))
	case took >= briefly+grace:
		return fmt.Errorf("it waited for %s, past a deadline of %s: %w", took, briefly, err)
	case took < briefly-granule:
		return fmt.Errorf("it waited for %s in place of %s: %w", took, briefly, err)
	case !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the error is no context.DeadlineExceeded: %w", err)
	case r.Deadline != deadline:
		return fmt.Errorf("the request's deadline is %s now", r.Deadline)
	}
	return nil
}
