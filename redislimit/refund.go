package redislimit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

var (
	refundScript = conn.NewScript(algo.RefundScript)
	resetScript  = conn.NewScript(algo.ResetScript) // deletes keys and publishes their names
)

// Refund implements stint.Refunder. Like a charge, a refund is sent once: after an error
// that does not wrap fleet.ErrNotCharged, it may have been made.
func (s *Store) Refund(ctx context.Context, r *stint.Request) error {
	rest, err := s.takeFromEnvoy(r, func(a stint.Ask, c envoyCount) error {
		return s.refundEnvoy(ctx, []envoyCount{c}, []stint.Ask{a})
	})
	if rest == nil {
		return err
	}
	rest.Asks = slices.DeleteFunc(rest.Asks, func(a stint.Ask) bool { return a.Limit == nil })
	return errors.Join(err, s.bySlot(rest, func(r *stint.Request) error { return s.refund(ctx, r) }))
}

// refund is Refund for keys of one slot.
func (s *Store) refund(ctx context.Context, r *stint.Request) error {
	// In-flight units are held, and are settled.
	asks := slices.DeleteFunc(slices.Clone(r.Asks), func(a stint.Ask) bool { return kit.Plan(a.Limit).Kind == algo.InFlight })
	var clock int64
	for range mostSent {
		if len(asks) == 0 {
			return nil
		}
		b := batch{at: r.At}
		for i := range asks {
			a := &asks[i]
			b.addKey(s, a.Key, a.Limit.ID())
			b.blob = algo.AppendAsk(b.blob, s.around(&b, kit.Plan(a.Limit)), 0, a.Units())
		}
		reply, err := s.conn.EvalArgs(ctx, refundScript, s.appendInvalidations(b.command(refundScript), r))
		if err != nil {
			return fmt.Errorf("redislimit: refund: %w", err)
		}
		if n, _ := reply.(int64); n > 0 {
			return brokenKey(b.key(int(n/2-1)), n%2 == 0)
		}
		place, now, ok := outsideAt(reply, len(asks))
		if !ok {
			return nil
		}
		clock = now
		s.outside(&outsideError{clock})
		asks = asks[place-1:]
	}
	return fmt.Errorf("redislimit: refund: %v", &outsideError{clock}) // some asks may have been refunded
}

// outsideAt reads the reply of a refund that stopped, because of the server's clock, at the ask with
// this place, from 1.
func outsideAt(reply any, asks int) (place, clock int64, ok bool) {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return 0, 0, false
	}
	place, _ = parts[0].(int64)
	clock, _ = parts[1].(int64)
	return place, clock, place >= 1 && place <= int64(asks)
}

// Reset implements stint.Resetter.
func (s *Store) Reset(ctx context.Context, r *stint.Request) error {
	rest, err := s.takeFromEnvoy(r, func(a stint.Ask, c envoyCount) error {
		_, err := s.conn.Eval(ctx, resetScript, []string{c.key}, s.appendInvalidations([]string{"", ""}, &stint.Request{Asks: []stint.Ask{a}})...)
		if err != nil {
			return fmt.Errorf("redislimit: reset: %w", err)
		}
		return nil
	})
	if rest == nil {
		return err
	}
	return errors.Join(err, s.bySlot(rest, func(r *stint.Request) error {
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
		if _, err := s.conn.Eval(ctx, resetScript, keys, s.appendInvalidations([]string{"", ""}, r)...); err != nil {
			return fmt.Errorf("redislimit: reset: %w", err)
		}
		return nil
	}))
}

func (s *Store) bySlot(r *stint.Request, do func(*stint.Request) error) error {
	if !s.conn.Cluster() || oneSlot(r) {
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

// Clear deletes every key of the Store's namespace: all counts, violations, bans and
// documents. It scans all keys of the server, a few at a time. It is meant for simulations
// and tests with their own namespace. With a Client of your own, it scans only the node
// that the Client picks, so it does not clear a Cluster. After an error, some keys may be
// left.
func (s *Store) Clear(ctx context.Context) error {
	for _, n := range s.conn.Nodes() {
		if err := s.clearNode(ctx, n); err != nil {
			return fmt.Errorf("redislimit: clear: %w", err)
		}
	}
	// Without a permission to publish, no instance listens; see Notify.
	_, _ = s.conn.Do(ctx, "PUBLISH", s.invalidationChannel(), invalidatedAll)
	return nil
}

func (s *Store) clearNode(ctx context.Context, node conn.Node) error {
	return node.Scan(ctx, s.namespace+":{*", func(keys []string) error {
		for _, k := range keys {
			// One by one, and not on this node: it may be a replica, and keys have different
			// slots.
			if _, err := s.conn.Do(ctx, "DEL", k); err != nil {
				return err
			}
		}
		return nil
	})
}
