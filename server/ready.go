package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/lookup"
	"github.com/stintdev/stint/server/rules"
)

const (
	// probeKey is the key of the server's probes.
	probeKey = "readyz"
	// probeEvery is how often the server asks the store whether it decides, independent of
	// requests.
	probeEvery = time.Second
	// probeTimeout is how long it may take to answer.
	probeTimeout = time.Second
)

// probed is the result of the last probe: why the store does not decide, or nil.
type probed struct{ err error }

// storeWatch is the known state of a store that may fail.
type storeWatch struct {
	probed  atomic.Pointer[probed] // nil: no probe yet
	seconds atomic.Pointer[probed] // of the server for limits of less than a minute; nil: there is none, or no probe yet
	whyOpen atomic.Pointer[error]  // why the breaker opened last; nil: it never did
	outage  live.Outage
}

// err returns why the store behind f does not decide, as far as known; nil: it decides, or a part of it does.
func (w *storeWatch) err(f *fleet.Store) error {
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
func (w *storeWatch) down(f *fleet.Store) time.Duration {
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
func (w *storeWatch) probeSeconds(ctx context.Context, store stint.Store) {
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

// storeDecides asks the store, and returns why it does not decide; nil: it does.
func (s *Server) storeDecides(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return stint.Internal(friend.Of{}).Probe(ctx, s.limiter.Store, nil, probeKey)
}

// probeStore asks the store once, and keeps the result.
func (s *Server) probeStore(ctx context.Context) {
	var seconds sync.WaitGroup
	seconds.Go(func() { s.store.probeSeconds(ctx, s.limiter.Store) })
	err := s.storeDecides(ctx)
	seconds.Wait()
	if ctx.Err() != nil {
		return
	}
	before := s.store.probed.Swap(&probed{err})
	s.store.down(s.fleet)
	was := before != nil && before.err != nil
	switch {
	case err != nil && !was:
		s.log.Warn("the store does not decide", "error", err)
	case err == nil && was:
		s.log.Warn("the store decides again") // of the level of the line that it ends
	}
}

func (s *Server) followStore(ctx context.Context) {
	every(ctx, probeEvery, func() { s.probeStore(ctx) })
}

// every calls f each d, until ctx is done.
func every(ctx context.Context, d time.Duration, f func()) {
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

var errNotAsked = errors.New("the circuit breaker is open")

// StoreError returns why the store does not decide, as far as known; nil: it decides. It never waits: a store
// in memory answers at once, and for other stores it uses the results of requests and of the last probe.
func (s *Server) StoreError() error {
	if !s.fleet.IsLayered() {
		return s.storeDecides(context.Background())
	}
	return s.store.err(s.fleet)
}

// notReady is why load balancers must not send requests to an instance. Its text is for anybody who may ask
// /readyz. The cause may contain addresses, and is for the log.
type notReady struct {
	why   string
	cause error // nil: there is none but why
}

func (n *notReady) Error() string { return n.why }
func (n *notReady) Unwrap() error { return n.cause }

// Ready returns why load balancers must not send requests to this instance; nil: they may. Its text contains
// no addresses; the store's error, which may, is wrapped. Ready answers from known state and never waits:
// probes that waited for a hanging store would fail at every instance at once.
func (s *Server) Ready() error {
	if s.stopping.Load() {
		return &notReady{why: "stopping"}
	}
	if who := needStore(s.Rules()); who != "" {
		if err := s.StoreError(); err != nil {
			return &notReady{who + " the store (on_store_error: deny), which does not decide; `stint status` says why", err}
		}
	}
	if s.control.Source() == control.SourceNone && !s.settings.ReadyWithoutControls {
		return &notReady{"the fleet's bans, lists, switches and rules have not been read yet (ready_without_controls: false); `stint status` says why", s.control.Unread()}
	}
	return nil
}

// followReady logs, now and until ctx is done, when this instance becomes not ready, and when it is ready
// again: the answers to probes are often shown to nobody. A stop has a line of its own.
func (s *Server) followReady(ctx context.Context) {
	logged := "" // why it is not ready, as logged last; empty: it is
	look := func() {
		err := s.Ready()
		if ctx.Err() != nil || s.stopping.Load() {
			return
		}
		switch {
		case err == nil && logged != "":
			logged = ""
			s.log.Warn("ready again") // of the level of the line that it ends
		case err != nil && err.Error() != logged:
			logged = err.Error()
			args := []any{"why", logged}
			if cause := errors.Unwrap(err); cause != nil {
				args = append(args, "error", cause)
			}
			s.log.Warn("not ready", args...)
		}
	}
	look()
	go every(ctx, probeEvery, look)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	controls, err := s.control.Source(), s.StoreError()
	text := "ready"
	if err != nil {
		text += ", without the store"
	} else if s.fleet.IsLayered() && s.fleet.State() == fleet.PartlyOpen {
		text += ", without a part of the store"
	}
	switch controls {
	case control.SourceNone:
		text += ", without the fleet's documents: bans, lists, switches and pushed rules"
	case control.SourceState:
		text += ", by the saved documents of the fleet"
	}
	if s.claims != nil && !s.claims.CanRead() {
		text += ", without the keys of tokens: clients have no claims"
	}
	_, _ = w.Write([]byte(text + "\n"))
}

// needStore names the rules of set that refuse requests without the store, as the beginning of a sentence such as
// "rule login needs"; empty: there are none. In that case, a load balancer must keep this instance: all
// instances lose the same store, so it would remove all of them.
func needStore(set *rules.Set) string {
	first, more := "", 0
	for _, r := range set.Rules {
		switch {
		case r.Mode != rules.Enforce || r.OnStoreError != stint.OnErrorDeny:
		case first == "":
			first = r.Name
		default:
			more++
		}
	}
	switch {
	case first == "":
		return ""
	case more == 0:
		return "rule " + first + " needs"
	}
	return fmt.Sprintf("rules %s and %d more need", first, more)
}

// storeStatus is the state of the store. It asks the store, unless that is known to be down.
func (s *Server) storeStatus(ctx context.Context, shared bool) adminapi.StoreStatus {
	j := adminapi.StoreStatus{Kind: "memory", Shared: shared, Decides: "store"}
	if s.fleet.IsLayered() {
		// The part before the rest of the address, which may contain a password.
		scheme, _, isURL := strings.Cut(s.settings.Store, "://")
		if j.Kind = scheme; !isURL {
			j.Kind = fmt.Sprintf("%T", s.limiter.Store) // of a program that serves by itself
		}
	}
	if s.fleet.IsLayered() {
		j.Breaker, j.Instances = s.fleet.State().String(), s.fleet.Live()
		j.Namespace = s.settings.Namespace
	}
	j.Down = int64(s.store.down(s.fleet) / time.Second)
	if by, known := s.control.ClockAhead(); known {
		ahead := by.Microseconds()
		j.ClockAhead = &ahead
	}
	if s.remembers() {
		listening := s.fleet.Connected()
		j.Listening = &listening
	}
	err := s.StoreError()
	if err == nil && s.fleet.IsLayered() && s.fleet.State() != fleet.PartlyOpen { // the last probe is up to a second old
		bounded, cancel := context.WithTimeout(ctx, lookup.Timeout)
		defer cancel()
		err = s.storeDecides(bounded)
	}
	if j.OK = err == nil; err != nil {
		j.Error = err.Error()
		if s.fleet.IsLayered() {
			j.Decides = "on_store_error"
		}
	}
	return j
}

// Probes answers GET /healthz, /readyz and /metrics as Check does, but to every caller: it is meant for an
// address of its own. Its requests charge and change nothing. The metrics show rule names and numbers of
// requests.
func (s *Server) Probes() http.Handler {
	mux := http.NewServeMux()
	s.addProbes(mux, func(h http.Handler) http.Handler { return h })
	return mux
}

// addProbes adds these paths to mux, with a guard before all but /healthz and /readyz.
func (s *Server) addProbes(mux *http.ServeMux, guard func(http.Handler) http.Handler) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", guard(s.watch.Metrics.Handler(s.errorLog)))
}
