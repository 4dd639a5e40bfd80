package main

import (
	"context"
	"encoding/json"
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

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

// What offenders are, and what they are counted by. The first is the default.
var (
	offendersOf = []string{"keys", "rules", "paths", "clients"}
	offendersBy = []string{"refusals", "use", "violations"}
)

// oneOf is a flag that is one of some words.
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
		Use: "offenders", Short: "list the keys, clients, paths and rules with the most refusals",
		Long: `Lists the keys, rules, paths or clients with the most refusals, use or violations in the whole
fleet, the highest first. The true count is at most COUNT, and at least COUNT minus ERROR.

With --rule and --key, or with --name, it lists one of them by the hour instead, for 14 days.`,
		Example: `  stint offenders
  stint offenders --of clients --by violations --since 24h
  stint offenders --rule login --since 7d --json
  stint offenders --rule login --key 192.0.2.66
  stint offenders --of paths --name /login`,
	}
	of := oneOf{offendersOf, offendersOf[0]}
	by := oneOf{offendersBy, offendersBy[0]}
	f := c.Flags()
	f.Var(&of, "of", "what to list")
	f.Var(&by, "by", "what to count: refused requests, charged cost, or violations of penalties")
	since := f.String("since", "1h", "how far back: a `DURATION` such as 30m or 7d, at most 14d; beyond 3h in whole hours")
	rule := f.String("rule", "", "only keys of the rule `NAME`")
	contains := f.String("contains", "", "only keys or names that contain `TEXT`")
	var key rules.Key
	keyFlag(f, &key)
	name := f.String("name", "", "list the rule, path or client `NAME` by the hour")
	limit := number{least: 1}
	f.Var(&limit, "limit", "show at most `N` (default 50)")
	check := func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return words()(c, args)
		case *rule != "" && of.value != "keys":
			return errors.New("--rule is for --of keys")
		case key != "" && *rule == "":
			return errors.New("--key needs --rule")
		case *name != "" && of.value == "keys":
			return errors.New("--name is for --of rules, paths or clients; want --rule and --key")
		case (key != "" || *name != "") && (limit.given || f.Changed("since") || f.Changed("contains")):
			return errors.New("--since, --contains and --limit are for lists, not for the hours of one offender")
		}
		return nil
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		q := url.Values{"of": {of.value}, "by": {by.value}}
		if *name != "" {
			q.Set("name", *name)
		}
		if key != "" {
			text, err := json.Marshal(key)
			if err != nil {
				return errUsage{err}
			}
			q.Set("rule", *rule)
			q.Set("key", string(text))
		}
		if *name != "" || key != "" {
			return exchange(ctx, a, apiRequest{method: http.MethodGet, path: withQuery("/v1/offenders/history", q)}, printHistory)
		}
		q.Set("since", *since)
		if *rule != "" {
			q.Set("rule", *rule)
		}
		if *contains != "" {
			q.Set("contains", *contains)
		}
		limit.into(q, "limit")
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: withQuery("/v1/offenders", q)}, printOffenders)
	})
}

func printOffenders(w io.Writer, all adminapi.Offenders) {
	fmt.Fprintf(w, "%s by %s since %s, %s: %d in all\n", plain(all.Of), plain(all.By), instant(all.Since.Truncate(time.Second)), spelling.Several(all.Instances, "instance"), all.Total)
	if all.Missing != "" {
		fmt.Fprintln(w, "not complete:", plain(all.Missing))
	}
	if len(all.Offenders) == 0 {
		return
	}
	t := table{heads: []string{"COUNT", "ERROR", "RULE", "KEY", strings.ToUpper(strings.TrimSuffix(plain(all.Of), "s"))}}
	for _, o := range all.Offenders {
		key, name := shownKey(o.Key), shown(o.Name)
		if o.Hashed {
			key, name = hashed(key), hashed(name)
		}
		t.row(strconv.FormatInt(o.Count, 10), someError(o.Error), shown(o.Rule), key, name)
	}
	t.print(w)
}

func printHistory(w io.Writer, h adminapi.History) {
	if len(h.Hours) == 0 {
		fmt.Fprintln(w, "not among the heaviest in the last 14 days")
		return
	}
	t := table{heads: []string{"HOUR", "COUNT", "ERROR"}}
	for _, of := range h.Hours {
		t.row(instant(of.From), strconv.FormatInt(of.Count, 10), someError(of.Error))
	}
	t.print(w)
}

func someError(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func hashed(text string) string {
	if text == "" {
		return ""
	}
	return text + " (hash)"
}
