package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
)

const rulesAbout = `Checks rules files.

    stint rules check FILE...

For each file it prints how many rules there are and their version, or what is wrong
as file:line:column: what. It exits with 1 if anything is wrong.
`

func rulesCommand(args []string, out io.Writer) error {
	f := flags("rules")
	if err := parseSome(f, args, rulesAbout, out); err != nil {
		return err
	}
	if f.NArg() < 2 || f.Arg(0) != "check" {
		return errUsage{errors.New(`rules: want "stint rules check FILE..."`)}
	}
	var errs []error
	for _, name := range f.Args()[1:] {
		data, err := os.ReadFile(name)
		var set *rules.Set
		if err == nil {
			_, set, err = readFile(name, data)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(out, "%s: %d rules, version %s\n", name, len(set.Rules), set.Version)
	}
	return errors.Join(errs...)
}

// readFile reads all of a configuration file.
func readFile(name string, data []byte) (server.Settings, *rules.Set, error) {
	settings, err := server.ReadSettings(name, data)
	if err != nil {
		return settings, nil, err
	}
	set, err := rules.Parse(name, data)
	return settings, set, err
}

// watch takes over the rules that the configuration file comes to hold, which was
// data. What is wrong is logged, and the rules stay as they are.
func watch(ctx context.Context, name string, data []byte, hangups <-chan os.Signal, s *server.Server, log *slog.Logger) {
	before, _ := server.ReadSettings(name, data) // without what flags have changed
	rules.Watcher{Path: name, Now: hangups, Changed: func(data []byte, err error) {
		var settings server.Settings
		var set *rules.Set
		if err == nil {
			settings, set, err = readFile(name, data)
		}
		if err != nil {
			s.RulesRefused()
			log.Error("rules not taken; those of before stay", "version", s.Rules().Version, "error", err)
			return
		}
		s.SetRules(set)
		log.Info("rules taken", "version", set.Version, "count", len(set.Rules))
		if !reflect.DeepEqual(settings, before) {
			log.Warn("the section server has changed; that takes a restart")
		}
	}}.Run(ctx, data)
}
