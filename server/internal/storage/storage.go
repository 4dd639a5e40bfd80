// Package storage is the store of a server, with the layers before it, and what is known of its state.
package storage

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/watch"
	"github.com/stintdev/stint/server/rules"
)

// Storage is the store that a server decides with. New makes one. It may be used from many goroutines at once.
type Storage struct {
	// Limiter is over the store itself, Fleet is the same store behind the layers of this instance, and Layered
	// is over Fleet if that has layers, else Limiter.
	Limiter, Layered *stint.Limiter
	Fleet            *fleet.Store
	Local            *stint.Memory // counts for Fleet without the store
	// Closes ends the store; nil: it is not the server's.
	Closes func()

	settings *config.Settings
	watch    *watch.Watch
	known    known
	crowded  atomic.Bool // little room is left for holds
}

// New returns the store of given, which may be nil or have none: then it is in memory. lost is called when a
// settlement was lost that waited for the store.
func New(given *stint.Limiter, s *config.Settings, f *config.Footprint, w *watch.Watch, lost func(*stint.Limit, error)) *Storage {
	if given == nil {
		given = new(stint.Limiter)
	}
	over := func(store stint.Store) *stint.Limiter {
		return &stint.Limiter{Store: store, Instance: given.Instance, Observe: given.Observe, ObserveHold: given.ObserveHold}
	}
	limiter := given
	if given.Store == nil {
		limiter = over(&stint.Memory{MaxKeys: int(s.MaxKeys)})
	} else if f, ok := stint.As[*fleet.Store](given.Store); ok { // the server has layers of its own
		limiter = over(f.Shared())
	}
	t := &Storage{
		Limiter: w.Tracing.Store(limiter), Local: &stint.Memory{MaxKeys: int(s.MaxKeys)},
		settings: s, watch: w,
	}
	t.Fleet = fleet.New(t.Limiter.Store, t.options(f))
	t.Layered = t.Limiter
	if t.Fleet.IsLayered() {
		t.Layered = over(t.Fleet)
		stint.Internal(friend.Of{}).SetMaxOwed(t.Layered, f.MaxOwed())
	}
	stint.Internal(friend.Of{}).OnLost(t.Layered, lost)
	return t
}

// options are the options of the layers before the store, from the settings.
func (t *Storage) options(f *config.Footprint) fleet.Options {
	o := fleet.Options{
		Deadline:   t.settings.DecisionTimeout,
		Local:      t.Local,
		Breaker:    t.settings.Breaker,
		Instances:  int(t.settings.Instances),
		MaxOwed:    int(f.MaxOwed()),
		MaxDenials: int(t.settings.RememberedDenials),
		Called: func(took time.Duration, err error) {
			t.watch.Metrics.Called(took, err)
			if err != nil {
				t.watch.Sampled.Failure(decide.NoStore, err)
			}
		},
	}
	o.Breaker.Changed = t.breakerChanged
	if o.MaxDenials == 0 {
		o.MaxDenials = -1 // 0 means none in the settings
	}
	return o
}

func (t *Storage) breakerChanged(to fleet.BreakerState, why error) {
	t.watch.Metrics.Turned(to, why)
	t.Down()
	if to == fleet.PartlyOpen && why != nil {
		t.watch.Log.Error("circuit breaker open: a server of the store is not called until it answers again; on_store_error decides about its keys", "error", why)
		return
	}
	if to == fleet.Open {
		t.known.whyOpen.Store(&why)
		t.watch.Log.Error("circuit breaker open: the store is not called until it answers again; on_store_error decides instead", "error", why)
		return
	}
	level := slog.LevelInfo
	if to == fleet.Closed {
		level = slog.LevelWarn // as the line that it ends
	}
	t.watch.Log.Log(context.Background(), level, "circuit breaker", "state", to.String())
}

// Remembers reports whether refusals are remembered.
func (t *Storage) Remembers() bool { return t.Fleet.IsLayered() && t.settings.RememberedDenials > 0 }

// Instances returns how many instances share the store, as last counted; at least 1. It never waits.
func (t *Storage) Instances() int {
	if !t.Fleet.IsLayered() {
		return 1
	}
	return max(1, int(t.Fleet.Live()))
}

// certified is a Store that reports when the certificates that its connections depend on
// expire: "client", "ca" and "server". It logs its own warnings.
type certified interface {
	Certificates() map[string]time.Time
}

// TellCertificates sets the expiry metric of the store's certificates.
func (t *Storage) TellCertificates() {
	if !t.Fleet.IsLayered() {
		return
	}
	store, ok := stint.As[certified](t.Fleet)
	if !ok {
		return
	}
	for which, at := range store.Certificates() {
		t.watch.Metrics.CertificateExpiry.WithLabelValues("store " + which).Set(float64(at.Unix()))
	}
}

// HoldsFinding finds that this instance has little room left for its own holds. Holds in Redis take none of
// it.
func (t *Storage) HoldsFinding() (f rules.Finding, near bool) {
	m := t.Local
	if !t.Fleet.IsLayered() {
		if m, _ = stint.As[*stint.Memory](t.Limiter.Store); m == nil {
			return f, false
		}
	}
	made, most := stint.Internal(friend.Of{}).RoomOfHolds(m)
	return rules.Finding{Code: rules.CodeManyHolds, Text: fmt.Sprintf("this instance has %d of at most %d holds in its own memory; beyond that, requests that hold get 503: "+
		"raise max_keys (this is a sixteenth of it), or shorten the holds of limits", made, most)}, made >= most-most/10
}

// NoticeHolds logs that finding when it appears.
func (t *Storage) NoticeHolds() {
	f, near := t.HoldsFinding()
	if was := t.crowded.Swap(near); near && !was {
		t.watch.Log.Warn(f.Text, "code", f.Code)
	}
}
