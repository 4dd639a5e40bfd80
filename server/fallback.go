package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
)

// fleetOptions are the options of the layers before the store, from the settings.
func (s *Server) fleetOptions() fleet.Options {
	o := fleet.Options{
		Deadline:   s.settings.DecisionTimeout,
		Local:      s.local,
		Breaker:    s.settings.Breaker,
		Instances:  int(s.settings.Instances),
		MaxOwed:    int(s.footprint.MaxOwed()),
		MaxDenials: int(s.settings.RememberedDenials),
		Called: func(took time.Duration, err error) {
			s.metrics.called(took, err)
			if err != nil {
				s.sampled.storeFailure(err)
			}
		},
	}
	o.Breaker.Changed = s.breakerChanged
	if o.MaxDenials == 0 {
		o.MaxDenials = -1 // 0 means none in the settings
	}
	return o
}

func (s *Server) breakerChanged(to fleet.BreakerState, why error) {
	s.metrics.turned(to, why)
	s.store.down(s.fleet)
	if to == fleet.PartlyOpen && why != nil {
		s.log.Error("circuit breaker open: a server of the store is not called until it answers again; on_store_error decides about its keys", "error", why)
		return
	}
	if to == fleet.Open {
		s.store.whyOpen.Store(&why)
		s.log.Error("circuit breaker open: the store is not called until it answers again; on_store_error decides instead", "error", why)
		return
	}
	level := slog.LevelInfo
	if to == fleet.Closed {
		level = slog.LevelWarn // as the line that it ends
	}
	s.log.Log(context.Background(), level, "circuit breaker", "state", to.String())
}

// remembers reports whether refusals are remembered.
func (s *Server) remembers() bool { return s.fleet.IsLayered() && s.settings.RememberedDenials > 0 }

// taken has the units that an allowed request took in its allowed groups. ending has its holds; nil: it holds
// nothing, or others settle its holds.
type taken struct {
	groups []group
	ending *ending
}

// ask is the ask of t whose place in the evaluation is i.
func (t taken) ask(i int) *stint.Ask {
	for g := range t.groups {
		r := &t.groups[g]
		if r.places == nil {
			return &r.request.Asks[i]
		}
		if at := slices.Index(r.places, i); at >= 0 {
			return &r.request.Asks[at]
		}
	}
	return nil
}

// refund returns t's units to where they were taken, and releases its holds.
func (s *Server) refund(ctx context.Context, t taken) error {
	var err error
	for i := range t.groups {
		if g := &t.groups[i]; !g.inShadow() && g.allowed() {
			err = errors.Join(err, s.refundGroup(ctx, g, t.ending, func(int) bool { return false }))
		}
	}
	return err
}

// refundGroup refunds the asks of g but those that stay. A place in the queue of a leaky bucket stays taken:
// requests behind it may have it already, so it would be given twice.
func (s *Server) refundGroup(ctx context.Context, g *group, e *ending, stays func(i int) bool) error {
	var err error
	r := stint.Request{At: g.request.At}
	var calls []stint.HoldCall
	for i, a := range g.request.Asks {
		if stays(i) || !isRefundable(&a) {
			continue
		}
		a.By = g.answer.Each[i].By
		if g.request.Hold == (stint.HoldID{}) || !isHeld(&a) {
			r.Asks = append(r.Asks, a)
		} else if e == nil {
			calls = append(calls, stint.HoldCall{Key: a.Key, Limit: a.Limit, Hold: g.request.Hold, Units: a.Units(), For: g.request.HoldFor, By: a.By})
		}
	}
	if e != nil {
		err = e.end(ctx, nil)
	}
	s.hold(ctx, g.request.At, calls)
	for i := range calls {
		err = errors.Join(err, calls[i].Err)
	}
	return errors.Join(err, stint.Refund(ctx, s.fleet, &r))
}

// isRefundable reports whether a took units that can be refunded.
func isRefundable(a *stint.Ask) bool {
	return a.Units() > 0 && a.Limit.Spec().Algorithm != stint.LeakyBucket
}

// giveBack releases the holds of a request that did not take place. e may be nil.
func (s *Server) giveBack(ctx context.Context, e *ending) {
	if e == nil || !e.holds {
		return
	}
	if err := e.end(ctx, nil); err != nil {
		s.logUncharged("what a request held could not be given back", err)
	}
}

// withoutRoom decides when a store in memory is full, for the rules that allow then. A second
// memory beside it would not help.
func withoutRoom(g *group, a *stint.Answer) {
	for _, r := range g.rules {
		if r.OnStoreError != stint.OnErrorAllow {
			return
		}
	}
	for i := range g.request.Asks {
		a.Each[i] = stint.Internal(friend.Of{}).ByPolicy(&g.request.Asks[i])
	}
	a.Decision, a.Err = stint.Strictest(a.Each), nil
}
