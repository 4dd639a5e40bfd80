package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

type choice struct {
	config   string
	files    []rules.File // of config
	upstream string
	limits   []string
	key      string
	demo     bool
	flags    *pflag.FlagSet
	envoy    *rules.EnvoyFiles // besides config; nil: there are none
	each     bool

	listen, checkListen, probeListen, adminListen, store, namespace, headers string
	envoyListen                                                              string
	descriptors                                                              envoyFiles
}

func serveCommand(log *server.LogWriter) *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "limit HTTP in front of upstreams, and answer check requests",
		Long: `Limits HTTP in front of upstreams, and answers check requests.

A file holds the rules and, under "server", where to listen, the store and the routes; flags
override it. Without a file, --limit and --key make one rule. Without an upstream, only check
requests are answered. With --envoy, Envoy's rate limit service is answered, too.`,
		Example: `  stint serve --config stint.yaml
  stint serve --upstream http://localhost:9000 --limit "100 per 1m" --key client.ip
  stint serve --envoy /etc/ratelimit/config
  stint serve --demo`,
		Args: words(),
	}
	var choice choice
	choice.addFlags(c.Flags())
	fileFlags(c, "config")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := choice.check(); err != nil {
			return errUsage{err}
		}
		return choice.serve(c.Context(), c.OutOrStdout(), log)
	}
	return c
}

func (c *choice) addFlags(f *pflag.FlagSet) {
	d := config.Default()
	c.flags = f
	f.SortFlags = false
	f.StringVar(&c.config, "config", "", "read rules and settings from `FILE`, or from a directory of such files")
	f.StringVar(&c.upstream, "upstream", "", "pass requests on to `URL`")
	f.StringArrayVar(&c.limits, "limit", nil, "`LIMIT` such as \"100 per 1m\" or \"5 per 10s sliding_log\"; may be given several times")
	f.StringVar(&c.key, "key", "client.ip", "count by `EXPRESSION`, such as client.ip or request.headers[\"x-api-key\"]")
	f.StringVar(&c.store, "store", d.Store, "where counts are kept: memory, or the `URL` of a Redis such as redis://localhost:6379")
	f.StringVar(&c.namespace, "namespace", "", "keep the keys of this service apart from others in the same Redis, by `NAME` (default \"stint\")")
	f.StringVar(&c.listen, "listen", d.Listen, "`ADDRESS` of the gateway")
	f.StringVar(&c.checkListen, "check-listen", d.CheckListen, "`ADDRESS` of the check API; off: none")
	f.StringVar(&c.probeListen, "probe-listen", d.ProbeListen, "`ADDRESS` of /healthz, /readyz and /metrics for probes elsewhere; off: only the check API's")
	f.StringVar(&c.adminListen, "admin-listen", d.Admin.Listen, "`ADDRESS` of the admin API; off: none")
	f.StringVar(&c.headers, "headers", "x-ratelimit", "`NAMES` of the headers that tell clients about their limits, separated by commas: x-ratelimit, x-ratelimit-epoch, draft-11, openai, anthropic or none")
	f.StringVar(&c.descriptors.directory, "envoy", "", "answer Envoy's rate limit service by the files of descriptors in `DIR`")
	f.StringVar(&c.envoyListen, "envoy-listen", config.DefaultEnvoy().Listen, "`ADDRESS` of Envoy's rate limit service, or unix: and the path of a socket")
	f.BoolVar(&c.each, "envoy-each", false, "decide each descriptor of a call of Envoy by itself, and not all or nothing")
	f.BoolVar(&c.demo, "demo", false, "run with an upstream and rules made for trying it out")
}

func (c *choice) check() error {
	given := c.flags.Changed
	switch {
	case c.demo && (given("config") || given("upstream") || given("limit") || given("key") || given("envoy")):
		return errors.New("--demo has its own upstream and rules: leave out --config, --upstream, --limit, --key and --envoy")
	case given("config") && (given("limit") || given("key")):
		return errors.New("--config has the rules: leave out --limit and --key, or --config")
	case given("envoy") && given("limit"):
		return errors.New("--envoy reads rules from files: give --config FILE in place of --limit")
	case (given("envoy-listen") || given("envoy-each")) && !given("envoy") && !given("config"):
		return errors.New("--envoy-listen and --envoy-each need --envoy DIR, or a section envoy in --config FILE")
	case given("upstream") && !given("config") && !given("limit"):
		return errors.New(`--upstream without limits: give --limit "100 per 1m", or --config FILE`)
	case !c.demo && !given("config") && !given("limit") && !given("envoy"):
		return errors.New(`want --config FILE, or --limit "100 per 1m" and --upstream URL, or --envoy DIR, or --demo; see "stint serve --help"`)
	}
	return nil
}

//go:embed demo.yaml
var demoRules []byte

func (c *choice) load() (config.Settings, *rules.Set, error) {
	files := []rules.File{{Name: "--limit and --key", Data: c.rule()}}
	switch {
	case c.demo:
		files = []rules.File{{Name: "demo.yaml", Data: demoRules}}
	case len(c.limits) == 0:
		var err error
		if files, c.envoy, err = c.descriptors.read(c.config); err != nil {
			return config.Settings{}, nil, err
		}
		c.files = files
	}
	settings, set, err := config.Read(files, redislimit.CheckAddress)
	switch {
	case err == nil && settings.RulesFrom == config.FromFleet && c.envoy != nil:
		err = errors.New("rules: fleet, and a directory of Envoy's files: rules that are pushed have none, so these would go out of force")
	case err == nil:
		err = c.override(&settings)
	case len(c.limits) > 0:
		err = flagProblems(err)
	}
	return settings, set, err
}

// flagProblems says which flag is wrong in a rule made by choice.rule.
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
		all = append(all, fmt.Errorf("%s: %s", flag, p.Text))
	}
	return errUsage{errors.Join(all...)}
}

// keyLine is the line of the key in the file that rule makes; limits follow.
const keyLine = 3

// rule is the rules file of --limit and --key. In YAML's single quotes only the quote means
// anything, and a line's end, which is a blank to an expression.
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
	c.flags.VisitAll(func(f *pflag.Flag) { // in the order of addFlags, whatever that of the call is: envoy before its own
		if !f.Changed {
			return
		}
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
		case "envoy":
			s.Envoy = cmp.Or(s.Envoy, config.DefaultEnvoy())
			s.Envoy.Directory = c.descriptors.directory
		case "envoy-listen", "envoy-each":
			err = c.overrideEnvoy(s, f.Name)
		case "upstream":
			var u *url.URL
			u, err = config.ParseUpstream(c.upstream)
			s.Routes = []config.Route{{Path: "/", Upstream: u}}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.Name, err))
		}
	})
	if len(errs) > 0 {
		return errUsage{errors.Join(errs...)}
	}
	return nil
}

func (c *choice) overrideEnvoy(s *config.Settings, flag string) (err error) {
	switch {
	case s.Envoy == nil:
		return errors.New("there is no --envoy DIR, and no section envoy in the file")
	case flag == "envoy-each":
		s.Envoy.Each = c.each
	default:
		s.Envoy.Listen, err = config.ParseEnvoyListen(c.envoyListen)
	}
	return err
}
