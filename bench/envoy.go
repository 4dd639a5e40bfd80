package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Servers of Envoy's rate limit service, each in a process of its own.
const (
	emptyEnvoy   = "empty grpc-go service"
	tunedEnvoy   = "empty grpc-go service, run as Stint runs it"
	stintEnvoy   = "stint envoy, in Redis"
	stintMemory  = "stint envoy, in memory"
	peerEnvoy    = "envoyproxy/ratelimit, in Redis"
	peerEnvoyOwn = "envoyproxy/ratelimit, in Redis and a local cache"
)

func init() {
	sites[emptyEnvoy] = site{open: emptyRateLimits()}
	sites[tunedEnvoy] = site{open: emptyRateLimits(grpc.NumStreamWorkers(128))}
}

// envoyCall is how a table's clients call Envoy's rate limit service.
type envoyCall struct {
	connections int      // which the callers use by turns
	keys        []string // of the call's descriptors; the value of each is the caller's key
	others      int      // more descriptors in the file, beside each key of the call
}

func envoyTables() []table {
	base := table{group: serverGroup, keys: 1000, callers: 64, batch: 1, slice: 300 * time.Millisecond, limit: plenty, store: true, floor: emptyEnvoy}
	of := func(name, title, about string, c envoyCall) table {
		t := base
		t.name, t.title, t.about = name, "Envoy's rate limit service, "+title, about
		t.subjects = []subject{
			{name: emptyEnvoy, kind: floor, open: c.empty(emptyEnvoy)},
			{name: stintEnvoy, kind: ours, open: c.program(stintCommand), foreign: true},
			{name: peerEnvoy, kind: peer, open: c.program(peerCommand), foreign: true},
		}
		return t
	}
	user := envoyCall{connections: 4, keys: []string{"user"}}
	allowed := of("envoy-allowed", "allowed; 64 callers",
		"Each call has one descriptor, whose value is one of 1,000. There are 4 connections. Both programs have the same environment, read the same file, count in the same Redis, which shares the processors with them, and keep their statistics. "+
			"The second empty service has the goroutines that `stint envoy` has.", user)
	allowed.profile = true
	allowed.subjects = append(allowed.subjects,
		subject{name: tunedEnvoy, kind: floor, open: user.empty(tunedEnvoy)},
		subject{name: stintMemory, kind: ours, open: user.program(stintCommand, "REDIS_URL=memory"), foreign: true})

	drained := envoyCall{connections: 4, keys: []string{"drained"}}
	denied := of("envoy-denied", "over the limit; 64 callers",
		"The key is exhausted before. Stint remembers refusals until they end. envoyproxy/ratelimit does so with LOCAL_CACHE_SIZE_IN_BYTES.", drained)
	denied.keys, denied.drain, denied.limit = 1, true, perKey
	denied.subjects = append(denied.subjects, subject{name: peerEnvoyOwn, kind: peer,
		open: drained.program(peerCommand, "LOCAL_CACHE_SIZE_IN_BYTES=1000000"), foreign: true})

	lone := of("envoy-lone", "allowed; a lone caller", "One caller waits for each answer, so a time is the latency of a call.", user)
	lone.callers = 1
	one := of("envoy-one", "allowed; 64 callers over 1 connection", "As with 4 connections.", envoyCall{connections: 1, keys: user.keys})
	apart := of("envoy-apart", "allowed; 64 callers over 64 connections", "As with 4 connections. No two calls share a read or a write.", envoyCall{connections: 64, keys: user.keys})
	three := of("envoy-three", "allowed; three descriptors a call", "64 callers over 4 connections. Each descriptor has a limit of its own.",
		envoyCall{connections: 4, keys: []string{"user", "path", "client"}})
	many := of("envoy-many", "allowed; 10,000 descriptors in the file", "64 callers over 4 connections. The other descriptors have the same key and fixed values, and none of them is that of a call.",
		envoyCall{connections: 4, keys: user.keys, others: 10_000})
	return []table{allowed, denied, lone, one, apart, three, many}
}

// file is the file of both programs, with the limits of plenty and perKey.
func (c *envoyCall) file() []byte {
	var b strings.Builder
	b.WriteString("domain: bench\ndescriptors:\n")
	for _, key := range c.keys {
		for i := range c.others {
			fmt.Fprintf(&b, "  - {key: %s, value: other-%d, rate_limit: {unit: hour, requests_per_unit: 100}}\n", key, i)
		}
		rate := "unit: hour, requests_per_unit: 1000000000"
		if key == "drained" {
			rate = "unit: day, requests_per_unit: 100"
		}
		fmt.Fprintf(&b, "  - {key: %s, rate_limit: {%s}}\n", key, rate)
	}
	return []byte(b.String())
}

// empty starts a service that does nothing.
func (c envoyCall) empty(name string) func(place, spec) (*limiter, error) {
	return func(place, spec) (*limiter, error) {
		var addr string
		p, err := startChild(&addr, siteVariable+"="+name)
		if err != nil {
			return nil, fmt.Errorf("the server process of %s: %w", name, err)
		}
		l, err := c.dial(addr)
		if err != nil {
			p.end()
			return nil, err
		}
		l.used, l.close = p.used, closing(l.close, p.end)
		return l, nil
	}
}

func closing(all ...func()) func() {
	return func() {
		for _, end := range all {
			end()
		}
	}
}

func emptyRateLimits(options ...grpc.ServerOption) func(string) (service, error) {
	return func(string) (service, error) {
		s := grpc.NewServer(options...)
		rls.RegisterRateLimitServiceServer(s, nothingLimited{})
		return s.Serve, nil
	}
}

type nothingLimited struct {
	rls.UnimplementedRateLimitServiceServer
}

func (nothingLimited) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// dial returns a limiter that calls the service at addr.
func (c *envoyCall) dial(addr string) (*limiter, error) {
	conns := make([]*grpc.ClientConn, 0, c.connections)
	hangUp := func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	clients := make([]rls.RateLimitServiceClient, c.connections)
	for i := range clients {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			hangUp()
			return nil, err
		}
		conns, clients[i] = append(conns, conn), rls.NewRateLimitServiceClient(conn)
	}
	var calls atomic.Uint64
	return &limiter{
		take: func(ctx context.Context, key string) (bool, error) {
			request := &rls.RateLimitRequest{Domain: "bench", Descriptors: make([]*descriptor.RateLimitDescriptor, len(c.keys))}
			for i, name := range c.keys {
				request.Descriptors[i] = &descriptor.RateLimitDescriptor{Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: name, Value: key}}}
			}
			r, err := clients[calls.Add(1)%uint64(len(clients))].ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
			return r.GetOverallCode() == rls.RateLimitResponse_OK, err
		},
		close: hangUp,
	}, nil
}
