package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
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
	data     []byte // of config
	upstream string
	limits   texts
	key      string
	demo     bool
	flags    *flag.FlagSet

	listen, checkListen, store, headers string
}

// texts is a flag that may be given several times.
type texts []string

func (t *texts) String() string     { return fmt.Sprint(*t) }
func (t *texts) Set(s string) error { *t = append(*t, s); return nil }

func (c *choice) parse(args []string, out io.Writer) error {
	f := flags("serve")
	d := server.DefaultSettings()
	f.StringVar(&c.config, "config", "", "`FILE` with rules and settings")
	f.StringVar(&c.upstream, "upstream", "", "`URL` to pass requests on to")
	f.Var(&c.limits, "limit", "`LIMIT` such as \"100 per 1m\" or \"5 per 10s sliding_log\"; may be given several times")
	f.StringVar(&c.key, "key", "client.ip", "`EXPRESSION` for whom the limit counts, such as client.ip or request.headers[\"x-api-key\"]")
	f.StringVar(&c.store, "store", d.Store, "where counts are kept: memory, or the `URL` of a Redis such as redis://localhost:6379")
	f.StringVar(&c.listen, "listen", d.Listen, "`ADDRESS` of the gateway")
	f.StringVar(&c.checkListen, "check-listen", d.CheckListen, "`ADDRESS` of the check API")
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
func (c *choice) load() (server.Settings, *rules.Set, error) {
	name, data := "--limit and --key", c.rule()
	var err error
	switch {
	case c.demo:
		name, data = "demo.yaml", demoRules
	case len(c.limits) == 0:
		name = c.config
		if data, err = os.ReadFile(c.config); err != nil {
			return server.Settings{}, nil, err
		}
		c.data = data
	}
	settings, set, err := readFile(name, data)
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

func (c *choice) override(s *server.Settings) error {
	var err error
	c.flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "listen":
			s.Listen = c.listen
		case "check-listen":
			s.CheckListen = c.checkListen
		case "store":
			s.Store = c.store
		case "headers":
			if s.Dialect, err = httplimit.ParseDialect(strings.Split(c.headers, ",")...); err != nil {
				err = errUsage{fmt.Errorf("serve: --headers: %w", err)}
			}
		case "upstream":
			var u *url.URL
			if u, err = server.ParseUpstream(c.upstream); err != nil {
				err = errUsage{fmt.Errorf("serve: --upstream: %w", err)}
				return
			}
			s.Routes = []server.Route{{Path: "/", Upstream: u}}
		}
	})
	return err
}

func serve(ctx context.Context, args []string, out, errs io.Writer) error {
	var c choice
	if err := c.parse(args, out); err != nil {
		return err
	}
	settings, set, err := c.load()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(errs, nil))
	store, done, err := openStore(ctx, settings.Store, settings.MaxKeys)
	if err != nil {
		return err
	}
	defer done()
	warn(log, store)
	check, err := net.Listen("tcp", settings.CheckListen)
	if err != nil {
		return fmt.Errorf("check API: %w", err)
	}
	log.Info("check API", "address", check.Addr().String())
	var gateway net.Listener
	if c.demo || len(settings.Routes) > 0 {
		if gateway, err = net.Listen("tcp", settings.Listen); err != nil {
			check.Close()
			return fmt.Errorf("gateway: %w", err)
		}
		log.Info("gateway", "address", gateway.Addr().String())
	} else {
		log.Info("no gateway, for there are no routes: give --upstream, or routes in the file")
	}
	if c.demo {
		stop, err := startDemo(&settings, gateway, out)
		if err != nil {
			return err
		}
		defer stop()
	}
	s := server.New(server.Config{Settings: settings, Rules: set, Limiter: stint.NewLimiter(store), Log: log})
	log.Info("rules", "version", set.Version, "count", len(set.Rules))
	if c.config != "" {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
		go watch(watching, c.config, c.data, hangups, s, log)
	}
	return s.Run(ctx, gateway, check)
}

// openStore opens the store that an address names.
func openStore(ctx context.Context, address string, maxKeys int64) (stint.Store, func(), error) {
	if address == "memory" {
		return &stint.Memory{MaxKeys: int(maxKeys)}, func() {}, nil
	}
	s, err := redislimit.Open(ctx, address)
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return s, s.Close, nil
}

// warn tells of servers that will not keep limits.
func warn(log *slog.Logger, store stint.Store) {
	if s, ok := store.(*redislimit.Store); ok && strings.HasPrefix(s.Server().Eviction, "allkeys-") {
		log.Warn("this server drops counts when it runs out of memory, which resets limits; use noeviction or a volatile- policy",
			"maxmemory-policy", s.Server().Eviction)
	}
}
