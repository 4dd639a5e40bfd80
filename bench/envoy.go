package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
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
		emptyEnvoy: emptyRateLimits, stintEnvoy: envoyService,
		stintMemory: func(string) (service, error) { return envoyService("") },
	} {
		sites[name] = site{open: open, store: true, dial: descriptors("user")}
	}
	sites[stintEnvoyOff] = site{open: envoyService, store: true, dial: descriptors("drained")}
}

// envoyConnections is how many connections there are, as of a few Envoys with two workers.
const envoyConnections = 4

var envoySubjects = []subject{
	{name: emptyEnvoy, kind: floor, open: serving(emptyEnvoy)},
	{name: stintEnvoy, kind: ours, open: serving(stintEnvoy)},
	{name: stintMemory, kind: ours, open: serving(stintMemory)},
	{name: peerEnvoy, kind: peer, open: envoyPeer("0"), foreign: true},
}

var envoyDeniedSubjects = []subject{
	{name: emptyEnvoy, kind: floor, open: serving(emptyEnvoy)},
	{name: stintEnvoyOff, kind: ours, open: serving(stintEnvoyOff)},
	{name: peerEnvoyOff, kind: peer, open: envoyPeer("0"), foreign: true},
	{name: peerEnvoyHere, kind: peer, open: envoyPeer("1000000"), foreign: true},
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

// envoyPeerProgram builds envoyproxy/ratelimit from its own module, in the directory ratelimit.
func envoyPeerProgram() (path string, err error) {
	out, err := exec.Command("go", "-C", "ratelimit", "tool", "-n", "service_cmd").Output()
	if err != nil {
		return "", fmt.Errorf("envoyproxy/ratelimit cannot be built: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// envoyPeer is envoyproxy/ratelimit with a local cache of so many bytes, and without statistics.
func envoyPeer(cache string) func(place, spec) (*limiter, error) {
	return func(at place, limit spec) (*limiter, error) {
		path, err := envoyPeerProgram()
		if err != nil {
			return nil, err
		}
		p := &peerProcess{}
		if p.dir, err = os.MkdirTemp("", "stint-bench-"); err != nil {
			return nil, err
		}
		if err := p.start(path, at.redis, cache); err != nil {
			p.end()
			return nil, err
		}
		key := "user"
		if limit == perKey {
			key = "drained"
		}
		a, err := descriptors(key)(p.addr)
		if err != nil {
			p.end()
			return nil, err
		}
		return &limiter{
			take: func(ctx context.Context, _ string) (bool, error) { return a.ask(ctx) },
			used: p.used,
			close: func() {
				a.close()
				p.end()
			},
		}, nil
	}
}

// peerProcess is a process of envoyproxy/ratelimit.
type peerProcess struct {
	dir, addr string
	process   *exec.Cmd
}

func (p *peerProcess) start(path, redis, cache string) error {
	if err := os.Mkdir(filepath.Join(p.dir, "config"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "config", "bench.yaml"), []byte(envoyFile), 0o644); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(p.addr)
	if err := l.Close(); err != nil {
		return err
	}
	p.process = exec.Command(path)
	p.process.Env = append(os.Environ(), "RUNTIME_ROOT="+p.dir, "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=ERROR",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "LOCAL_CACHE_SIZE_IN_BYTES="+cache,
		"HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port)
	return p.process.Start()
}

// used tells what the process has used. It has no profile, and how much it allocates is not known.
func (p *peerProcess) used(bool) (u usage, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.process.Process.Pid))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	const userTime, systemTime, perSecond = 11, 12, 100 // see proc(5); USER_HZ is 100 on Linux
	for _, i := range []int{userTime, systemTime} {
		ticks, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return u, err
		}
		u.CPU += ticks / perSecond
	}
	return u, nil
}

func (p *peerProcess) end() {
	if p.process != nil && p.process.Process != nil {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
	}
	_ = os.RemoveAll(p.dir)
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
