package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	peersettings "github.com/envoyproxy/ratelimit/src/settings"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
)

// Servers of Envoy's rate limit service, each in a process of its own.
const (
	emptyEnvoy    = "empty grpc-go service"
	stintEnvoy    = "Stint, in Redis"
	stintMemory   = "Stint, in memory"
	stintEnvoyOff = "Stint, over limit"
	peerEnvoy     = "envoyproxy/ratelimit, in Redis"
	peerEnvoyOff  = "envoyproxy/ratelimit, over limit"
	peerEnvoyHere = "envoyproxy/ratelimit, over limit, local cache"
)

func init() {
	for name, open := range map[string]func(redis string) (service, error){
		emptyEnvoy: emptyRateLimits, stintEnvoy: envoyService, peerEnvoy: envoyPeer("0"),
		stintMemory: func(string) (service, error) { return envoyService("") },
	} {
		sites[name] = site{open: open, store: true, dial: descriptors("user")}
	}
	for name, open := range map[string]func(redis string) (service, error){
		stintEnvoyOff: envoyService, peerEnvoyOff: envoyPeer("0"), peerEnvoyHere: envoyPeer("1000000"),
	} {
		sites[name] = site{open: open, store: true, dial: descriptors("drained")}
	}
}

// envoyConnections is how many connections there are, as of a few Envoys with two workers.
const envoyConnections = 4

var envoySubjects = []subject{
	{name: emptyEnvoy, kind: floor, open: serving(emptyEnvoy)},
	{name: stintEnvoy, kind: ours, open: serving(stintEnvoy)},
	{name: stintMemory, kind: ours, open: serving(stintMemory)},
	{name: peerEnvoy, kind: peer, open: serving(peerEnvoy)},
}

var envoyDeniedSubjects = []subject{
	{name: emptyEnvoy, kind: floor, open: serving(emptyEnvoy)},
	{name: stintEnvoyOff, kind: ours, open: serving(stintEnvoyOff)},
	{name: peerEnvoyOff, kind: peer, open: serving(peerEnvoyOff)},
	{name: peerEnvoyHere, kind: peer, open: serving(peerEnvoyHere)},
}

func envoyTables() []table {
	allowed := table{name: "envoy-allowed", group: serverGroup, title: "Envoy's rate limit service, allowed; 64 callers",
		about: "Calls of one descriptor, over 4 connections. Both services read the same file and count in the same Redis, which is on the same processors.",
		keys:  1, callers: 64, batch: 1, slice: 300 * time.Millisecond, limit: plenty, store: true,
		subjects: envoySubjects, floor: emptyEnvoy}
	denied := allowed
	denied.name, denied.title = "envoy-denied", "Envoy's rate limit service, over the limit; 64 callers"
	denied.about = "The key is exhausted before. Stint remembers refusals until they end, and envoyproxy/ratelimit does with LOCAL_CACHE_SIZE_IN_BYTES."
	denied.drain, denied.limit, denied.subjects = true, perKey, envoyDeniedSubjects
	return []table{allowed, denied}
}

// envoyFile is what both services read. The limits are those of plenty and perKey.
const envoyFile = `
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
  - key: drained
    rate_limit: {unit: day, requests_per_unit: 100}
`

func emptyRateLimits(string) (service, error) {
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, nothingLimited{})
	return s.Serve, nil
}

type nothingLimited struct {
	rls.UnimplementedRateLimitServiceServer
}

func (nothingLimited) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// envoyService is Stint's, over a Redis; redis is empty: in memory.
func envoyService(redis string) (service, error) {
	set, err := rules.ParseFiles([]rules.File{{Name: "bench.yaml", Data: []byte(envoyFile), Envoy: true}})
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	settings, _, err := envoy.FromEnvironment(nil, redislimit.CheckAddress)
	if err != nil {
		return nil, err
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: quiet}
	if redis != "" {
		store, err := redislimit.Open(context.Background(), "redis://"+redis)
		if err != nil {
			return nil, err
		}
		c.Limiter = stint.NewLimiter(store)
	}
	settings.HTTPListen, settings.DebugListen, settings.Stats.Prometheus = "", "", ""
	return func(l net.Listener) error {
		settings.GRPCListen = l.Addr().String()
		if err := l.Close(); err != nil {
			return err
		}
		s := envoy.New(envoy.Config{Settings: settings, Decider: server.New(c), Log: quiet})
		if err := s.Listen(); err != nil {
			return err
		}
		return s.Run(context.Background())
	}, nil
}

// envoyPeer is envoyproxy/ratelimit with a local cache of so many bytes, and without statistics.
func envoyPeer(cache string) func(redis string) (service, error) {
	return func(redis string) (service, error) {
		dir, err := os.MkdirTemp("", "stint-bench-")
		if err != nil {
			return nil, err
		}
		atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) })
		if err := os.Mkdir(filepath.Join(dir, "config"), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "config", "bench.yaml"), []byte(envoyFile), 0o644); err != nil {
			return nil, err
		}
		for name, value := range map[string]string{
			"RUNTIME_ROOT": dir, "RUNTIME_WATCH_ROOT": "false", "USE_STATSD": "false", "DISABLE_STATS": "true", "LOG_LEVEL": "ERROR",
			"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": redis, "LOCAL_CACHE_SIZE_IN_BYTES": cache,
			"HOST": "127.0.0.1", "PORT": "0", "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": "0", "GRPC_HOST": "127.0.0.1",
		} {
			if err := os.Setenv(name, value); err != nil {
				return nil, err
			}
		}
		return func(l net.Listener) error {
			_, port, _ := net.SplitHostPort(l.Addr().String())
			if err := l.Close(); err != nil {
				return err
			}
			settings := peersettings.NewSettings()
			settings.GrpcPort, _ = strconv.Atoi(port)
			r := runner.NewRunner(settings)
			r.Run()
			return nil
		}, nil
	}
}

// descriptors asks about one descriptor with this key, by turns over the connections.
func descriptors(key string) func(addr string) (asker, error) {
	return func(addr string) (asker, error) {
		var all [envoyConnections]*grpc.ClientConn
		hangUp := func() {
			for _, c := range all {
				if c != nil {
					_ = c.Close()
				}
			}
		}
		var clients [envoyConnections]rls.RateLimitServiceClient
		for i := range all {
			var err error
			if all[i], err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				hangUp()
				return asker{}, err
			}
			clients[i] = rls.NewRateLimitServiceClient(all[i])
		}
		request := &rls.RateLimitRequest{Domain: "bench", Descriptors: []*descriptor.RateLimitDescriptor{
			{Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: key, Value: "ann"}}}}}
		var calls atomic.Uint64
		return asker{
			ask: func(ctx context.Context) (bool, error) {
				r, err := clients[calls.Add(1)%envoyConnections].ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
				return r.GetOverallCode() == rls.RateLimitResponse_OK, err
			},
			close: hangUp,
		}, nil
	}
}
