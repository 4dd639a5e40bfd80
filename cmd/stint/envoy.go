package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/envoy/quota"
	"github.com/stintdev/stint/server/envoy/stats"
	"github.com/stintdev/stint/server/rules"
)

// envoyChoice is what the flags of "stint envoy" say.
type envoyChoice struct {
	each                     bool
	adminListen, probeListen string
}

func envoyCommand(log *server.LogWriter) *cobra.Command {
	c := &cobra.Command{
		Use: "envoy", Short: "answer Envoy's rate limit service, in place of envoyproxy/ratelimit",
		Long: `Answers Envoy's rate limit service in place of envoyproxy/ratelimit, with the same environment
variables, files of descriptors and ports. One line of the log names the variables that are set
and have no effect. docs/envoy.md describes the move, docs/envoy-reference.md each difference.

If no variable says where Redis is, this instance counts in its own memory.`,
		Example: `  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit REDIS_URL=redis:6379 stint envoy
  CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 stint envoy`,
		Args: words(),
	}
	var choice envoyChoice
	d := config.Default()
	f := c.Flags()
	f.SortFlags = false
	f.BoolVar(&choice.each, "envoy-each", false, "decide each descriptor of a call by itself, as envoyproxy/ratelimit does, and not all or nothing; or STINT_ENVOY_EACH=true")
	f.StringVar(&choice.adminListen, "admin-listen", d.Admin.Listen, "`ADDRESS` of the admin API; off: none")
	f.StringVar(&choice.probeListen, "probe-listen", d.ProbeListen, "`ADDRESS` of /healthz, /readyz and Stint's /metrics; off: none")
	c.RunE = func(c *cobra.Command, _ []string) error { return choice.run(c.Context(), os.Environ(), log) }
	return c
}

func (c *envoyChoice) run(ctx context.Context, variables []string, errs *server.LogWriter) error {
	of, unused, err := envoy.FromEnvironment(variables, redislimit.CheckAddress)
	if err != nil {
		return errUsage{fmt.Errorf("the environment is wrong:\n%w", err)}
	}
	of.Each = of.Each || c.each
	settings, err := c.settings(of)
	if err != nil {
		return errUsage{err}
	}
	log, access := errs.Loggers(settings.Log)
	if len(unused) > 0 {
		log.Warn("these environment variables have no effect", "variables", strings.Join(unused, ","))
	}
	if !of.Redis.Chosen {
		log.Warn("counts are kept in memory, by this instance alone, because REDIS_URL is not set; REDIS_URL=memory does the same without this warning")
	}
	source := newDescriptors(of, log)
	set, err := source.open()
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE)
	footprint := settings.FitMemory()
	footprint.Log(log)
	limitMemory(&footprint, log)
	var running atomic.Pointer[server.Server]
	decides := server.Config{
		Settings: settings, Rules: set, Log: log, AccessLog: access, LogDropped: errs.Dropped, Program: "stint " + version(),
		Calls: server.Calls{Each: of.Each, Quota: of.Quota},
	}
	done, err := decides.OpenStore(sharedKeys(of, &running))
	if err != nil {
		return err
	}
	defer done()
	settings = decides.Settings
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watchEviction(watching, decides.Limiter.Store, log)
	s := server.New(decides)
	running.Store(s)
	logFindings(log, slices.Concat(settings.Findings(set), set.Findings), nil)
	e, err := newEnvoy(s, of, &settings, source, log)
	if err != nil {
		s.Close()
		return err
	}
	if !source.follow(watching, s) {
		s.Close()
		return nil
	}
	if err := elsewhere(e.Listen(), "HOST and PORT, GRPC_HOST and GRPC_PORT, DEBUG_HOST and DEBUG_PORT, or PROMETHEUS_ADDR"); err != nil {
		s.Close()
		return err
	}
	listeners, err := listen(&settings, false, log)
	if err != nil {
		e.Close()
		s.Close()
		return err
	}
	go reloadFiles(watching, onHangup(watching), s)
	log.Info("listening", listening(e, listeners)...)
	return s.Run(ctx, listeners, e.Run)
}

// sharedKeys are the keys of envoyproxy/ratelimit, by the rules of the server that runs; nil: the
// settings have none.
func sharedKeys(of *envoy.Settings, running *atomic.Pointer[server.Server]) *redislimit.EnvoyKeys {
	if !of.SharedCounters {
		return nil
	}
	return &redislimit.EnvoyKeys{Prefix: of.KeyPrefix, JitterMax: of.JitterMax, Name: func(l *stint.Limit, key string) (string, bool) {
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

// envoyDecisionTimeout is how long a call waits for Redis unless STINT_DECISION_TIMEOUT says otherwise:
// longer than a gateway's request, because Envoy sends its own timeout with each call, and Stint
// answers before that. Redis, or Stint, that does not run for 200 ms then changes no answer; see
// BenchmarkThrottled.
const envoyDecisionTimeout = 250 * time.Millisecond

// settings are those of the server behind the listeners of Envoy's.
func (c *envoyChoice) settings(of *envoy.Settings) (config.Settings, error) {
	s := config.Default()
	s.CheckListen, s.ProbeListen, s.Admin.Listen = config.Off, c.probeListen, c.adminListen
	s.Store, s.PerSecondStore, s.Namespace = of.Redis.Store, of.Redis.PerSecond, of.Redis.Namespace
	s.DecisionTimeout = cmp.Or(of.Redis.DecisionTimeout, envoyDecisionTimeout)
	s.Envoy = config.DefaultEnvoy() // whose listeners count where memory is divided
	s.Log.JSON = of.LogFormat == "json"
	if err := s.Log.Level.UnmarshalText([]byte(of.LogLevel)); err != nil {
		return s, err
	}
	if t := of.Tracing; t.Enabled {
		s.Traces = &config.Traces{Sample: t.Sample, Service: t.Service, Protocol: t.Protocol}
	}
	if err := s.Admin.Check(); err != nil {
		return s, fmt.Errorf("--admin-listen: %w", err)
	}
	return s, nil
}

// besideGateway are the settings of Envoy's rate limit service beside a gateway: those of the
// environment variables do not count there.
func besideGateway(c *config.Envoy) *envoy.Settings {
	of, _, _ := envoy.FromEnvironment(nil, nil) // the defaults
	listen := func(address string) string {
		if address == config.Off {
			return ""
		}
		return address
	}
	if network, address := c.Address(); network == "unix" {
		of.GRPCSocket = address
	} else {
		of.GRPCListen = address
	}
	of.HTTPListen, of.DebugListen = listen(c.HTTPListen), listen(c.DebugListen)
	of.Stats.Statsd, of.Stats.DogStatsd = cmp.Or(c.Statsd, c.DogStatsd), c.DogStatsd != ""
	of.Stats.Prometheus, of.Stats.Path, of.Stats.LocalCache = listen(c.PrometheusListen), "/metrics", true
	if c.TLS != nil {
		of.TLS = envoy.TLS{Use: true, Certificate: c.TLS.Cert, Key: c.TLS.Key, ClientAuthority: c.TLS.ClientCA, ClientSAN: c.ClientName}
	}
	of.Each, of.Shadow, of.DynamicMetadata, of.Headers.Enabled = c.Each, c.Shadow, c.DynamicMetadata, c.ResponseHeaders
	of.Quotas.Shares = c.QuotaShares
	return of
}

// envoyService is Envoy's rate limit service with all that belongs to it. It decides by a server.
type envoyService struct {
	*envoy.Server
	stats  *stats.Stats
	quotas *quota.Service
}

func newEnvoy(s *server.Server, of *envoy.Settings, settings *config.Settings, source *descriptors, log *slog.Logger) (*envoyService, error) {
	counted, err := stats.New(stats.Config{
		Stats: of.Stats, NearLimitRatio: of.NearLimitRatio, More: s.Gatherer(), Log: log,
		Known: func(domain string) bool { return s.Rules().HasDomain(domain) },
	})
	if err != nil {
		return nil, err
	}
	source.observe(counted)
	memory := settings.FitMemory()
	q := quota.Settings{MaxBuckets: int(memory.QuotaBuckets()), TTL: of.Quotas.TTL, Shadow: of.Shadow, Loaded: source.loaded.Load, Instances: s.Instances, Log: log}
	if err := q.Shares.UnmarshalText([]byte(of.Quotas.Shares)); err != nil {
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
			if of.HealthNeedsConfig && !source.domains.Load() {
				return errors.New("no configuration has a domain")
			}
			if of.HealthNeedsStore {
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

// descriptors are where a server of Envoy's rate limit service gets its files from.
type descriptors struct {
	from *envoy.Settings
	log  *slog.Logger
	// config is a rules file besides, and files are what both were at the start.
	config string
	files  []rules.File
	// loaded means that a configuration was taken, and domains that the one in force has some.
	loaded, domains atomic.Bool
	observer        envoy.Observer // nil: nobody is told
	tried           bool
	wrong           error // with the last attempt
}

func newDescriptors(of *envoy.Settings, log *slog.Logger) *descriptors {
	return &descriptors{from: of, log: log}
}

// directory is where the files are.
func (d *descriptors) directory() *rules.EnvoyFiles {
	c := &d.from.Config
	files := &rules.EnvoyFiles{
		Path: filepath.Join(c.Root, c.Subdirectory, c.Directory), IgnoreDotFiles: c.IgnoreDotFiles, MergeDomains: c.MergeDomains,
		MayBeEmpty: true,
	}
	if c.WatchRoot {
		files.Link = c.Root
	}
	return files
}

// open returns the rules to start with. An error ends the start, unless the settings say that it must
// not.
func (d *descriptors) open() (*rules.Set, error) {
	if d.from.Config.XDS != nil {
		return rules.ParseFiles(orEmpty(nil))
	}
	files, err := d.directory().Read()
	var set *rules.Set
	if err == nil {
		set, err = rules.ParseFiles(files)
	}
	d.note(files, err)
	if err == nil {
		d.files = files
		return set, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY together name the directory", err)
	}
	if !d.from.Config.StartWithout {
		return nil, err
	}
	d.log.Error("no configuration; calls fail until there is one", "error", err)
	return rules.ParseFiles(orEmpty(nil))
}

// orEmpty returns files, or one without rules if there are none.
func orEmpty(files []rules.File) []rules.File {
	if len(files) == 0 {
		return []rules.File{{Name: "no configuration", Data: []byte("rules: []")}}
	}
	return files
}

// note records the outcome of an attempt to load files.
func (d *descriptors) note(files []rules.File, err error) {
	if d.tried, d.wrong = true, err; d.observer != nil {
		d.observer.Loaded(err)
	}
	if err == nil {
		d.domains.Store(slices.ContainsFunc(files, func(f rules.File) bool { return f.Envoy }))
		d.loaded.Store(true)
	}
}

// observe tells o of the first attempt, if there was one, and of all that come.
func (d *descriptors) observe(o envoy.Observer) {
	if d.observer = o; d.tried {
		o.Loaded(d.wrong)
	}
}

// follow takes over configurations from now on, until ctx is done. It returns when there is one or
// none is needed to start; false: ctx is done.
func (d *descriptors) follow(ctx context.Context, s *server.Server) bool {
	x := d.from.Config.XDS
	if x == nil {
		go watch(ctx, rules.Watcher{Path: d.config, Envoy: d.directory(), Now: onHangup(ctx)}, config.Source{Files: d.files, CheckStore: redislimit.CheckAddress}, s, d.log, d.note)
		return true
	}
	first := make(chan struct{})
	refused := false
	go x.Follow(ctx, d.log, func(files []rules.File) error {
		for i := range files {
			files[i].MergeDomain = d.from.Config.MergeDomains
		}
		set, err := rules.ParseFiles(orEmpty(files))
		had := d.loaded.Load()
		refused = !takeRules(s, set, err, d.log, refused, func() { d.note(files, err) })
		if err == nil && !had {
			close(first)
		}
		return err
	})
	if d.from.Config.StartWithout {
		return true
	}
	d.log.Warn("no port is open before the management server has sent a configuration, unless FORCE_START_WITHOUT_INITIAL_CONFIG=true", "server", x.Server)
	select {
	case <-first:
		return true
	case <-ctx.Done():
		return false
	}
}
