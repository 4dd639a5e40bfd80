package redislimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// Refund implements stint.Refunder. Like a charge it is sent once: where its
// error says that it was not answered, it may have acted.
func (s *Store) Refund(ctx context.Context, r *stint.Request) error {
	return s.bySlot(r, func(r *stint.Request) error {
		b := batch{at: r.At}
		for i := range r.Asks {
			a := &r.Asks[i]
			b.addKey(s, a.Key, a.Limit.ID())
			b.blob = algo.AppendAsk(b.blob, kit.Plan(a.Limit), 0, a.Units())
		}
		reply, err := s.refund.call(ctx, s.client, &b, s.telling(r)...)
		if err != nil {
			return fmt.Errorf("redislimit: refund: %w", advise(err))
		}
		if n, _ := reply.(int64); n > 0 {
			return brokenKey(b.key(int(n/2-1)), n%2 == 0)
		}
		return nil
	})
}

// Reset implements stint.Resetter.
func (s *Store) Reset(ctx context.Context, r *stint.Request) error {
	return s.bySlot(r, func(r *stint.Request) error {
		var keys []string
		for i := range r.Asks {
			a := &r.Asks[i]
			if a.Limit != nil {
				keys = append(keys, s.key(a.Key, a.Limit.ID()))
			}
			if a.Penalty != nil {
				keys = append(keys, s.key(a.Key, a.Penalty.ID()))
			}
		}
		if _, err := forget.eval(ctx, s.client, keys, s.telling(r, "", "")...); err != nil {
			return fmt.Errorf("redislimit: reset: %w", advise(err))
		}
		return nil
	})
}

// bySlot does something to what of r lies in each slot.
func (s *Store) bySlot(r *stint.Request, do func(*stint.Request) error) error {
	if !s.cluster() || oneSlot(r) {
		return do(r)
	}
	parts := split(r)
	inParallel(parts, func(p *part) { p.err = do(&p.request) })
	var errs []error
	for _, p := range parts {
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// Clear deletes every key of the Store's namespace: all counts, violations, bans
// and documents. It walks over all keys of the server, a few at a time, and is meant for
// simulations and tests, which have a namespace of their own. Where the Client is
// one of the user's own, it walks over the node that the Client picks, so not
// over a Cluster.
func (s *Store) Clear(ctx context.Context) error {
	nodes := []Client{s.client}
	if n, ok := s.client.(noder); ok {
		nodes = n.nodes()
	}
	for _, n := range nodes {
		if err := s.clearNode(ctx, n); err != nil {
			return fmt.Errorf("redislimit: clear: %w", advise(err))
		}
	}
	// A user who may not publish has nobody to tell; see Listen.
	_, _ = s.client.Do(ctx, "PUBLISH", s.undoing(), toldAll)
	return nil
}

func (s *Store) clearNode(ctx context.Context, node Client) error {
	return scan(ctx, node, s.namespace+":{*", func(keys []string) error {
		for _, k := range keys {
			// By the whole client, one by one: in a Cluster they have each
			// their slot, and this node may be a replica.
			if _, err := s.client.Do(ctx, "DEL", k); err != nil {
				return err
			}
		}
		return nil
	})
}
