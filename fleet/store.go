// Package fleet puts layers around a store that many instances share, so that each instance always
// gets a decision in time.
//
//	store := fleet.New(shared, fleet.Options{})
//	defer store.Close()
//	limiter := stint.NewLimiter(store)
//
// If the shared store does not answer in time, this instance decides by its share of the
// limits, and charges what it admitted when the store answers again. Refusals that cannot
// have changed, and requests for leased units, are answered without a call.
//
// There are three layers. Each is a stint.Store that can be used alone: Leases around
// Denials around Fallback.
package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Options are the options of a Store. The zero Options turn everything on, with defaults.
type Options struct {
	// Deadline is how long a request waits for the shared store, unless the request has a
	// Deadline of its own. 0: DefaultDeadline. It cannot be turned off.
	Deadline time.Duration
	// Local decides by this instance's share of the limits while the shared store does not
	// answer. It decides only for asks with stint.OnErrorLocal. nil: a Memory with
	// 1,000,000 keys.
	Local *stint.Memory
	// Breaker says when to stop asking the shared store. Negative Failures: never.
	Breaker Breaker
	// Instances is how many instances share the limits. 0: as many as the shared store
	// counts, if it is a Membership; else 1.
	Instances int
	// MaxOwed bounds the bytes that are kept to charge units admitted without the shared store when
	// it answers again. 0: DefaultMaxOwed. Negative: nothing is kept.
	MaxOwed int
	// MaxDenials is how many refusals are remembered, and as many bans, if the shared store
	// is a Notifier. 0: DefaultMaxDenials. Negative: none.
	MaxDenials int
	// MaxLeases is how many keys may have a lease at once, under limits that allow leases.
	// 0: DefaultMaxLeases. Negative: none.
	MaxLeases int
	// Called is called after every call of the shared store for a request: see
	// Fallback.Called. nil: failures are logged.
	Called func(took time.Duration, err error)
	// OnClose is called at the end of Close, for example to close the shared store. nil:
	// nothing is called.
	OnClose func()
}

// Store is a shared store behind all layers of this package. New makes it, and Close ends
// it. It may be used from many goroutines at once.
//
// Over a *stint.Memory, or a wrapper of one (see stint.As), a Store has no layers and passes every
// request on: a Memory answers at once, and a second one beside it would allow each limit again when
// the first is full. Over a Store that already has a Fallback, it adds no layers: its methods report
// the existing ones, which end with that Store.
type Store struct {
	shared   stint.Store
	top      stint.Store // the Store that decides
	fallback *Fallback   // nil: shared is or wraps a Memory, and there are no layers
	denials  *Denials    // nil: they are turned off
	leases   *Leases     // nil: they are turned off
	close    func()
}

// New puts the layers of this package around shared, a store that other instances also use, unless it has
// layers already. It starts to count those instances and to listen for their invalidations.
func New(shared stint.Store, o Options) *Store {
	s := &Store{shared: shared, top: shared}
	end := func() {}
	_, memory := stint.As[*stint.Memory](shared)
	var layered bool
	if s.fallback, layered = stint.As[*Fallback](shared); layered {
		s.denials, _ = stint.As[*Denials](shared)
		s.leases, _ = stint.As[*Leases](shared)
	} else if !memory {
		end = s.build(&o)
	}
	s.close = sync.OnceFunc(func() {
		end()
		if o.OnClose != nil {
			o.OnClose()
		}
	})
	return s
}

// build puts the layers around s.shared, and returns a function that ends them.
func (s *Store) build(o *Options) (end func()) {
	s.fallback = &Fallback{
		Store: s.shared, Local: o.Local, Deadline: o.Deadline, Breaker: o.Breaker,
		Instances: o.Instances, MaxOwed: o.MaxOwed, Called: o.Called,
	}
	s.top = s.fallback
	if o.MaxDenials >= 0 {
		s.denials = &Denials{Store: s.top, MaxKeys: o.MaxDenials}
		s.top = s.denials
		s.denials.init() // so that it listens before the first refusal
	}
	if o.MaxLeases >= 0 {
		s.leases = &Leases{Store: s.top, Live: s.fallback.ConfirmedLive, MaxKeys: o.MaxLeases}
		s.top = s.leases
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { s.fallback.Follow(ctx) })
	return func() {
		if s.leases != nil {
			s.leases.Close()
		}
		if s.denials != nil {
			s.denials.Close()
		}
		cancel()
		following.Wait()
		s.fallback.Close()
	}
}

// Close refunds leases, stops background work and calls Options.OnClose. The Store still answers
// requests afterwards, but remembers and leases nothing. Close may be called more than once.
func (s *Store) Close() { s.close() }

// Take implements stint.Store.
func (s *Store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return s.top.Take(ctx, r, out)
}

// TakeBatch implements stint.BatchTaker.
func (s *Store) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	stint.TakeBatch(ctx, s.top, rs, answers)
}

// Unwrap returns the outermost layer. stint.As uses it to find the other layers and the
// shared store.
func (s *Store) Unwrap() stint.Store { return s.top }

// Shared returns the store that New was given.
func (s *Store) Shared() stint.Store { return s.shared }

// IsLayered reports whether there are layers around the shared store. Only a *stint.Memory has
// none. Without layers, the methods below return zero values or do nothing.
func (s *Store) IsLayered() bool { return s.fallback != nil }

// State returns the state of the circuit breaker: see Fallback.State.
func (s *Store) State() BreakerState {
	if s.fallback == nil {
		return Closed
	}
	return s.fallback.State()
}

// Live returns the number of instances among which the limits are divided.
func (s *Store) Live() int64 {
	if s.fallback == nil {
		return 1
	}
	return s.fallback.Live()
}

// Connected reports whether the shared store sends notifications of other instances' invalidations.
// Only then are refusals remembered.
func (s *Store) Connected() bool { return s.denials != nil && s.denials.Connected() }

// Remembered returns how many requests were refused from memory, without a call.
func (s *Store) Remembered() int64 {
	if s.denials == nil {
		return 0
	}
	return s.denials.Remembered()
}

// Leased returns the counts of units that were charged ahead.
func (s *Store) Leased() (u LeasedUnits) {
	if s.leases != nil {
		u = s.leases.Units()
	}
	return u
}

// Look answers by this instance's share of the limits: see Fallback.Look. Over a
// *stint.Memory, it does not change out.
func (s *Store) Look(r *stint.Request, out []stint.Decision) error {
	if s.fallback == nil {
		return nil
	}
	return s.fallback.Look(r, out)
}

// Forget drops what this instance remembers about the keys of r. Call it after another
// instance has reset or refunded them. For each ask it drops the refusals and bans of Key,
// and the local counts under Limit and Penalty, if those are not nil.
func (s *Store) Forget(r *stint.Request) {
	if s.fallback != nil {
		s.fallback.Forget(r)
	}
	if s.leases != nil {
		s.leases.Forget(r)
	}
	if s.denials != nil {
		for i := range r.Asks {
			s.denials.Forget(r.Asks[i].Key)
		}
	}
}

// ForgetDenials drops all remembered refusals and bans. Call it after limits have changed.
func (s *Store) ForgetDenials() {
	if s.denials != nil {
		s.denials.ForgetAll()
	}
}
