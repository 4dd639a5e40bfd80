// Package fleet makes a shared store fit for one instance of many.
//
//	store := fleet.New(shared, fleet.Options{})
//	defer store.Close()
//	limiter := stint.NewLimiter(store)
//
// A Store of this package answers in time whatever the shared one does, by this instance's
// share of the limits if it must; it charges later what was spent meanwhile; and it answers
// by itself what it may know without asking. It is made of three layers, each a stint.Store
// that can be used alone: Leases around Denials around Fallback.
package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Options of a Store. The zero Options are good: everything is on, with its defaults.
type Options struct {
	// Deadline is how long a request waits for the shared store, unless it says so
	// itself. 0: DefaultDeadline. It cannot be turned off.
	Deadline time.Duration
	// Local decides by this instance's share of the limits while the shared store does
	// not. nil: one of stint.DefaultMaxKeys. It is not used for asks with another OnError
	// than stint.OnErrorLocal.
	Local *stint.Memory
	// Breaker says when to stop asking the shared store. Failures below 0: never.
	Breaker Breaker
	// Instances is how many instances share the limits. 0: as many as the shared store
	// counts, if it is a Membership; else 1.
	Instances int
	// MaxOwed bounds the bytes that are kept of what was spent without the shared store,
	// to be charged to it when it answers again. 0: DefaultMaxOwed. Negative: nothing is.
	MaxOwed int
	// MaxDenials is how many refusals are remembered, and as many bans, if the shared
	// store is a Notifier. 0: DefaultMaxDenials. Negative: none.
	MaxDenials int
	// MaxLeases is how many keys may have a lease at once, of limits that have one. 0:
	// DefaultMaxLeases. Negative: none.
	MaxLeases int
	// Called is called after every call of the shared store for a request: see
	// Fallback.Called.
	Called func(took time.Duration, err error)
	// OnClose is called at the end of Close, such as to close the shared store. nil:
	// nothing is.
	OnClose func()
}

// Store is a shared store with all layers of this package before it, in their order. It is
// made by New, and Close ends it. It may be used from many goroutines at once.
//
// A *stint.Memory is not shared, answers at once, and another one beside it would hand out
// fresh limits when it is full: a Store over it passes everything on.
type Store struct {
	shared   stint.Store
	top      stint.Store // what decides
	fallback *Fallback   // nil: shared is a Memory, and no layer is before it
	denials  *Denials    // nil: they are turned off
	leases   *Leases     // nil: they are turned off
	close    func()
}

// New puts the layers of this package before shared, which other instances use, too, and
// starts to count those and to listen to what they invalidate.
func New(shared stint.Store, o Options) *Store {
	s := &Store{shared: shared, top: shared}
	end := func() {}
	if _, ok := shared.(*stint.Memory); !ok {
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

// build puts the layers before s.shared, and returns what ends them.
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

// Close refunds what is leased, ends what runs in the background and calls
// Options.OnClose. What is asked afterwards is answered, but nothing is remembered or
// leased. It may be called more than once.
func (s *Store) Close() { s.close() }

// Take implements stint.Store.
func (s *Store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return s.top.Take(ctx, r, out)
}

// TakeBatch implements stint.BatchTaker.
func (s *Store) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	stint.TakeBatch(ctx, s.top, rs, answers)
}

// Unwrap returns the outermost layer, by which stint.As finds the others and the shared
// store.
func (s *Store) Unwrap() stint.Store { return s.top }

// Shared returns the store that New was given.
func (s *Store) Shared() stint.Store { return s.shared }

// IsLayered reports whether there are layers before the shared store: there are none before
// a *stint.Memory. Without, the methods that follow return zero values or do nothing.
func (s *Store) IsLayered() bool { return s.fallback != nil }

// State is that of the breaker: see Fallback.State.
func (s *Store) State() BreakerState {
	if s.fallback == nil {
		return Closed
	}
	return s.fallback.State()
}

// Live is how many instances are taken to share the limits.
func (s *Store) Live() int64 {
	if s.fallback == nil {
		return 1
	}
	return s.fallback.Live()
}

// Connected reports whether the shared store notifies of what other instances invalidate,
// so that refusals can be remembered now.
func (s *Store) Connected() bool { return s.denials != nil && s.denials.Connected() }

// Remembered is how many requests were refused by what is remembered.
func (s *Store) Remembered() int64 {
	if s.denials == nil {
		return 0
	}
	return s.denials.Remembered()
}

// Leased says what became of the units that were charged ahead.
func (s *Store) Leased() (u LeasedUnits) {
	if s.leases != nil {
		u = s.leases.Units()
	}
	return u
}

// Look answers by this instance's share of the limits: see Fallback.Look. Over a
// *stint.Memory, it leaves out as it is.
func (s *Store) Look(r *stint.Request, out []stint.Decision) error {
	if s.fallback == nil {
		return nil
	}
	return s.fallback.Look(r, out)
}

// Forget drops what this instance remembers of the keys of r, as when another one has
// reset or refunded them: of each ask, refusals and bans of its Key, and what is counted here
// under its Limit and its Penalty, where those are not nil.
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

// ForgetDenials drops all refusals and bans that are remembered, as when limits have
// changed.
func (s *Store) ForgetDenials() {
	if s.denials != nil {
		s.denials.ForgetAll()
	}
}
