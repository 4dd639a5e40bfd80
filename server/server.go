package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// Config is what a Server is made of.
type Config struct {
	Settings Settings
	// Rules must be given.
	Rules *rules.Set
	// Limiter decides. nil: one in memory.
	Limiter *stint.Limiter
	// Log is told of failures. nil: slog.Default.
	Log *slog.Logger
}

// Server decides requests by rules. It is made by New and may be used from many
// goroutines at once.
type Server struct {
	settings   Settings
	set        atomic.Pointer[served]
	metrics    *metrics
	limiter    *stint.Limiter
	local      *stint.Limiter // decides where limiter does not; nil: nothing does
	timeout    time.Duration  // of a decision; 0: none
	transport  *http.Transport
	log        *slog.Logger
	errorLog   *log.Logger
	complaints stint.Limiter // of s.log, see complain
	stopping   atomic.Bool
}

// New is a Server.
func New(c Config) *Server {
	s := &Server{settings: c.Settings, limiter: c.Limiter, log: c.Log, transport: newTransport(&c.Settings)}
	s.metrics = newMetrics(s.Rules)
	s.set.Store(s.metrics.serve(c.Rules))
	if s.limiter == nil {
		s.limiter = stint.NewLimiter(&stint.Memory{MaxKeys: int(c.Settings.MaxKeys)})
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.errorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	if _, ok := s.limiter.Store.(*stint.Memory); !ok && s.limiter.Store != nil {
		// Memory answers at once, and where it does not, it is full: another
		// one beside it would hand out fresh limits.
		s.timeout = c.Settings.DecisionTimeout
		s.local = stint.NewLimiter(&stint.Memory{MaxKeys: int(c.Settings.MaxKeys)})
	}
	return s
}

// Rules is the set that decides now.
func (s *Server) Rules() *rules.Set { return s.set.Load().Set }

// SetRules makes another set decide, for every request that comes from now on.
// Counts are kept where a rule's name and a limit's algorithm, period and
// sub-windows are as before, and so are the metrics of a rule whose name is.
func (s *Server) SetRules(set *rules.Set) {
	s.metrics.swap.Lock()
	defer s.metrics.swap.Unlock()
	before := s.set.Swap(s.metrics.serve(set))
	s.metrics.forget(before.Set, set)
	s.metrics.reloadsTaken.Inc()
}

// readyLimit is asked, and never charged, to see whether the store decides.
var readyLimit = stint.MustLimit("1 per 1s")

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if _, err := s.limiter.Peek(ctx, "readyz", readyLimit); err != nil {
		s.log.Warn("the store does not decide", "error", err)
		if s.needsStore() {
			http.Error(w, "the store does not decide", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready, without the store\n"))
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// needsStore tells whether requests would be refused for want of the store. Where
// none would, a load balancer must not take this instance out, and with it, since
// they all lose the same store, every other.
func (s *Server) needsStore() bool {
	return slices.ContainsFunc(s.Rules().Rules, func(r *rules.Rule) bool {
		return r.Mode == rules.Enforce && r.OnStoreError == rules.Deny
	})
}

// stopTimeout bounds how long requests under way are waited for.
const stopTimeout = 30 * time.Second

// Run serves the check API and, where gateway is not nil, the gateway, until ctx
// is done; then it takes no more, lets the requests under way finish, for up to 30
// seconds, cuts connections that were upgraded, and returns nil. It closes both
// listeners.
func (s *Server) Run(ctx context.Context, gateway, check net.Listener) error {
	underWay, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer s.transport.CloseIdleConnections()
	defer cut()
	servers := map[net.Listener]*http.Server{check: s.httpServer(underWay, s.Check())}
	servers[check].ReadTimeout = 30 * time.Second // bodies are small here
	if gateway != nil {
		servers[gateway] = s.httpServer(underWay, s.Gateway())
	}
	errs := make(chan error, 2*len(servers))
	failed, fail := context.WithCancel(ctx)
	defer fail()
	var running sync.WaitGroup
	for l, h := range servers {
		running.Go(func() {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("listener %s: %w", l.Addr(), err)
				fail()
			}
		})
	}
	<-failed.Done()
	s.stopping.Store(true)
	grace, cancel := context.WithTimeout(underWay, stopTimeout)
	defer cancel()
	for _, h := range servers {
		running.Go(func() {
			if err := h.Shutdown(grace); err != nil {
				errs <- errors.Join(fmt.Errorf("shut down: %w", err), h.Close())
			}
		})
	}
	running.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// httpServer bounds what a slow or greedy client can hold.
func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          s.errorLog,
	}
}
