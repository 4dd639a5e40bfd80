package redislimit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

var kit = stint.Internal(friend.Of{})

// Options are the options of a Store. The zero Options are valid.
type Options struct {
	// Namespace is the prefix of all keys and channels. Stores with different namespaces
	// share nothing. Stores with the same one share documents, and the counts of limits
	// with equal names and keys; so give each service its own namespace. 1 to 64 characters
	// of A–Z a–z 0–9 _ . : -. Empty: the namespace in the address, else "stint".
	Namespace string
	// Background makes Connect return without an error while the server is down: after the
	// first attempt to connect, or when ctx is done. Connect then goes on in the background
	// until it has connected, or until Close. Until then, calls fail with the error of the
	// last attempt; Take and TakeBatch first wait for the first attempt to end, as long as
	// their contexts allow. New refuses this option.
	Background bool
	// Attempted is called after each attempt in the background, from one goroutine, with
	// the Server or the error. nil: nothing is called.
	Attempted func(Server, error)
	// Log receives events of the connections: the Store left a server, new passwords or
	// certificates are used or were refused, a certificate expires soon, messages do not
	// arrive. nil: slog.Default. New refuses this option.
	Log *slog.Logger
	// Envoy makes limits of Envoy's rate limit service count in the keys of
	// envoyproxy/ratelimit. nil: all limits count in Stint's keys.
	Envoy *EnvoyKeys
}

// Store is a stint.Store in Redis. It may be used from many goroutines at once. It
// implements stint.BatchTaker, stint.Refunder, stint.Resetter, stint.Violator,
// stint.Inspector, stint.Holder, fleet.DeadlineKeeper and stint.Networked.
//
// A request takes one round trip; in a Cluster, one or more for each slot of its keys (see
// the package). A charge is sent once. If it fails with an error that wraps
// fleet.ErrNotCharged, nothing was charged; after any other error it may have been.
type Store struct {
	conn      *conn.Conn
	namespace string
	id        string // of this Store among the members
	merger    merger
	listed    *semaphore.Weighted // asks of lists
	fallback  fallback
	envoy     *EnvoyKeys   // nil: there are none
	ahead     atomic.Int64 // how far the server's clock is ahead, µs, by the last outsideError
}

// New returns a Store over a Client. It asks the server for its version and settings, and
// returns an error that says what to do if they are not suitable.
func New(ctx context.Context, c Client, o Options) (*Store, error) {
	if o.Background || o.Attempted != nil || o.Log != nil {
		return nil, errors.New("redislimit: Options.Background, Attempted and Log are for Connect: a client of your own connects by itself")
	}
	s, err := newStore(conn.Over(c), o)
	if err != nil {
		return nil, err
	}
	if err := s.conn.Connect(ctx); err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	return s, nil
}

func newStore(c *conn.Conn, o Options) (*Store, error) {
	if o.Namespace == "" {
		o.Namespace = "stint"
	}
	if err := checkNamespace(o.Namespace); err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	s := &Store{conn: c, namespace: o.Namespace, id: rand.Text(), listed: semaphore.NewWeighted(mostListed), envoy: o.Envoy}
	s.merger = merger{queues: map[uint16]*queue{}, runCalls: s.runCalls}
	return s, nil
}

// Namespace returns the prefix of all keys of the Store.
func (s *Store) Namespace() string { return s.namespace }

// WithFallback implements stint.Networked. It returns a fleet.Store, with its defaults,
// around this Store: the same one at each call, until Close.
func (s *Store) WithFallback() stint.Store { return s.fallback.of(s) }

type fallback struct {
	mu     sync.Mutex
	store  *fleet.Store // nil: nothing yet
	closed bool
}

// of returns the same fleet.Store of s at each call.
func (f *fallback) of(s stint.Store) stint.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store == nil {
		f.store = fleet.New(s, fleet.Options{})
		if f.closed {
			f.store.Close()
		}
	}
	return f.store
}

func (f *fallback) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.store != nil {
		f.store.Close()
	}
}

// Close closes the Store that WithFallback returned, and the connections of a Store that
// Connect made. It does not close the Client of New.
func (s *Store) Close() {
	s.fallback.close()
	s.conn.Close()
}

// Take implements stint.Store. Requests that arrive at the same time are sent together, in
// the order of arrival.
func (s *Store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, _, err := s.TakeCounted(ctx, r, out)
	return d, err
}

// TakeCounted is Take, and also returns how many requests went in the same call, this one
// among them: for traces, see package otellimit. It is 0 if there was no answer, or if its
// keys are in several slots of a Cluster.
func (s *Store) TakeCounted(ctx context.Context, r *stint.Request, out []stint.Decision) (d stint.Decision, requests int, err error) {
	waited, err := s.conn.Await(ctx, r.Deadline)
	switch {
	case err != nil:
		return d, 0, notSent(err)
	case waited > 0 && r.Deadline > 0:
		rest := *r
		rest.Deadline = max(1, r.Deadline-waited)
		r = &rest
	}
	if m := s.mixedOf(r); m != nil {
		d, err = s.takeMixed(ctx, m, r, out)
		return d, 0, err
	}
	return s.takeOwn(ctx, r, out)
}

// takeOwn is TakeCounted in Stint's keys.
func (s *Store) takeOwn(ctx context.Context, r *stint.Request, out []stint.Decision) (d stint.Decision, requests int, err error) {
	if !s.conn.Cluster() || oneSlot(r) {
		return s.takeMerged(ctx, r, out)
	}
	if r.Deadline > 0 { // of all calls together
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	d, err = s.takeSlots(ctx, r, out)
	return d, 0, err
}

// KeepsDeadline implements fleet.DeadlineKeeper: Take obeys a Request's Deadline. It needs
// a context for that only if the asks are in several slots of a Cluster. TakeBatch, Refund,
// Violate and the others obey only their contexts.
func (s *Store) KeepsDeadline() bool { return true }
