package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"

	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const rulesAbout = `Checks rules files, and changes the rules that a fleet shares.

    stint rules check [--strict] FILE...
    stint rules push FILE [--after N] [--note TEXT]
    stint rules pull [--number N]
    stint rules diff FILE [--number N]
    stint rules history [--limit N]
    stint rules rollback N [--after M] [--note TEXT]
    stint rules source [file|fleet] [--reason TEXT]

check speaks to no server. For each file it prints how many rules there are and their
version, or what is wrong as file:line:column: what. It exits with 1 if anything is
wrong. A directory stands for all files in it that end in .yaml or .yml, together.
What works as written but hardly as meant is printed as file:line:column: warning
ST003: text; docs/errors.md explains the codes.

The others speak to the admin API. push makes a file the fleet's next version, in
place of version N: the one that the file was pulled as, or --after. pull prints the
newest version, or version N. diff prints what the file would change, and exits with
1 if that is anything. rollback makes version N the next one again. source shows where
the instance that is asked takes its rules from, and makes it take its file's, when the
fleet's are wrong or out of reach, or the fleet's again; the others go on as they are.
`

var rulesCommands = []command{
	{"check", rulesCheck}, {"push", rulesPush}, {"pull", rulesPull},
	{"diff", rulesDiff}, {"history", rulesHistory}, {"rollback", rulesRollback}, {"source", rulesSource},
}

func rulesCheck(_ context.Context, args []string, out, _ io.Writer) error {
	f := flags("rules check")
	strict := f.Bool("strict", false, "exit with 1 if there is any warning, too")
	if err := parseSome(f, args, rulesAbout, out); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return wrong(f, `want "stint rules check FILE..."`)
	}
	var errs []error
	warnings := 0
	for _, name := range f.Args() {
		settings, set, err := readConfig(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		findings := slices.Concat(settings.Findings(), set.Findings)
		for _, finding := range findings {
			if finding.Where == "" { // it is of the settings
				finding.Where = name
			}
			fmt.Fprintln(out, finding)
		}
		warnings += len(findings)
		fmt.Fprintf(out, "%s: %d rules, version %s\n", name, len(set.Rules), set.Version)
	}
	if *strict && warnings > 0 {
		errs = append(errs, fmt.Errorf("rules: %d warnings, and --strict takes none", warnings))
	}
	return errors.Join(errs...)
}

// readConfig reads the file, or directory, of a name.
func readConfig(name string) (config.Settings, *rules.Set, error) {
	files, err := rules.Read(name)
	if err != nil {
		return config.Settings{}, nil, err
	}
	return config.Read(files, redislimit.CheckAddress)
}

// watch takes over the rules that the configuration at path comes to hold, which
// was files. What is wrong is logged, and the rules stay as they are.
func watch(ctx context.Context, path string, files []rules.File, hangups <-chan os.Signal, s *server.Server, log *slog.Logger) {
	before, _ := config.ReadSettings(files, nil) // without what flags have changed
	rules.Watcher{Path: path, Now: hangups, Changed: func(files []rules.File, err error) {
		var settings config.Settings
		var set *rules.Set
		if err == nil {
			settings, set, err = config.Read(files, redislimit.CheckAddress)
		}
		if err != nil {
			s.RulesRefused(err)
			log.Error("rules not taken; those of before stay", "version", s.Rules().Version, "error", err)
			return
		}
		known := s.Findings()
		switch taken, err := s.SetRules(set); {
		case err != nil:
			log.Error("rules not taken; those of before stay", "version", s.Rules().Version, "error", err)
			return
		case taken:
			log.Info("rules taken", "version", set.Version, "count", len(set.Rules))
		default:
			log.Warn("the file's rules not taken, for the fleet has rules: stint rules push changes those", "version", s.Rules().Version)
		}
		logFindings(log, set.Findings, known)
		if !reflect.DeepEqual(settings, before) {
			log.Warn("the section server has changed; that takes a restart")
		}
	}}.Run(ctx, files)
}

// mostLogged is how many findings are logged at once.
const mostLogged = 20

// logFindings tells what is found and was not known. A finding that has moved to
// another line is known.
func logFindings(log *slog.Logger, findings, known []rules.Finding) {
	told := 0
	for _, f := range findings {
		if slices.ContainsFunc(known, func(k rules.Finding) bool { return k.Code == f.Code && k.Text == f.Text }) {
			continue
		}
		if told++; told > mostLogged {
			log.Warn("more is found: stint rules check tells all", "findings", len(findings))
			return
		}
		where := []any{"code", f.Code}
		if f.Where != "" {
			where = append(where, "where", f.Where)
		}
		log.Warn(f.Text, where...)
	}
}
