package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
)

const overridesPath = "/v1/overrides"

func overrideCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "override", Short: "give a key or a tier other limits",
		Long: "Gives a key, or all of a tier, other limits under a rule.",
	}, overrideList(), overrideAdd(), overrideRemove())
}

func overrideChange(o *adminapi.Override) string {
	if o.Times > 0 {
		return spelling.Several(o.Times, "time")
	}
	return plain(strings.Join(o.Limits, "; "))
}

func overrideWords(o *adminapi.Override) string {
	return list(named("rule", shown(o.Rule)), named("key", shownKey(o.Key)), named("tier", shown(o.Tier)), overrideChange(o), end(&o.Note))
}

func overrideList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "list the overrides in force", Long: "Lists the overrides in force."}
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: overridesPath}, printOverrides)
	})
}

func printOverrides(w io.Writer, all adminapi.Overrides) {
	if len(all.Overrides) == 0 {
		fmt.Fprintln(w, "no overrides")
		return
	}
	t := table{heads: append([]string{"ID", "RULE", "KEY", "TIER", "LIMITS"}, entryHeads...)}
	for _, o := range all.Overrides {
		t.row(append([]string{shown(o.ID), shown(o.Rule), shownKey(o.Key), shown(o.Tier), overrideChange(&o)}, entryCells(&o.Note, o.Effect)...)...)
	}
	t.print(w)
}

func overrideAdd() *cobra.Command {
	c := &cobra.Command{
		Use:   "add --rule R (--key K | --tier T) (--times N | --limit L...) [--for D | --until T] [--reason TEXT]",
		Short: "give a key or a tier other limits",
		Long: `Gives a key, or all of a tier, other limits under a rule. It replaces an override of the same
rule and the same key or tier.`,
		Example: `  stint override add --rule export --key ann --times 10 --for 7d
  stint override add --rule export --tier gold --limit "50 per 1m" --limit "900 per 1h"`,
		DisableFlagsInUseLine: true,
	}
	var body adminapi.OverrideRequest
	f, times := c.Flags(), number{least: 1}
	f.StringVar(&body.Rule, "rule", "", "`NAME` of the rule")
	keyFlag(f, &body.Key)
	f.StringVar(&body.Tier, "tier", "", "`NAME` of the tier")
	f.Var(&times, "times", "multiply each limit by `N`")
	f.StringArrayVar(&body.Limits, "limit", nil, "`LIMIT` such as \"100 per 1m\" in place of the rule's; may be given several times")
	termFlags(f, &body.Term)
	check := func(c *cobra.Command, args []string) error {
		return cmp.Or(words()(c, args), checkOverride(&body, times), checkTerm(&body.Term))
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		body.Times = times.value
		return exchange(ctx, a, apiRequest{http.MethodPost, overridesPath, body}, func(w io.Writer, o adminapi.AddedOverride) {
			fmt.Fprintf(w, "override %s: %s\n", shown(o.ID), overrideWords(&o.Override))
			for _, r := range o.Replaced {
				fmt.Fprintf(w, "it replaces override %s: %s\n", shown(r.ID), overrideWords(&r))
			}
			hint(w, &o.Note, o.Effect, "override remove")
		})
	})
}

func checkOverride(b *adminapi.OverrideRequest, times number) error {
	switch {
	case b.Rule == "":
		return errors.New("want --rule NAME")
	case (b.Key == "") == (b.Tier == ""):
		return errors.New("want --key or --tier: who the override is for")
	case times.given == (len(b.Limits) > 0):
		return errors.New(`want one of --times N and --limit "100 per 1m": what they get`)
	}
	return nil
}

func overrideRemove() *cobra.Command {
	return removeCommand("end an override", "Ends the override with an ID.", overridesPath, func(w io.Writer, o adminapi.Override) {
		fmt.Fprintf(w, "removed override %s: %s\n", shown(o.ID), overrideWords(&o))
		printReach(w, o.Reach)
	})
}
