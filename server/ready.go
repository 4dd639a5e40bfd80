package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/storage"
	"github.com/stintdev/stint/server/rules"
)

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
	if s.life.stopping.Load() {
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
		if ctx.Err() != nil || s.life.stopping.Load() {
			return
		}
		switch {
		case err == nil && logged != "":
			logged = ""
			s.watch.Log.Warn("ready again") // of the level of the line that it ends
		case err != nil && err.Error() != logged:
			logged = err.Error()
			args := []any{"why", logged}
			if cause := errors.Unwrap(err); cause != nil {
				args = append(args, "error", cause)
			}
			s.watch.Log.Warn("not ready", args...)
		}
	}
	look()
	go storage.Every(ctx, storage.ProbeEvery, look)
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
	} else if s.store.Fleet.IsLayered() && s.store.Fleet.State() == fleet.PartlyOpen {
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

// StoreError returns why the store does not decide, as far as known; nil: it decides. It never waits: a store
// in memory answers at once, and for other stores it uses the results of requests and of the last probe.
func (s *Server) StoreError() error { return s.store.Err() }

// Instances returns how many instances share the store, as last counted; at least 1. It never waits.
func (s *Server) Instances() int { return s.store.Instances() }
