package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/stintdev/stint/server/adminapi"
)

const overrideAbout = `Gives a key, or all of a tier, other limits under a rule.

    stint override list
    stint override add --rule R (--key K | --tier T) (--times N | --limit L...)
                       [--for D | --until T] [--reason TEXT]
    stint override remove ID [--reason TEXT]

One for the same rule and the same key or tier replaces the one before.
`

const overridesPath = "/v1/overrides"

var overrideCommands = []command{{"list", overrideList}, {"add", overrideAdd}, {"remove", overrideRemove}}

// overrideChange is what it makes of the limits.
func overrideChange(o *adminapi.Override) string {
	if o.Times > 0 {
		return fmt.Sprintf("%d times", o.Times)
	}
	return plain(strings.Join(o.Limits, "; "))
}

// overrideWords is the override in a line.
func overrideWords(o *adminapi.Override) string {
	return list(named("rule", shown(o.Rule)), named("key", shownKey(o.Key)), named("tier", shown(o.Tier)), overrideChange(o), end(&o.Note))
}

func overrideList(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("override list")
	a := adminFlags(f, errs)
	if _, err := parseMixed(f, args, overrideAbout, out); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{method: http.MethodGet, path: overridesPath}, func(w io.Writer, all adminapi.Overrides) {
		if len(all.Overrides) == 0 {
			fmt.Fprintln(w, "no overrides")
			return
		}
		t := table{heads: append([]string{"ID", "RULE", "KEY", "TIER", "LIMITS"}, entryHeads...)}
		for _, o := range all.Overrides {
			t.row(append([]string{shown(o.ID), shown(o.Rule), shownKey(o.Key), shown(o.Tier), overrideChange(&o)}, entryCells(&o.Note, o.Effect)...)...)
		}
		t.print(w)
	})
}

func overrideFlags(f *flag.FlagSet, b *adminapi.OverrideRequest) {
	f.StringVar(&b.Rule, "rule", "", "`NAME` of the rule")
	keyFlag(f, &b.Key)
	f.StringVar(&b.Tier, "tier", "", "`NAME` of the tier")
	f.Func("times", "multiply each limit by `N`", func(text string) error {
		n := number{least: 1}
		err := n.Set(text)
		b.Times = n.value
		return err
	})
	f.Var((*texts)(&b.Limits), "limit", "`LIMIT` such as \"100 per 1m\" in place of the rule's; may be given several times")
	termFlags(f, &b.Term)
}

func checkOverride(f *flag.FlagSet, b *adminapi.OverrideRequest) error {
	switch {
	case b.Rule == "":
		return wrong(f, "want --rule NAME")
	case (b.Key == "") == (b.Tier == ""):
		return wrong(f, "want one of --key and --tier: whom it is for")
	case (b.Times == 0) == (len(b.Limits) == 0):
		return wrong(f, `want one of --times N and --limit "100 per 1m": what they get`)
	}
	return checkTerm(f, &b.Term)
}

func overrideAdd(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("override add")
	a := adminFlags(f, errs)
	var body adminapi.OverrideRequest
	overrideFlags(f, &body)
	if _, err := parseMixed(f, args, overrideAbout, out); err != nil {
		return err
	}
	if err := checkOverride(f, &body); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{http.MethodPost, overridesPath, body}, func(w io.Writer, o adminapi.Override) {
		fmt.Fprintf(w, "override %s: %s\n", shown(o.ID), overrideWords(&o))
		hint(w, &o.Note, o.Effect, "override remove")
	})
}

func overrideRemove(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("override remove")
	a := adminFlags(f, errs)
	var reason string
	reasonFlag(f, &reason)
	words, err := parseMixed(f, args, overrideAbout, out, "ID")
	if err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{method: http.MethodDelete, path: removal(overridesPath, words[0], reason)}, func(w io.Writer, o adminapi.Override) {
		fmt.Fprintf(w, "removed override %s: %s\n", shown(o.ID), overrideWords(&o))
		tellReach(w, o.Reach)
	})
}
