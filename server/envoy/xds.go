package envoy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Follow gets configurations from the management server x until ctx is done: all of them at the start
// of each stream, and whenever one changes. It calls take, from one goroutine, with the files of each
// response that differs from the last one taken; there may be no files. An error of take is sent to the
// server, so that it does not send the same again.
//
// Follow reconnects without end, and logs the reason.
func Follow(ctx context.Context, x *config.XDS, log *slog.Logger, take func([]rules.File) error) {
	c := &xdsClient{XDS: x, log: log, take: take, wait: x.Backoff}
	said := ""
	for ctx.Err() == nil {
		wait, err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said || c.received { // each attempt may fail for the same reason
			if c.complain("no connection to the management server; the configuration stays as it is", "server", x.Server, "error", err) {
				said = text
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

const (
	// pingManagement is how long a management server may be silent before it is pinged. A gRPC server closes
	// the connection of a client that pings more often than every 5 minutes.
	pingManagement = 5*time.Minute + 10*time.Second
	// longestRefusal bounds the bytes of an error that is sent to a management server.
	longestRefusal = 4 << 10
	// firstPause is the pause before a refused response that comes again is answered. It doubles each time,
	// up to Backoff.
	firstPause = time.Second
	// longestAuthority bounds the bytes of a file of certificates.
	longestAuthority = 1 << 20
)

// xdsClient is a client of the aggregated discovery service. Its streams are in the protocol of state
// of the world.
type xdsClient struct {
	*config.XDS
	log      *slog.Logger
	take     func([]rules.File) error
	taken    []rules.File  // by take
	any      bool          // taken was set
	wait     time.Duration // after the next stream that ends
	received bool          // the stream brought a response

	refused    *discovery.DiscoveryResponse // the last one, without its nonce
	refusal    error                        // the error in it; nil: none
	pause      time.Duration                // before it is refused again
	complained time.Time                    // when an error was logged last
}

// stream opens a stream and takes what comes, until it ends. It returns how long to wait before the
// next one.
func (c *xdsClient) stream(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.received = false
	err := c.receive(ctx)
	if !c.received && status.Code(err) == codes.Unavailable {
		return jitter(c.Retry, 0.5), err
	}
	if c.received {
		c.wait = c.Backoff
	}
	wait := min(c.wait, c.MaxBackoff)
	c.wait = min(2*wait, c.MaxBackoff)
	return jitter(wait, c.BackoffJitter), err
}

// jitter is d, plus or minus up to part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}

func (c *xdsClient) receive(ctx context.Context) error {
	secure, err := c.credentials()
	if err != nil {
		return err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingManagement, Timeout: pingTimeout}),
	}
	if c.MaxMessage > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.MaxMessage)))
	}
	conn, err := grpc.NewClient(c.Server, options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(metadata.NewOutgoingContext(ctx, metadata.New(c.Headers)))
	if err != nil {
		return err
	}
	// Without a version the server sends everything, even if its versions have started again.
	request := &discovery.DiscoveryRequest{Node: c.node(), TypeUrl: configType}
	for {
		if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) { // for EOF, Recv returns the reason
			return err
		}
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if !c.received {
			c.log.Info("connected to the management server", "server", c.Server)
		}
		c.received = true
		request = c.answer(ctx, request, response)
	}
}

// answer takes a response, and returns the request that acknowledges it or has its error. If a server sends a
// refused response again, that request is delayed, first by a second, then longer each time.
func (c *xdsClient) answer(ctx context.Context, last *discovery.DiscoveryRequest, r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	next := &discovery.DiscoveryRequest{Node: last.Node, TypeUrl: configType, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce}
	r.Nonce = ""
	if c.refusal != nil && proto.Equal(r, c.refused) {
		pause := min(c.pause, c.Backoff)
		c.pause = 2 * pause
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	} else {
		c.refusal, c.refused, c.pause = c.offer(r), r, firstPause
	}
	if c.refusal != nil {
		text := c.refusal.Error()
		next.VersionInfo = last.VersionInfo
		next.ErrorDetail = &rpc.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(text[:min(len(text), longestRefusal)], "")}
	}
	return next
}

// complain logs an error, at most once a second, and reports whether it did: a faulty management server may
// be faulty often.
func (c *xdsClient) complain(text string, args ...any) bool {
	now := time.Now()
	if now.Sub(c.complained) < time.Second {
		return false
	}
	c.complained = now
	c.log.Error(text, args...)
	return true
}

func (c *xdsClient) offer(r *discovery.DiscoveryResponse) error {
	files, err := filesOf(r)
	if err != nil {
		c.complain("configuration of the management server cannot be read; the previous one stays in force", "version", r.VersionInfo, "error", err)
		return err
	}
	if c.any && slices.EqualFunc(files, c.taken, func(a, b rules.File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }) {
		return nil
	}
	if err := c.take(files); err != nil {
		return err
	}
	c.taken, c.any = files, true
	return nil
}

func (c *xdsClient) node() *core.Node {
	n := &core.Node{Id: c.NodeID, UserAgentName: "stint", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{}}}
	for key, value := range c.NodeMetadata {
		n.Metadata.Fields[key] = structpb.NewStringValue(value)
	}
	return n
}

// credentials reads the certificates, so that the next connection uses new ones.
func (c *xdsClient) credentials() (credentials.TransportCredentials, error) {
	if c.TLS == nil {
		return insecure.NewCredentials(), nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if c.TLS.CA != "" {
		text, err := readfile.UpTo(c.TLS.CA, longestAuthority)
		if err != nil {
			return nil, err
		}
		cas, err := pemfile.Certificates(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.TLS.CA, err)
		}
		t.RootCAs = pemfile.Pool(cas)
	}
	if c.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", c.TLS.Cert, c.TLS.Key, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(t), nil
}
