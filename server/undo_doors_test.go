package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/rulestest"
)

// stillHeld is what is held.
func (u *undoing) stillHeld() string {
	var all strings.Builder
	for as := range u.calls.keys() {
		if !as.limit.IsHeld() {
			continue
		}
		if held, err := u.over.(stint.Holder).Held(u.Context(), as.key, []*stint.Limit{as.limit}); err != nil || len(held) > 0 {
			fmt.Fprintf(&all, "%q under %s: %v %v\n", as.key, as.limit, held, err)
		}
	}
	return all.String()
}

// watchedStore is a Store that records what it is asked.
type watchedStore struct {
	*limittest.Faulty
	mu    sync.Mutex
	known map[heldAs]bool
	taken []stint.Request // allowed in this step

	charged []stint.Ask // in this step, whether they fit or not

	first, fails int // calls
	fail         limittest.Fault
	failed       []stint.Ask // of the call that failed in this step
	kind         string      // of that call
}

// unlayered is a watchedStore that is taken for its Memory, so that a server puts no layers over it.
type unlayered struct{ *watchedStore }

func (s unlayered) Unwrap() stint.Store { return s.Store }

// begin begins a step, whose n-th call fails, unless n is 0.
func (s *watchedStore) begin(n int, how limittest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.charged, s.failed, s.kind = nil, nil, nil, ""
	s.first, s.fails, s.fail = s.Calls(), n, how
}

func (s *watchedStore) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = 0
}

func (s *watchedStore) fault(call int) (f limittest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 && call == s.first+s.fails {
		return s.fail
	}
	return f
}

func (s *watchedStore) keys() map[heldAs]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[heldAs]bool, len(s.known))
	for as := range s.known {
		all[as] = true
	}
	return all
}

// saw records asks of a call of a kind, and that it failed with err.
func (s *watchedStore) saw(kind string, asks []stint.Ask, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range asks {
		if l := asks[i].Limit; l != nil && l.Spec().Name != "stint probe" { // which a breaker asks
			s.known[heldAs{asks[i].Key, asks[i].Limit}] = true
		}
	}
	if errors.Is(err, limittest.ErrFault) {
		s.failed, s.kind = append(s.failed, asks...), kind
	}
}

// lost is how many units of a key may differ because a call in this step failed, and the kind of that call.
func (s *watchedStore) lost(as heldAs) (units int64, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == "take" && !s.fail.Lost {
		return 0, s.kind
	}
	for i := range s.failed {
		switch a := &s.failed[i]; {
		case a.Key != as.key || a.Limit == nil || a.Limit.ID() != as.limit.ID():
		case a.Limit == as.limit:
			units += a.Units()
		default: // it shares the count, and its units may be others
			units += as.limit.Capacity()
		}
	}
	return units, s.kind
}

// took records r, which was answered.
func (s *watchedStore) took(r *stint.Request, allowed bool, err error) {
	s.saw("take", r.Asks, err)
	if err != nil || !allowed {
		return
	}
	kept := stint.Request{Hold: r.Hold}
	for _, a := range r.Asks {
		if a.Limit != nil {
			kept.Asks = append(kept.Asks, a)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, kept)
}

func (s *watchedStore) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, err := s.Faulty.Take(ctx, r, out)
	s.took(r, d.Allowed, err)
	return d, err
}

func (s *watchedStore) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	s.Faulty.TakeBatch(ctx, rs, answers)
	for i := range rs {
		s.took(&rs[i], answers[i].Allowed, answers[i].Err)
	}
}

func (s *watchedStore) Refund(ctx context.Context, r *stint.Request) error {
	err := s.Faulty.Refund(ctx, r)
	s.saw("refund", r.Asks, err)
	return err
}

func (s *watchedStore) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	s.Faulty.Holds(ctx, at, calls)
	for i := range calls {
		c := &calls[i]
		kind := "end" // of a hold
		if c.Action == stint.HoldCharge {
			kind = "charge"
		}
		s.saw(kind, []stint.Ask{{Key: c.Key, Limit: c.Limit, Cost: max(c.Units, c.Cost)}}, c.Err)
		if c.Action == stint.HoldCharge && c.Cost > 0 && c.Err == nil {
			s.mu.Lock()
			s.charged = append(s.charged, stint.Ask{Key: c.Key, Limit: c.Limit, Cost: c.Cost})
			s.mu.Unlock()
		}
	}
}

// wrappedHandler is a handler behind a server's rules. Requests of holds run until they are ended.
type wrappedHandler struct {
	http.Handler
	running map[string]chan bool // by the names of holds
}

func newWrappedHandler(s *server.Server) *wrappedHandler {
	h := &wrappedHandler{running: map[string]chan bool{}}
	h.Handler = s.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if until, ok := r.Context().Value(h).(chan bool); ok {
			<-until
		}
	}))
	return h
}

func (h *wrappedHandler) end(name string) {
	if until := h.running[name]; until != nil {
		close(until)
		synctest.Wait()
	}
	delete(h.running, name)
}

func (h *wrappedHandler) endAll() {
	for name := range h.running {
		h.end(name)
	}
}

// ask sends the request of a step, and reports whether it was refused. If it is delayed, its client leaves.
func (h *wrappedHandler) ask(step *rulestest.Step, random *rand.Rand) (refused bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if step.Do == rulestest.Hold {
		until := make(chan bool)
		h.running[step.Hold] = until
		ctx = context.WithValue(ctx, h, until)
	}
	r := requestOf(step.Body).WithContext(ctx)
	if n := random.IntN(4); n < 2 {
		r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(strings.NewReader(`{"n":2}`)), 7
		r.Header.Set("Content-Type", "application/json")
		if n == 0 {
			r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
		}
	}
	w, done, code := httptest.NewRecorder(), make(chan bool), 0
	go func() {
		defer cancel()
		h.ServeHTTP(w, r)
		code = w.Code
		close(done)
	}()
	synctest.Wait()
	select {
	case <-done:
		return code != 200
	default:
	}
	return false
}

// requestOf is the request of a check about one.
func requestOf(body string) *http.Request {
	asked := struct {
		Client, Operation string
		Attrs             map[string]any
		Request           struct{ Method, Path string }
	}{Client: "192.0.2.9"}
	asked.Request.Method, asked.Request.Path = "GET", "/"
	_ = json.Unmarshal([]byte(body), &asked) // else it is another client's
	r := httptest.NewRequest(asked.Request.Method, "http://example.com"+asked.Request.Path, nil)
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(asked.Client), 1).String()
	if asked.Operation != "" {
		r.Header.Set("operation", asked.Operation)
	}
	for name, value := range asked.Attrs {
		r.Header.Set(name, fmt.Sprint(value))
	}
	return r
}
