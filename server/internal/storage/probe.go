package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/lookup"
)

const (
	// probeKey is the key of the server's probes.
	probeKey = "readyz"
	// ProbeEvery is how often the server asks the store whether it decides, independent of
	// requests.
	ProbeEvery = time.Second
	// probeTimeout is how long it may take to answer.
	probeTimeout = time.Second
)

// probed is the result of the last probe: why the store does not decide, or nil.
type probed struct{ err error }

// known is the known state of a store that may fail.
type known struct {
	probed  atomic.Pointer[probed] // nil: no probe yet
	seconds atomic.Pointer[probed] // of the server for limits of less than a minute; nil: there is none, or no probe yet
	whyOpen atomic.Pointer[error]  // why the breaker opened last; nil: it never did
	outage  live.Outage
}

// err returns why the store behind f does not decide, as far as known; nil: it decides, or a part of it does.
func (w *known) err(f *fleet.Store) error {
	state := f.State()
	if p := w.probed.Load(); p != nil && p.err != nil && state != fleet.PartlyOpen { // the part that is down may have the key of probes
		return p.err
	}
	if state == fleet.Closed || state == fleet.PartlyOpen {
		return nil
	}
	if why := w.whyOpen.Load(); why != nil {
		return *why
	}
	return errNotAsked
}

// down returns how long the store behind f, or a part of it, has been down; 0: it decides.
func (w *known) down(f *fleet.Store) time.Duration {
	if !f.IsLayered() {
		return 0
	}
	seconds := w.seconds.Load()
	return w.outage.Note(time.Now(), w.err(f) != nil || f.State() == fleet.PartlyOpen || seconds != nil && seconds.err != nil)
}

// aSecond is a limit of less than a minute.
var aSecond = stint.MustLimit("1 per 1s")

// probeSeconds asks the server for limits of less than a minute, if store has a separate one. Without
// requests under such limits, nothing else notices that it is down.
func (w *known) probeSeconds(ctx context.Context, store stint.Store) {
	of, ok := stint.As[fleet.Partitioned](store)
	if !ok || of.Partition(aSecond, probeKey) == of.Partition(nil, probeKey) {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := stint.Internal(friend.Of{}).Probe(bounded, store, aSecond, probeKey); ctx.Err() == nil {
		w.seconds.Store(&probed{err})
	}
}

// Decides asks the store, and returns why it does not decide; nil: it does.
func (t *Storage) Decides(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return stint.Internal(friend.Of{}).Probe(ctx, t.Limiter.Store, nil, probeKey)
}

// Probe asks the store once, and keeps the result.
func (t *Storage) Probe(ctx context.Context) {
	var seconds sync.WaitGroup
	seconds.Go(func() { t.known.probeSeconds(ctx, t.Limiter.Store) })
	err := t.Decides(ctx)
	seconds.Wait()
	if ctx.Err() != nil {
		return
	}
	before := t.known.probed.Swap(&probed{err})
	t.Down()
	was := before != nil && before.err != nil
	switch {
	case err != nil && !was:
		t.watch.Log.Warn("the store does not decide", "error", err)
	case err == nil && was:
		t.watch.Log.Warn("the store decides again") // of the level of the line that it ends
	}
}

// Follow calls Probe from time to time, until ctx is done.
func (t *Storage) Follow(ctx context.Context) {
	Every(ctx, ProbeEvery, func() { t.Probe(ctx) })
}

var errNotAsked = errors.New("the circuit breaker is open")

// Status is the state of the store. It asks the store, unless that is known to be down.
// ahead is how far this machine's clock is ahead of the store's, and whether that is known.
func (t *Storage) Status(ctx context.Context, shared bool, ahead func() (time.Duration, bool)) adminapi.StoreStatus {
	j := adminapi.StoreStatus{Kind: "memory", Shared: shared, Decides: "store"}
	if t.Fleet.IsLayered() {
		// The part before the rest of the address, which may contain a password.
		scheme, _, isURL := strings.Cut(t.settings.Store, "://")
		if j.Kind = scheme; !isURL {
			j.Kind = fmt.Sprintf("%T", t.Limiter.Store) // of a program that serves by itself
		}
	}
	if t.Fleet.IsLayered() {
		j.Breaker, j.Instances = t.Fleet.State().String(), t.Fleet.Live()
		j.Namespace = t.settings.Namespace
	}
	j.Down = int64(t.Down() / time.Second)
	if by, known := ahead(); known {
		us := by.Microseconds()
		j.ClockAhead = &us
	}
	if t.Remembers() {
		listening := t.Fleet.Connected()
		j.Listening = &listening
	}
	err := t.Err()
	if err == nil && t.Fleet.IsLayered() && t.Fleet.State() != fleet.PartlyOpen { // the last probe is up to a second old
		bounded, cancel := context.WithTimeout(ctx, lookup.Timeout)
		defer cancel()
		err = t.Decides(bounded)
	}
	if j.OK = err == nil; err != nil {
		j.Error = err.Error()
		if t.Fleet.IsLayered() {
			j.Decides = "on_store_error"
		}
	}
	return j
}

// Err returns why the store does not decide, as far as known; nil: it decides. It never waits: a store
// in memory answers at once, and for other stores it uses the results of requests and of the last probe.
func (t *Storage) Err() error {
	if !t.Fleet.IsLayered() {
		return t.Decides(context.Background())
	}
	return t.known.err(t.Fleet)
}

// Down returns how long the store, or a part of it, has been down; 0: it decides.
func (t *Storage) Down() time.Duration { return t.known.down(t.Fleet) }

// Every calls f each d, until ctx is done.
func Every(ctx context.Context, d time.Duration, f func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}
