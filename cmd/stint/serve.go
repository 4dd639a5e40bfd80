package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const serveAbout = `Limits HTTP in front of upstreams, and answers check requests.

    stint serve --config stint.yaml
    stint serve --upstream http://localhost:9000 --limit "100 per 1m" --key client.ip
    stint serve --demo

A file holds the rules and, under "server", where to listen, the store and the
routes; flags override it. Without a file, --limit and --key make one rule. Without
an upstream, only check requests are answered.
`

// choice is what the flags of serve say.
type choice struct {
	config   string
	files    []rules.File // of config
	upstream string
	limits   texts
	key      string
	demo     bool
	flags    *flag.FlagSet

	listen, checkListen, probeListen, adminListen, store, namespace, headers string
}

// texts is a flag that may be given several times.
type texts []string

func (t *texts) String() string     { return fmt.Sprint(*t) }
func (t *texts) Set(s string) error { *t = append(*t, s); return nil }

func (c *choice) parse(args []string, out io.Writer) error {
	f := flags("serve")
	d := config.Default()
	f.StringVar(&c.config, "config", "", "`FILE` with rules and settings, or a directory of such files")
	f.StringVar(&c.upstream, "upstream", "", "`URL` to pass requests on to")
	f.Var(&c.limits, "limit", "`LIMIT` such as \"100 per 1m\" or \"5 per 10s sliding_log\"; may be given several times")
	f.StringVar(&c.key, "key", "client.ip", "`EXPRESSION` for whom the limit counts, such as client.ip or request.headers[\"x-api-key\"]")
	f.StringVar(&c.store, "store", d.Store, "where counts are kept: memory, or the `URL` of a Redis such as redis://localhost:6379")
	f.StringVar(&c.namespace, "namespace", "", "`NAME` that parts what this service keeps in a Redis from what others keep there (default \"stint\")")
	f.StringVar(&c.listen, "listen", d.Listen, "`ADDRESS` of the gateway")
	f.StringVar(&c.checkListen, "check-listen", d.CheckListen, "`ADDRESS` of the check API; off: none")
	f.StringVar(&c.probeListen, "probe-listen", d.ProbeListen, "`ADDRESS` of /healthz, /readyz and /metrics for probes elsewhere; off: only the check API's")
	f.StringVar(&c.adminListen, "admin-listen", d.Admin.Listen, "`ADDRESS` of the admin API; off: none")
	f.StringVar(&c.headers, "headers", "x-ratelimit", "`NAMES` of the headers that tell clients how they stand, separated by commas:\nx-ratelimit, x-ratelimit-epoch, draft-11 or none")
	f.BoolVar(&c.demo, "demo", false, "run with an upstream and rules made for trying it out")
	c.flags = f
	if err := parse(f, args, serveAbout, out); err != nil {
		return err
	}
	return c.check()
}

func (c *choice) check() error {
	given := map[string]bool{}
	c.flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case c.demo && (given["config"] || given["upstream"] || given["limit"] || given["key"]):
		return errUsage{errors.New("serve: --demo brings its own upstream and rules")}
	case given["config"] && (given["limit"] || given["key"]):
		return errUsage{errors.New("serve: --limit and --key make the rule where there is no --config")}
	case given["upstream"] && !given["config"] && !given["limit"]:
		return errUsage{errors.New(`serve: --upstream without limits: give --limit "100 per 1m", or --config FILE`)}
	case !c.demo && !given["config"] && !given["limit"]:
		return errUsage{errors.New(`serve: want --config FILE, or --limit "100 per 1m" and --upstream URL, or --demo; "stint serve --help" tells more`)}
	}
	return nil
}

//go:embed demo.yaml
var demoRules []byte

// load makes the settings and rules that the flags ask for.
func (c *choice) load() (config.Settings, *rules.Set, error) {
	files := []rules.File{{Name: "--limit and --key", Data: c.rule()}}
	switch {
	case c.demo:
		files = []rules.File{{Name: "demo.yaml", Data: demoRules}}
	case len(c.limits) == 0:
		var err error
		if files, err = rules.Read(c.config); err != nil {
			return config.Settings{}, nil, err
		}
		c.files = files
	}
	settings, set, err := config.Read(files, redislimit.CheckAddress)
	switch {
	case err == nil:
		err = c.override(&settings)
	case len(c.limits) > 0:
		err = flagProblems(err)
	}
	return settings, set, err
}

// flagProblems says of what is wrong with a rule made by choice.rule which flag is
// wrong.
func flagProblems(err error) error {
	var wrong *yamlnode.Error
	if !errors.As(err, &wrong) {
		return err
	}
	var all []error
	for _, p := range wrong.Problems {
		flag := "--limit"
		if p.Line <= keyLine {
			flag = "--key"
		}
		all = append(all, fmt.Errorf("serve: %s: %s", flag, p.Text))
	}
	return errUsage{errors.Join(all...)}
}

// keyLine is the line of the key in the file that rule makes; limits follow.
const keyLine = 3

// rule is the rules file that --limit and --key stand for. Text in single quotes
// is the one form of YAML in which nothing but the quote means anything, and the
// end of a line, which to an expression is a blank like any other.
func (c *choice) rule() []byte {
	var b strings.Builder
	quote := func(s string) string { return "'" + strings.NewReplacer("'", "''", "\n", " ").Replace(s) + "'" }
	fmt.Fprintf(&b, "rules:\n  - name: default\n    key: %s\n    limits:\n", quote(c.key))
	for _, l := range c.limits {
		fmt.Fprintf(&b, "      - %s\n", quote(l))
	}
	return []byte(b.String())
}

func (c *choice) override(s *config.Settings) error {
	var errs []error
	c.flags.Visit(func(f *flag.Flag) {
		var err error
		switch f.Name {
		case "listen":
			s.Listen = c.listen
		case "check-listen":
			s.CheckListen = c.checkListen
			err = s.CheckGuarded()
		case "probe-listen":
			s.ProbeListen = c.probeListen
		case "admin-listen":
			s.Admin.Listen = c.adminListen
			err = s.Admin.Check()
		case "store":
			if s.Store = c.store; c.store != "memory" {
				err = redislimit.CheckAddress(c.store)
			}
		case "namespace":
			s.Namespace, err = config.ParseNamespace(c.namespace)
		case "headers":
			s.Dialect, err = httplimit.ParseDialect(strings.Split(c.headers, ",")...)
		case "upstream":
			var u *url.URL
			u, err = config.ParseUpstream(c.upstream)
			s.Routes = []config.Route{{Path: "/", Upstream: u}}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("serve: --%s: %w", f.Name, err))
		}
	})
	if len(errs) > 0 {
		return errUsage{errors.Join(errs...)}
	}
	return nil
}

func serve(ctx context.Context, args []string, out io.Writer, errs *server.LogWriter) error {
	var c choice
	if err := c.parse(args, out); err != nil {
		return err
	}
	settings, set, err := c.load()
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // else it would end with whoever reads its log
	log := slog.New(slog.NewTextHandler(errs, nil))
	footprint := settings.FitMemory()
	ballast := heapFloor()
	defer runtime.KeepAlive(ballast)
	footprint.Log(log)
	limitMemory(&footprint, len(ballast), log)
	store, done, err := serveStore(&settings, log)
	if err != nil {
		return err
	}
	defer done()
	documents, err := openDocuments(store, &settings)
	if err != nil {
		return err
	}
	logFindings(log, slices.Concat(settings.Findings(), set.Findings), nil)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watchEviction(watching, store, log)
	listeners, err := listen(&settings, c.demo || len(settings.Routes) > 0, log)
	if err != nil {
		return err
	}
	if c.demo {
		stop, err := startDemo(&settings, listeners.Gateway, out)
		if err != nil {
			listeners.Close()
			return err
		}
		defer stop()
	}
	s := server.New(server.Config{
		Settings: settings, Rules: set, Limiter: stint.NewLimiter(store), Documents: documents,
		Log: log, LogDropped: errs.Dropped, Findings: func() []rules.Finding { return storeFindings(store) }, Program: "stint " + version(),
	})
	log.Info("rules", "version", set.Version, "count", len(set.Rules))
	if c.config != "" {
		go watch(watching, c.config, c.files, onHangup(watching), s, log)
		go reloadFiles(watching, onHangup(watching), s)
	}
	return s.Run(ctx, listeners)
}

// onHangup is told of each SIGHUP until ctx is done.
func onHangup(ctx context.Context) <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(hangups) })
	return hangups
}

// reloadFiles makes s read certificates and tokens again when it is told.
func reloadFiles(ctx context.Context, hangups <-chan os.Signal, s *server.Server) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			s.ReloadFiles()
		}
	}
}

// firstAttempt bounds how long a start waits for the store. One that is there
// answers in milliseconds, and then no request is decided by the file's rules where
// the fleet has others, or as if nobody else had asked.
const firstAttempt = time.Second

// serveStore is the store that the settings name. One that is far away may come
// later: until then everything is decided without it.
func serveStore(settings *config.Settings, log *slog.Logger) (stint.Store, func(), error) {
	if settings.Store == "memory" {
		return &stint.Memory{MaxKeys: int(settings.MaxKeys)}, func() {}, nil
	}
	said := ""
	tried := make(chan struct{})
	once := sync.OnceFunc(func() { close(tried) })
	s, err := redislimit.OpenLaterIn(settings.Store, settings.Namespace, func(server redislimit.Server, err error) {
		defer once()
		if err != nil {
			if text := err.Error(); text != said { // each attempt fails for the same reason
				said = text
				log.Error("the store cannot be used yet; on_store_error decides until it can", "error", err)
			}
			return
		}
		log.Info("store", "product", server.Product, "version", server.Version, "cluster", server.Cluster)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	s.SetLog(log)
	namespace := s.Namespace()
	log.Info("what is kept in the store is shared with every instance in its namespace", "namespace", namespace)
	settings.Namespace = namespace
	select {
	case <-tried:
	case <-time.After(firstAttempt):
	}
	return s, s.Close, nil
}

// openDocuments is where the fleet that shares store keeps what it shares; nil: there
// is but one instance.
func openDocuments(store stint.Store, settings *config.Settings) (server.Documents, error) {
	if s, ok := store.(*redislimit.Store); ok {
		return s.Documents(), nil
	}
	if settings.RulesFrom == config.FromFleet {
		return nil, errors.New("rules: fleet takes a store that a fleet shares: give store, or --store, the address of a Redis")
	}
	return nil, nil
}

// storeFindings tells of servers that will not keep limits, or not for long.
func storeFindings(store stint.Store) []rules.Finding {
	s, ok := store.(*redislimit.Store)
	if !ok {
		return nil
	}
	all := evictionFindings(s.Server())
	if err := s.Refused(); err != nil {
		all = append(all, rules.Finding{Code: rules.CodeStoreSecrets, Text: "the passwords or certificates that the files of the store's address hold now are not used, but those of before, which end when the server says so: " +
			strings.TrimPrefix(err.Error(), "redislimit: ")})
	}
	return all
}

// heapFloor is memory that nobody ever touches, so that the machine never gives it.
// The collector reckons with it and runs once in so many bytes instead of once in
// four megabytes, which is a tenth of what a check costs. Whoever tells the collector
// how to run (GOGC, GOMEMLIMIT) gets none.
func heapFloor() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, 64<<20)
}
