package envoy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server/envoy/internal/caller"
)

const (
	// maxMessage is the size of the largest message and of the largest body of /json, in bytes.
	maxMessage = 4 << 20
	// maxStreams is how many calls a connection may have in flight. Envoy opens another
	// connection for more.
	maxStreams = 10_000
	// maxHeaders is the size of the headers of a call, in bytes.
	maxHeaders = 64 << 10
	// workers is how many goroutines serve one call after another. A call that finds none free gets its own
	// goroutine, whose stack must grow first: a fifth of the CPU time of a decision. Each takes about 16 KiB.
	workers = 128
	// handshakeTimeout bounds the time that a new connection takes until it is ready.
	handshakeTimeout = 10 * time.Second
	// pingAfter is how long a connection may be silent before the server pings the client, and pingTimeout
	// how long the client may take to answer.
	pingAfter, pingTimeout = time.Minute, 20 * time.Second
	// mostStreams is how many streams may be open at once: those of health checks, reflection and the rate
	// limit quota service, which has a smaller bound of its own. One caller's address cannot take all of
	// them; see room.Room.
	mostStreams = 2_000
	// pingAtMost is how often a client may ping. gRPC's default of 5 minutes ends connections of an Envoy
	// with connection_keepalive.
	pingAtMost = 5 * time.Second
)

// newGRPC returns the gRPC server with all its services.
func (s *Server) newGRPC() (*grpc.Server, error) {
	settings := s.c.Settings
	unary := []grpc.UnaryServerInterceptor{s.containUnary}
	if s.c.Trace != nil {
		unary = []grpc.UnaryServerInterceptor{s.trace, s.containUnary}
	}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(s.containStream),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.InTapHandle(s.arrivals.begin),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: settings.MaxConnectionAge, MaxConnectionAgeGrace: settings.MaxConnectionAgeGrace,
			Time: pingAfter, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAtMost, PermitWithoutStream: true}),
		grpc.NumStreamWorkers(workers),
	}
	transport := insecure.NewCredentials()
	if settings.TLS != nil {
		secure, err := s.tls()
		if err != nil {
			return nil, fmt.Errorf("tls of Envoy's gRPC: %w", err)
		}
		transport = credentials.NewTLS(secure)
	}
	if s.c.WatchHTTP2 != nil {
		transport = watchedTransport{transport, s.c.WatchHTTP2}
	}
	g := grpc.NewServer(append(options, grpc.Creds(transport))...)
	rls.RegisterRateLimitServiceServer(g, s.service)
	grpc_health_v1.RegisterHealthServer(g, s.health)
	for _, register := range s.c.Register {
		register(g)
	}
	reflection.Register(g)
	return g, nil
}

// watchedTransport watches the connections of a listener above TLS, which is where grpc-go takes
// them from.
type watchedTransport struct {
	credentials.TransportCredentials
	watch func(net.Conn) net.Conn
}

// ServerHandshake implements credentials.TransportCredentials.
func (t watchedTransport) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := t.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return c, info, err
	}
	return t.watch(c), info, nil
}

// Clone implements credentials.TransportCredentials.
func (t watchedTransport) Clone() credentials.TransportCredentials {
	return watchedTransport{t.TransportCredentials.Clone(), t.watch}
}

// stopGRPC waits until calls have ended; when ctx is done, it ends them.
func (s *Server) stopGRPC(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// containUnary answers a call whose handler panics, and keeps the process alive.
func (s *Server) containUnary(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
	arrived(ctx)
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
	}()
	return handle(ctx, r)
}

// trace makes a span of each call except health checks.
func (s *Server) trace(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/grpc.") {
		return handle(ctx, r)
	}
	caller := http.Header{}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if lines := metadata.ValueFromIncomingContext(ctx, name); lines != nil {
			caller[name] = lines
		}
	}
	ctx, end := s.c.Trace(ctx, strings.TrimPrefix(info.FullMethod, "/"), caller)
	out, err := handle(ctx, r)
	end(code.Code(status.Code(err)).String()) // the numbers are the same
	return out, err
}

// containStream is containUnary for streams. It bounds how many are open, in total and for one address.
func (s *Server) containStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	place, refused := s.streams.Enter(nil, caller.Of(stream.Context()))
	switch refused {
	case room.Full:
		return status.Errorf(codes.ResourceExhausted, "%d streams are open: at most %d", mostStreams, mostStreams)
	case room.Share:
		return status.Error(codes.ResourceExhausted, "too many streams of this address are open: the rest is for others")
	}
	defer s.streams.Leave(place)
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
	}()
	return handle(srv, arrivingStream{stream})
}

// arrivingStream notices the arrival of the first message.
type arrivingStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s arrivingStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		arrived(s.Context())
	}
	return err
}

func (s *Server) panicked(method string, p any) error {
	s.log.Error("panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// tls is the configuration of the gRPC listener.
func (s *Server) tls() (*tls.Config, error) {
	files, name := s.c.Settings.TLS, s.c.Settings.ClientName
	if s.c.Certificate == nil {
		return nil, errors.New("nothing opens certificates")
	}
	if name != "" && !files.AsksForCertificate() {
		return nil, errors.New("names of client certificates need an authority that signs them")
	}
	base, err := s.c.Certificate("envoy", files)
	if err != nil || name == "" {
		return base, err
	}
	base = base.Clone()
	current := base.GetConfigForClient
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := current(hello)
		if err != nil {
			return nil, err
		}
		c = c.Clone()
		c.VerifyConnection = func(state tls.ConnectionState) error { return isNamed(state.PeerCertificates[0], name) }
		return c, nil
	}
	return base, nil
}

// isNamed returns an error unless name is among the names of a client's certificate: a DNS name, an address
// or a URI, such as a SPIFFE ID.
func isNamed(x *x509.Certificate, name string) error {
	for _, u := range x.URIs {
		if u.String() == name {
			return nil
		}
	}
	return x.VerifyHostname(name)
}

// isAbandoned removes the unix socket of a process that has ended, as err of dialling shows, and reports
// whether it did.
func isAbandoned(path string, err error) bool {
	info, statErr := os.Lstat(path)
	return errors.Is(err, syscall.ECONNREFUSED) && statErr == nil && info.Mode()&fs.ModeSocket != 0 && os.Remove(path) == nil
}
