package envoy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// Config has the parts of a Server. Only Settings and Decider must be given.
type Config struct {
	Settings *config.Envoy
	Decider  Decider
	// Observer gets the service's events. It may be nil.
	Observer Observer
	// Loaded reports whether a configuration has been loaded. Until then every call is an error. nil: it
	// always is.
	Loaded func() bool
	// Ready returns why the service must not get calls, for health checks; see
	// server.Server.Ready. It must not block. nil: it always may.
	Ready func() error
	// Certificate opens the certificate of the gRPC listener; see server.Server.Certificate. It
	// is needed if the settings have TLS.
	Certificate func(listener string, files *config.TLSFiles) (*tls.Config, error)
	// Bound bounds the connections of a listener; see server.Server.BoundConnections. nil: no bound.
	Bound func(listener string, l net.Listener) net.Listener
	// WatchHTTP2 bounds what a client may do with a connection of the gRPC listener; see
	// server.Server.WatchHTTP2. nil: only grpc-go's bounds.
	WatchHTTP2 func(net.Conn) net.Conn
	// Trace starts the spans of calls; see server.Server.CallTracer. nil: there are none.
	Trace server.CallTracer
	// Register is called with the gRPC server, to add services to RateLimitService. Their
	// streams must end when Server.Stopping is closed.
	Register []func(*grpc.Server)
	// Stats answers /stats of the debug listener, and Prometheus the path in
	// Settings.Stats of the Prometheus listener. They may be nil.
	Stats, Prometheus http.Handler
	// StopDelay is how long Run goes on after its context is done, while health checks
	// fail, and StopTimeout how long it then waits for calls in flight.
	StopDelay, StopTimeout time.Duration
	// Log receives failures. nil: slog.Default.
	Log *slog.Logger
}

// Server serves envoyproxy/ratelimit's listeners: gRPC, HTTP, debug and Prometheus. New makes it.
type Server struct {
	c         Config
	log       *slog.Logger
	service   *Service
	grpc      *grpc.Server // made by Listen
	health    *health
	arrivals  arrivals
	streams   *room.Room    // those that are open
	stopping  chan struct{} // closed when calls in flight must end
	listeners []servedListener
}

// servedListener is a listener and its server.
type servedListener struct {
	name     string
	listener net.Listener
	serve    func(net.Listener) error
	// stop ends serve gracefully, until ctx is done; then at once.
	stop func(ctx context.Context)
}

// New returns a Server.
func New(c Config) *Server {
	s := &Server{c: c, log: c.Log, streams: room.Of(mostStreams), stopping: make(chan struct{})}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.service = NewService(c.Decider, c.Settings, c.Observer)
	s.service.loaded = c.Loaded
	s.health = newHealth(s.unhealthy)
	return s
}

// Stopping is closed when the server accepts no more calls, so that streams end.
func (s *Server) Stopping() <-chan struct{} { return s.stopping }

// unhealthy returns why the service must not get calls.
func (s *Server) unhealthy() error {
	if s.c.Settings.Health.NeedsDescriptors && s.c.Loaded != nil && !s.c.Loaded() {
		return errNoConfig
	}
	if s.c.Ready != nil {
		return s.c.Ready()
	}
	return nil
}

// Listen opens all listeners of the settings, or none. Call it before Run.
func (s *Server) Listen() (err error) {
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	settings := s.c.Settings
	if s.grpc, err = s.newGRPC(); err != nil {
		return err
	}
	open := func(name, network, address string, serve func(net.Listener) error, stop func(context.Context)) error {
		if address == "" || address == config.Off {
			return nil
		}
		l, err := listen(network, address)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if s.c.Bound != nil {
			l = s.c.Bound("envoy_"+strings.ToLower(strings.TrimPrefix(name, "Envoy's ")), l)
		}
		s.listeners = append(s.listeners, servedListener{name, l, serve, stop})
		s.log.Info(name, "address", l.Addr().String())
		return nil
	}
	openHTTP := func(name, address string, h http.Handler, timeout time.Duration) error {
		server := s.httpServer(h, timeout)
		return open(name, "tcp", address, server.Serve, func(ctx context.Context) {
			_ = server.Shutdown(ctx)
			_ = server.Close()
		})
	}
	network, address := settings.Address()
	if err := open("Envoy's gRPC", network, address, s.grpc.Serve, s.stopGRPC); err != nil {
		return err
	}
	if err := openHTTP("Envoy's HTTP", settings.HTTPListen, s.HTTP(), smallTimeout); err != nil {
		return err
	}
	if err := openHTTP("Envoy's debug", settings.DebugListen, s.Debug(), 0); err != nil {
		return err
	}
	if s.c.Prometheus == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle(cmp.Or(settings.Stats.PrometheusPath, "/metrics"), s.c.Prometheus)
	return openHTTP("Envoy's Prometheus", settings.Stats.PrometheusListen, mux, smallTimeout)
}

// Addr is the address of a listener: "gRPC", "HTTP", "debug" or "Prometheus". nil: there is none.
func (s *Server) Addr(name string) net.Addr {
	for _, d := range s.listeners {
		if d.name == "Envoy's "+name {
			return d.listener.Addr()
		}
	}
	return nil
}

// Close closes the listeners. Call it if Run is not called.
func (s *Server) Close() {
	for _, d := range s.listeners {
		_ = d.listener.Close()
	}
}

// Run serves until ctx is done. Then health checks fail, and it goes on for StopDelay. After that
// it accepts no more calls, waits up to StopTimeout for those in flight, cuts off the rest, closes
// the listeners and returns nil. If a listener fails, Run ends at once and returns why.
func (s *Server) Run(ctx context.Context) error {
	failed, fail := context.WithCancel(ctx)
	defer fail()
	errs := make(chan error, len(s.listeners))
	var running sync.WaitGroup
	running.Go(func() { s.health.follow(failed) })
	cutting, endCuts := context.WithCancel(context.WithoutCancel(ctx))
	defer endCuts()
	go s.arrivals.follow(cutting, s.stopping)
	for _, d := range s.listeners {
		running.Go(func() {
			if err := d.serve(d.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("%s: %w", d.name, err)
				fail()
			}
		})
	}
	<-failed.Done()
	s.health.stop()
	if d := s.c.StopDelay; d > 0 && ctx.Err() != nil {
		time.Sleep(d)
	}
	close(s.stopping)
	s.health.end()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.StopTimeout)
	defer cancel()
	var stopping sync.WaitGroup
	for _, d := range s.listeners {
		stopping.Go(func() { d.stop(grace) })
	}
	stopping.Wait()
	running.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// listen opens a listener. It replaces an abandoned unix socket.
func listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err == nil || network != "unix" {
		return l, err
	}
	c, dialErr := net.Dial(network, address)
	if dialErr == nil {
		_ = c.Close()
		return nil, err
	}
	if !isAbandoned(address, dialErr) {
		return nil, err
	}
	return net.Listen(network, address)
}
