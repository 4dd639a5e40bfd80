package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/server/adminapi"
)

// oneOf is a flag that is one of some words. The first is the default.
type oneOf struct {
	all   []string
	value string
}

func (o *oneOf) String() string { return o.value }
func (o *oneOf) Type() string   { return strings.Join(o.all, "|") }

func (o *oneOf) Set(text string) error {
	if !slices.Contains(o.all, text) {
		return fmt.Errorf("want one of %s", strings.Join(o.all, ", "))
	}
	o.value = text
	return nil
}

func offendersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "offenders", Short: "the keys, clients, paths and rules with the most refusals",
		Long: `Lists the keys, rules, paths or clients with the most refusals, use or violations in the whole
fleet, the heaviest first. The true count is at most COUNT, and at least COUNT minus ERROR.`,
		Example: `  stint offenders
  stint offenders --of clients --by violations --since 24h
  stint offenders --rule login --since 7d --json`,
	}
	of := oneOf{[]string{"keys", "rules", "paths", "clients"}, "keys"}
	by := oneOf{[]string{"refusals", "use", "violations"}, "refusals"}
	f := c.Flags()
	f.Var(&of, "of", "what to list")
	f.Var(&by, "by", "what they are counted by: refused requests, charged cost, or violations of penalties")
	since := f.String("since", "1h", "how far back: a `DURATION` such as 30m or 7d, at most 14d; beyond 3h in whole hours")
	rule := f.String("rule", "", "only keys of the rule `NAME`")
	limit := number{least: 1}
	f.Var(&limit, "limit", "show at most `N` (default 50)")
	check := func(c *cobra.Command, args []string) error {
		if len(args) == 0 && *rule != "" && of.value != "keys" {
			return errors.New("--rule is for --of keys")
		}
		return words()(c, args)
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		q := url.Values{"of": {of.value}, "by": {by.value}, "since": {*since}}
		if *rule != "" {
			q.Set("rule", *rule)
		}
		if limit.given {
			q.Set("limit", strconv.FormatInt(limit.value, 10))
		}
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: "/v1/offenders?" + q.Encode()}, printOffenders)
	})
}

func printOffenders(w io.Writer, all adminapi.Offenders) {
	fmt.Fprintf(w, "%s by %s since %s, %s: %d in all\n", plain(all.Of), plain(all.By), instant(all.Since.Truncate(time.Second)), several(all.Instances, "instance"), all.Total)
	if len(all.Offenders) == 0 {
		return
	}
	t := table{heads: []string{"COUNT", "ERROR", "RULE", "KEY", strings.ToUpper(strings.TrimSuffix(plain(all.Of), "s"))}}
	for _, o := range all.Offenders {
		over, key, name := "", shownKey(o.Key), shown(o.Name)
		if o.Error > 0 {
			over = strconv.FormatInt(o.Error, 10)
		}
		if o.Hashed {
			key, name = hashed(key), hashed(name)
		}
		t.row(strconv.FormatInt(o.Count, 10), over, shown(o.Rule), key, name)
	}
	t.print(w)
}

func hashed(text string) string {
	if text == "" {
		return ""
	}
	return text + " (hash)"
}
