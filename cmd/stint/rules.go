package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

func rulesCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "rules", Short: "list and check rules; push, pull and roll back a fleet's",
		Long: `Lists the rules in force, checks rules files, and changes the rules that a fleet shares. check
calls no server; the others call the admin API of an instance of the fleet.`,
	}, rulesList(), rulesCheck(), rulesPreview(), rulesPush(), rulesPull(), rulesDiff(), rulesHistory(), rulesRollback(), rulesSource())
}

func rulesList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "list the rules in force",
		Long: `Lists the rules that are in force at an instance: their names, keys and limits.
"stint switch" shows their modes.`,
	}
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: "/v1/rules"}, printRules)
	})
}

func printRules(w io.Writer, all adminapi.Rules) {
	printSource(w, adminapi.Source{Source: all.Source, Version: all.Version, Number: all.Number})
	if len(all.Rules) == 0 {
		fmt.Fprintln(w, "no rules")
		return
	}
	t := table{heads: []string{"RULE", "MODE", "KEY", "LIMITS", "ALSO"}}
	for _, r := range all.Rules {
		var also []string
		for _, s := range append(expressions(&r), r.Settings...) {
			also = append(also, s.Name+": "+s.Value)
		}
		t.row(shown(r.Name), shown(r.Mode), plain(r.Key), plain(strings.Join(r.Limits, ", ")), plain(strings.Join(also, "; ")))
	}
	t.print(w)
}

// expressions are the fields of a rule that are shown beside its key and limits.
func expressions(r *adminapi.Rule) (all []rules.Setting) {
	for _, s := range []rules.Setting{{Name: "match", Value: r.Match}, {Name: "cost", Value: r.Cost}, {Name: "cost_after", Value: r.CostAfter}, {Name: "unit", Value: r.Unit}} {
		if s.Value != "" {
			all = append(all, s)
		}
	}
	return all
}

func rulesCheck() *cobra.Command {
	c := &cobra.Command{
		Use: "check [--strict] [--envoy DIR] [FILE...]", Short: "check rules files, without a server",
		Long: `Prints each file's number of rules and version, or its errors as file:line:column: text. It
exits with 1 if there are errors. A directory stands for all its files that end in .yaml or .yml,
together. With --envoy, Envoy's descriptor files in DIR are checked, and each file with them.

Rules that are valid but probably not meant are printed as file:line:column: warning ST003: text;
docs/errors.md explains the codes.`,
		ValidArgsFunction:     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
	}
	var descriptors envoyFiles
	c.Args = func(_ *cobra.Command, words []string) error {
		if len(words) == 0 && descriptors.directory == "" {
			return errors.New(`want "stint rules check FILE...", or --envoy DIR`)
		}
		return nil
	}
	strict := c.Flags().Bool("strict", false, "also exit with 1 if there are warnings")
	descriptors.addFlags(c.Flags())
	c.RunE = func(c *cobra.Command, files []string) error {
		return descriptors.check(files, *strict, c.OutOrStdout())
	}
	return c
}

func (e *envoyFiles) check(files []string, strict bool, out io.Writer) error {
	var errs []error
	warnings := 0
	if len(files) == 0 {
		files = []string{""} // the descriptors alone
	}
	for _, name := range files {
		settings, set, err := e.config(name)
		name = cmp.Or(name, e.directory)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		findings := set.Findings
		if set.HasServer { // else these are rules for servers whose settings are elsewhere
			findings = slices.Concat(settings.Findings(set), findings)
		}
		for _, finding := range findings {
			if finding.Where == "" { // it is of the settings
				finding.Where = name
			}
			fmt.Fprintln(out, finding)
		}
		warnings += len(findings)
		fmt.Fprintf(out, "%s: %s, version %s\n", name, spelling.Several(len(set.Rules), "rule"), set.Version)
		fmt.Fprint(out, unindexed(name, set))
	}
	if strict && warnings > 0 {
		errs = append(errs, fmt.Errorf("rules: %s, and --strict takes none", spelling.Several(warnings, "warning")))
	}
	return errors.Join(errs...)
}

// unindexed tells of rules that every request evaluates, where there are so many that others are passed over.
func unindexed(name string, set *rules.Set) string {
	const few, most = 20, 10
	all := set.Unindexed()
	if len(all) == 0 || len(set.Rules) < few {
		return ""
	}
	var names []string
	for _, r := range all[:min(len(all), most)] {
		names = append(names, r.Name)
	}
	if len(all) > most {
		names = append(names, "…")
	}
	return fmt.Sprintf("%s: each request evaluates %s, because the match does not begin with a comparison of a field with a constant: %s\n",
		name, spelling.Several(len(all), "rule"), strings.Join(names, ", "))
}

func rulesSource() *cobra.Command {
	c := &cobra.Command{
		Use: "source [file|fleet] [--reason TEXT]", Short: "show or set where an instance takes its rules from",
		Long: `Shows where the instance takes its rules from. "file" makes it use its own file, when the
fleet's rules are wrong or cannot be read; "fleet" makes it use the fleet's again. Other instances
do not change.`,
		ValidArgs:             []string{"file", "fleet"},
		DisableFlagsInUseLine: true,
	}
	var body adminapi.SourceRequest
	reasonFlag(c.Flags(), &body.Reason)
	check := func(_ *cobra.Command, words []string) error {
		switch {
		case len(words) > 1:
			return fmt.Errorf("unexpected argument %q", words[1])
		case len(words) == 1 && words[0] != "file" && words[0] != "fleet":
			return fmt.Errorf("%q: want file or fleet", words[0])
		case len(words) == 0 && body.Reason != "":
			return errors.New("--reason goes with a change")
		}
		return nil
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, words []string) error {
		q := apiRequest{method: http.MethodGet, path: "/v1/rules/source"}
		if len(words) == 1 {
			body.Source = words[0]
			q.method, q.body = http.MethodPut, body
		}
		return exchange(ctx, a, q, printSource)
	})
}

func printSource(w io.Writer, s adminapi.Source) {
	from := "its file"
	if s.Source == "fleet" {
		from = fmt.Sprintf("the fleet, number %d", s.Number)
	}
	fmt.Fprintf(w, "rules of %s, version %s\n", from, shown(s.Version))
	if s.Ordered != nil {
		fmt.Fprintln(w, orderWords(s.Ordered))
	}
}

func orderWords(o *adminapi.Order) string {
	return list("ordered by "+shown(o.Who)+" at "+instant(o.At), plain(o.Reason)) + "; `stint rules source fleet` ends it"
}
