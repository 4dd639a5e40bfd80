package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/gateway"
)

// Listeners are the listeners on which Run serves: the gateway, the check API, the admin API with the
// dashboard, and the probes of an orchestrator. A nil one is not served.
type Listeners struct{ Gateway, Check, Admin, Probes net.Listener }

// Close closes the listeners that are not nil. Call it if Run is not called.
func (l Listeners) Close() {
	for _, l := range [...]net.Listener{l.Gateway, l.Check, l.Admin, l.Probes} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// The names of listeners in errors, logs and metrics.
const (
	gatewayListener = "gateway"
	checkListener   = "check"
	adminListener   = "admin"
	probeListener   = "probes"
)

// Run serves until ctx is done. It then goes on for the settings' StopDelay, while /readyz fails. After that
// it accepts no more requests and waits up to StopTimeout for those in flight. It cuts off the rest and
// upgraded connections, logs their number in one line, closes all listeners, waits up to a second for the
// store to settle the requests' holds, and returns nil.
//
// Listeners for which the settings have TLS serve TLS with HTTP/2. Without TLS, the gateway
// also serves HTTP/2 to clients that start with it (h2c with prior knowledge).
//
// beside are other servers that decide by s, such as package envoy's. Run calls each with a context that is
// done when Run stops serving, and waits for all of them before it closes the store. An error of one ends
// Run.
//
// Run checks the files with certificates and tokens every 5 seconds, including those for upstreams. New
// content is used for new connections, and for new requests with a token. If a file is wrong, that is logged
// and its former content stays in use; at the start it is an error.
func (s *Server) Run(ctx context.Context, l Listeners, beside ...func(context.Context) error) error {
	if err := s.Open(); err != nil {
		l.Close()
		return err
	}
	if a := &s.settings.Admin; l.Admin != nil && a.TokensInTheClear() {
		s.watch.Log.Warn("tokens are sent unencrypted: set tls for the admin API, or an address such as 127.0.0.1:8090", "address", l.Admin.Addr().String())
	}
	if l.Check != nil && s.settings.CheckTokensInTheClear() {
		s.watch.Log.Warn("tokens are sent unencrypted: set check_tls for the check API, or an address such as 127.0.0.1:8082", "address", l.Check.Addr().String())
	}
	if j := s.settings.JWT; j != nil && j.KeysInTheClear() {
		s.watch.Log.Warn("token keys are fetched unencrypted, so that others on the network can replace them: use a jwks_url with https, or a jwks_file")
	}
	for i := range s.settings.Lists {
		if l := &s.settings.Lists[i]; l.InTheClear() {
			s.watch.Log.Warn("a list is fetched unencrypted, so that others on the network can replace it: use a url with https, or a file", "list", l.Name)
		}
	}
	if t := s.settings.Traces; t != nil && t.HeadersInTheClear() {
		s.watch.Log.Warn("the headers of traces are sent unencrypted: use an endpoint with https")
	}
	for i := range s.settings.Webhooks {
		if w := &s.settings.Webhooks[i]; w.HeadersInTheClear() {
			s.watch.Log.Warn("the headers of a webhook are sent unencrypted: use a url with https", "webhook", w.Name)
		}
	}
	s.Follow(ctx)
	defer s.Close()
	underWay, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	listeners := s.listeners(underWay, l)
	errs := make(chan error, 2*len(listeners)+len(beside))
	failed, fail := context.WithCancel(ctx)
	defer fail()
	var running sync.WaitGroup
	for _, d := range listeners {
		running.Go(func() {
			if err := d.serve(); !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("listener %s: %w", d.listener.Addr(), err)
				fail()
			}
		})
	}
	for _, serve := range beside {
		running.Go(func() {
			if err := serve(failed); err != nil {
				errs <- err
				fail()
			}
		})
	}
	<-failed.Done()
	s.life.stopping.Store(true)
	if d := s.settings.StopDelay; d > 0 && ctx.Err() != nil {
		s.watch.Log.Info("stopping: no longer ready, but still serving", "stop_delay", d.String())
		time.Sleep(d)
	} else if ctx.Err() != nil {
		s.watch.Log.Info("stopping: no longer ready; requests in flight may end", "stop_timeout", s.settings.StopTimeout.String())
	}
	s.live.Close() // otherwise streams would hold up the stop
	grace, cancel := context.WithTimeout(underWay, s.settings.StopTimeout)
	defer cancel()
	var stopping sync.WaitGroup
	for _, d := range listeners {
		stopping.Go(func() {
			if err := d.server.Shutdown(grace); err != nil && grace.Err() == nil {
				errs <- fmt.Errorf("shut down: %w", err)
			}
		})
	}
	stopping.Wait()
	s.cutRest(cut)
	for _, d := range listeners {
		_ = d.server.Close() // of requests that still have not ended
	}
	running.Wait()
	for deadline := time.Now().Add(decide.AfterTimeout); stint.Internal(friend.Of{}).Owes(s.door.Decider.Limiter) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // settlements that were late are sent again meanwhile
	}
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// Follow reads the fleet's shared documents, checks whether the store decides, and fetches the keys of
// tokens: once before it returns, if that takes less than a second, and then repeatedly until ctx is done or
// Close is called. It also fetches lists again, reads changed files that Open has read, and logs when Ready
// changes.
//
// Load and Run call Follow. If you serve the handlers of a Server that New made, call it yourself. Only the
// first call counts: a later one returns when the first has, and ignores its own ctx. After Close, Follow
// does nothing.
func (s *Server) Follow(ctx context.Context) {
	s.life.follow.Do(func() {
		if s.life.ctx.Err() != nil {
			return
		}
		ctx, end := context.WithCancel(ctx)
		context.AfterFunc(s.life.ctx, end)
		var first sync.WaitGroup
		defer s.followReady(ctx) // when the first results are there
		defer first.Wait()
		go s.watchFiles(ctx)
		first.Go(func() { s.claims.Follow(ctx) })
		go s.files.lists.Run(ctx)
		if s.store.Fleet.IsLayered() {
			first.Go(func() { s.store.Probe(ctx) })
			go s.store.Follow(ctx)
		}
		if s.settings.HashKeys {
			first.Go(func() { s.watch.Privacy.ShareSalt(ctx) })
			go s.watch.Privacy.FollowSalt(ctx)
		}
		go s.live.Run(ctx)
		go s.alerts.Run(ctx)
		s.control.Follow(ctx)
		if s.offenders != nil {
			s.offenders.Follow(ctx)
		}
	})
}

// servedListener is a listener with its server.
type servedListener struct {
	listener net.Listener
	server   *http.Server
	secure   bool // it serves TLS
}

// smallTimeout bounds the time in which a request must arrive at the check or admin listener, and in which
// the client must read an answer of the check API.
const smallTimeout = 30 * time.Second

// answerTimeout bounds a request of the admin or probe listener, from its headers until the client has read
// the answer. Streams of events go on for as long as the client reads them.
const answerTimeout = 2 * time.Minute

// listeners returns the listeners to serve. Where bodies are small, the time to read and write them is
// bounded; the gateway's clients must keep pace instead.
func (s *Server) listeners(ctx context.Context, l Listeners) []servedListener {
	var all []servedListener
	bounds := &connectionBounds{s.settings.MaxConnections, s.headerTimeout, s.watch.Metrics}
	add := func(name string, l net.Listener, h func() http.Handler, readTimeout, writeTimeout time.Duration) {
		if l == nil {
			return
		}
		server := s.httpServer(h())
		server.ReadTimeout, server.WriteTimeout = readTimeout, writeTimeout
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		for _, c := range s.files.certificates.all {
			if c.listener == name {
				server.TLSConfig = c.config()
			}
		}
		secure := server.TLSConfig != nil
		server.Protocols.SetHTTP2(secure)
		server.Protocols.SetUnencryptedHTTP2(name == gatewayListener) // for clients of gRPC without TLS
		boundHTTP2(server)
		server.BaseContext = func(net.Listener) context.Context {
			bounds.watchHTTP2(server)
			return ctx
		}
		all = append(all, servedListener{bounds.atMost(name, l), server, secure})
	}
	add(gatewayListener, l.Gateway, s.Gateway, 0, 0)
	add(checkListener, l.Check, s.Check, smallTimeout, smallTimeout+s.settings.MaxDelay+smallTimeout)
	add(adminListener, l.Admin, s.Admin, smallTimeout, answerTimeout)
	add(probeListener, l.Probes, s.Probes, smallTimeout, answerTimeout)
	return all
}

func (d servedListener) serve() error {
	if d.secure {
		return d.server.ServeTLS(d.listener, "", "")
	}
	return d.server.Serve(d.listener)
}

// httpServer bounds slow and greedy clients.
func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.headerTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    gateway.MaxHeaderBytes,
		ErrorLog:          s.errorLog,
	}
}

// cutTimeout bounds the time that requests take to end after they are cut off.
const cutTimeout = time.Second

// cutRest calls cut to end requests still in flight, and logs them in one line.
func (s *Server) cutRest(cut context.CancelFunc) {
	requests, upgrades, examples := s.door.CutOff.Cut(cut, s.door.Admission.InFlight, cutTimeout)
	if requests+upgrades > 0 {
		s.watch.Log.Warn("stopped, and cut off requests that were still open", "requests", requests, "upgraded_connections", upgrades,
			"stop_timeout", s.settings.StopTimeout.String(), "among_them", strings.Join(examples, ", "))
	}
}

// Gatherer gathers the metrics of /metrics, for a listener that Run does not serve.
func (s *Server) Gatherer() prometheus.Gatherer { return s.watch.Metrics.Registry }

// RegisterMetrics adds the metrics of a service beside s to those of /metrics. It panics if one of
// them is there already.
func (s *Server) RegisterMetrics(c prometheus.Collector) { s.watch.Metrics.Registry.MustRegister(c) }
