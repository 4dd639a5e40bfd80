package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

type choice struct {
	config string
	limits []string
	key    string
	demo   bool
	flags  *pflag.FlagSet
	// asEnvoy takes the variables of envoyproxy/ratelimit, too, as stint envoy does.
	asEnvoy bool

	files    configFiles // that load has read
	settings config.Settings
	given    []config.Given // what goes before their settings
	unused   []string       // variables of envoyproxy/ratelimit that have no effect
	unknown  []string       // variables that name no setting
}

func serveCommand(log *server.LogWriter) *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "limit HTTP in front of upstreams, and answer check requests",
		Long: `Limits HTTP in front of upstreams, and answers check requests.

A file has the rules and, under "server", the settings: addresses, the store, routes
(docs/settings.md). Variables such as STINT_SERVER_ADMIN_LISTEN, for admin.listen, override the
file, and flags override both. Without a file, --limit and --key make one rule. Without an upstream,
it only answers check requests. With --envoy, it also answers Envoy's rate limit service.`,
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
		return choice.serve(c.Context(), os.Environ(), c.OutOrStdout(), log)
	}
	return c
}

func (c *choice) addFlags(f *pflag.FlagSet) {
	c.flags = f
	f.SortFlags = false
	f.StringVar(&c.config, "config", "", "read rules and settings from `FILE`, or from a directory of such files")
	f.StringArrayVar(&c.limits, "limit", nil, "`LIMIT` such as \"100 per 1m\" or \"5 per 10s sliding_log\"; may be given several times")
	f.StringVar(&c.key, "key", "client.ip", "count by `EXPRESSION`, such as client.ip or request.headers[\"x-api-key\"]")
	f.BoolVar(&c.demo, "demo", false, "run with an upstream and rules for trying it out")
	addSettingFlags(f)
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

// load reads the configuration: files, and before them the variables in environ, and before those flags.
func (c *choice) load(environ []string) (config.Settings, *rules.Set, error) {
	if err := c.readGiven(environ); err != nil {
		return config.Settings{}, nil, err
	}
	switch {
	case c.demo:
		c.files.own = []rules.File{{Name: "demo.yaml", Data: demoRules}}
	case len(c.limits) > 0:
		c.files.own = []rules.File{{Name: "--limit and --key", Data: c.rule()}}
	default:
		var err error
		if c.files, err = new(envoyFiles).read(c.config, c.given); err != nil {
			return config.Settings{}, nil, c.aboutVariables(err)
		}
	}
	source := c.files.source()
	source.Given, c.files.opened = c.given, nil // which is large
	if err := c.checkEnvoy(source.Files, source.Given); err != nil {
		return config.Settings{}, nil, errUsage{err}
	}
	settings, set, err := source.Read()
	if err != nil && len(c.files.descriptors) > 0 && settings.Envoy != nil && settings.Envoy.StartWithoutDescriptors {
		source.Files, source.Opened = orEmpty(c.files.own), nil
		if without, rest, other := source.Read(); other == nil { // only the descriptors are wrong
			settings, set, c.files.wrong, err = without, rest, err, nil
		}
	}
	switch {
	case err == nil && settings.RulesFrom == config.FromFleet && settings.Envoy != nil && (c.files.from != nil || settings.Envoy.XDS != nil):
		err = errors.New("rules: fleet and descriptors of Envoy's form exclude each other: pushed rules have no descriptors, so these would end")
	case err != nil && len(c.limits) > 0:
		err = flagProblems(err)
	case err != nil:
		err = usageIfGiven(err)
	}
	c.settings = settings
	return settings, set, err
}

// readGiven reads what variables and flags give.
func (c *choice) readGiven(environ []string) (err error) {
	if c.asEnvoy {
		if c.given, c.unused, err = envoy.FromEnvironment(environ); err != nil {
			return errUsage{fmt.Errorf("the environment is wrong:\n%w", err)}
		}
		c.given = append(c.given, config.Given{Path: "check_listen", Text: config.Off, From: "stint envoy"})
	}
	var more []config.Given
	more, c.unknown = config.Environment(environ)
	c.given = slices.Concat(c.given, more, givenByFlags(c.flags))
	return nil
}

// aboutVariables is err, with which files were not read, or what is wrong with variables and flags
// besides. It names the variables of a directory that is not there.
func (c *choice) aboutVariables(err error) error {
	if !c.asEnvoy {
		return err
	}
	if _, wrong := (&config.Source{Given: c.given, CheckStore: redislimit.CheckAddress}).ReadSettings(); wrong != nil {
		return usageIfGiven(wrong)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY together name the directory", err)
	}
	return err
}

// checkEnvoy returns an error if flags say something of a service that there is not.
func (c *choice) checkEnvoy(files []rules.File, given []config.Given) error {
	for _, name := range []string{"envoy-listen", "envoy-each"} {
		if !c.flags.Changed(name) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(given), func(g config.Given) bool { return g.From == "--envoy-listen" || g.From == "--envoy-each" })
		if s, err := (&config.Source{Files: files, Given: others}).ReadSettings(); err == nil && s.Envoy == nil {
			return fmt.Errorf("--%s: there is no --envoy DIRECTORY, and no section envoy in the file", name)
		}
	}
	return nil
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
		switch {
		case p.From != "":
			flag = p.From
		case p.Line <= keyLine:
			flag = "--key"
		}
		all = append(all, fmt.Errorf("%s: %s", flag, p.Text))
	}
	return errUsage{errors.Join(all...)}
}

// keyLine is the line of the key in the file that rule makes; limits follow.
const keyLine = 3

// rule is the rules file of --limit and --key.
func (c *choice) rule() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "rules:\n  - name: default\n    key: %s\n    limits:\n", yamlText(c.key))
	for _, l := range c.limits {
		fmt.Fprintf(&b, "      - %s\n", yamlText(l))
	}
	return []byte(b.String())
}

// yamlText is a text in YAML's single quotes. There only the quote means anything, and a line's end,
// which is a blank to an expression.
func yamlText(s string) string {
	return "'" + strings.NewReplacer("'", "''", "\n", " ").Replace(s) + "'"
}
