package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/envoy/quota"
	"github.com/stintdev/stint/server/envoy/stats"
)

func envoyCommand(log *server.LogWriter) *cobra.Command {
	c := &cobra.Command{
		Use: "envoy", Short: "answer Envoy's rate limit service, replacing envoyproxy/ratelimit",
		Long: `Answers Envoy's rate limit service in place of envoyproxy/ratelimit, with the same environment
variables, descriptor files and ports. One log line names the variables that are set but have no
effect. docs/envoy.md describes the move, docs/envoy-reference.md each difference.

If no variable says where Redis is, this instance counts in its own memory.`,
		Example: `  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit REDIS_URL=redis:6379 stint envoy
  CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 stint envoy`,
		Args: words(),
	}
	choice := choice{flags: c.Flags(), asEnvoy: true}
	c.Flags().SortFlags = false
	addSettingFlags(c.Flags(), "envoy-each", "admin-listen", "probe-listen")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return choice.serve(c.Context(), os.Environ(), c.OutOrStdout(), log)
	}
	return c
}

// sharedKeys are the keys of envoyproxy/ratelimit, by the rules of the server that runs; nil: the
// settings have none.
func sharedKeys(of *config.Envoy, running *atomic.Pointer[server.Server]) *redislimit.EnvoyKeys {
	if of == nil || of.SharedCounters == nil {
		return nil
	}
	c := of.SharedCounters
	return &redislimit.EnvoyKeys{Prefix: c.KeyPrefix, JitterMax: c.ExpiryJitter, Name: func(l *stint.Limit, key string) (string, bool) {
		return running.Load().Rules().EnvoyCount(l, key) // nothing is asked before it runs
	}}
}

// listening are the names and addresses of all listeners.
func listening(e *envoyService, l server.Listeners) []any {
	var all []any
	for _, name := range []string{"gRPC", "HTTP", "debug", "Prometheus"} {
		if a := e.Addr(name); a != nil {
			all = append(all, strings.ToLower(name), a.String())
		}
	}
	if l.Admin != nil {
		all = append(all, "admin", l.Admin.Addr().String())
	}
	return all
}

// envoyService is Envoy's rate limit service with all that belongs to it. It decides by a server.
type envoyService struct {
	*envoy.Server
	stats  *stats.Stats
	quotas *quota.Service
}

func newEnvoy(s *server.Server, settings *config.Settings, source *descriptors, log *slog.Logger) (*envoyService, error) {
	of := settings.Envoy
	counted, err := stats.New(stats.Config{
		Stats: of.Stats, More: s.Gatherer(), Log: log,
		Known: func(domain string) bool { return s.Rules().HasDomain(domain) },
	})
	if err != nil {
		return nil, err
	}
	source.observe(counted)
	memory := settings.FitMemory()
	q := quota.Settings{MaxBuckets: int(memory.QuotaBuckets()), TTL: of.QuotaTTL, Shadow: of.Shadow, Loaded: source.loaded.Load, Instances: s.Instances, Log: log}
	if err := q.Shares.UnmarshalText([]byte(of.QuotaShares)); err != nil {
		return nil, err
	}
	quotas, err := quota.New(s, q)
	if err != nil {
		return nil, err
	}
	s.RegisterMetrics(quotas.Metrics())
	e := &envoyService{stats: counted, quotas: quotas}
	e.Server = envoy.New(envoy.Config{
		Settings: of, Decider: s, Observer: counted, Loaded: source.loaded.Load, Certificate: s.Certificate, Bound: s.BoundConnections, WatchHTTP2: s.WatchHTTP2, Trace: s.CallTracer(), Log: log,
		Stats: counted.Page(), Prometheus: counted.Metrics(),
		Register:  []func(*grpc.Server){envoy.NewAuthorization(s).Register, func(g *grpc.Server) { quotas.Register(g) }},
		StopDelay: settings.StopDelay, StopTimeout: settings.StopTimeout,
		Ready: func() error {
			if of.Health.NeedsDescriptors && !source.domains.Load() {
				return errors.New("no configuration has a domain")
			}
			if of.Health.NeedsStore {
				if err := s.StoreError(); err != nil {
					return fmt.Errorf("the store does not decide: %w", err)
				}
			}
			return s.Ready()
		},
	})
	return e, nil
}

// Run serves until ctx is done and calls in flight have ended, and then sends the last statistics.
func (e *envoyService) Run(ctx context.Context) error {
	counting, end := context.WithCancel(context.WithoutCancel(ctx))
	var counted sync.WaitGroup
	counted.Go(func() { e.stats.Run(counting) })
	defer counted.Wait()
	defer end()
	go func() {
		select {
		case <-e.Stopping():
			e.quotas.Stop() // its streams do not end otherwise
		case <-counting.Done():
		}
	}()
	return e.Server.Run(ctx)
}
