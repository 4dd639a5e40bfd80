package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/server/adminapi"
)

const bansPath = "/v1/bans"

func banCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "ban", Short: "ban keys and networks, and lift bans",
		Long: "Bans a key under a rule, or everyone in a network, and lifts bans.",
	}, banList(), banAdd(), banLift())
}

func banWords(b *adminapi.Ban) string {
	return list(named("rule", shown(b.Rule)), named("key", shownKey(b.Key)), named("network", shown(b.Network)), end(&b.Note))
}

func bannedKey(b *adminapi.PenaltyBan) string {
	if b.Hashed {
		return shownKey(b.Key) + " (hash of a long key)"
	}
	return shownKey(b.Key)
}

func banList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "list the bans in force",
		Long: "Lists the bans in force: those by hand and those by the penalties of rules.",
	}
	rule := c.Flags().String("rule", "", "only bans under the rule `NAME`; without it, all bans, including networks")
	limit := number{least: 1}
	c.Flags().Var(&limit, "limit", "show at most `N` of each kind (default 1000)")
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		only := url.Values{}
		if *rule != "" {
			only.Set("rule", *rule)
		}
		limit.into(only, "limit")
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: withQuery(bansPath, only)}, printBans)
	})
}

func printBans(w io.Writer, all adminapi.Bans) {
	warnLocal(w, all.CountedBy, "bans by penalty are those that this instance knows of")
	if len(all.ByHand)+len(all.ByPenalty) == 0 {
		fmt.Fprintln(w, "no bans")
	}
	if len(all.ByHand) > 0 {
		fmt.Fprintln(w, "by hand:")
		t := table{heads: append([]string{"ID", "RULE", "KEY", "NETWORK"}, entryHeads...)}
		for _, b := range all.ByHand {
			t.row(append([]string{shown(b.ID), shown(b.Rule), shownKey(b.Key), shown(b.Network)}, entryCells(&b.Note, b.Effect)...)...)
		}
		t.print(w)
	}
	if len(all.ByPenalty) > 0 {
		fmt.Fprintln(w, "by penalty:")
		t := table{heads: []string{"RULE", "KEY", "LEFT", "IN A ROW"}}
		for _, b := range all.ByPenalty {
			t.row(shown(b.Rule), bannedKey(&b), micros(b.Left), strconv.FormatInt(b.Bans, 10))
		}
		t.print(w)
	}
	if all.Truncated {
		fmt.Fprintln(w, "there are more: --limit shows more, --rule only those of one rule")
	}
}

func targetFlags(f *pflag.FlagSet, t *adminapi.BanTarget) {
	f.StringVar(&t.Rule, "rule", "", "`NAME` of the rule")
	keyFlag(f, &t.Key)
	f.StringVar(&t.Network, "network", "", "clients in `NETWORK`, such as 192.0.2.0/24, or at one address")
}

func checkTarget(t *adminapi.BanTarget) error {
	byKey := t.Rule != "" && t.Key != "" && t.Network == ""
	byNetwork := t.Rule == "" && t.Key == "" && t.Network != ""
	if !byKey && !byNetwork {
		return errors.New("want --rule and --key, or --network alone")
	}
	return nil
}

func banAdd() *cobra.Command {
	c := &cobra.Command{
		Use: "add (--rule R --key K | --network N) [--for D | --until T] [--reason TEXT]", Short: "ban a key under a rule, or a network",
		Long: "Bans a key under a rule, or everyone in a network, until the ban is lifted or ends.",
		Example: `  stint ban add --rule login --key 192.0.2.7 --for 30m --reason "tries passwords"
  stint ban add --network 198.51.100.0/24`,
		DisableFlagsInUseLine: true,
	}
	var body adminapi.BanRequest
	targetFlags(c.Flags(), &body.BanTarget)
	termFlags(c.Flags(), &body.Term)
	check := func(c *cobra.Command, args []string) error {
		return cmp.Or(words()(c, args), checkTarget(&body.BanTarget), checkTerm(&body.Term))
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		return exchange(ctx, a, apiRequest{http.MethodPost, bansPath, body}, func(w io.Writer, b adminapi.Ban) {
			fmt.Fprintf(w, "ban %s: %s\n", shown(b.ID), banWords(&b))
			hint(w, &b.Note, b.Effect, "ban lift")
		})
	})
}

// banLift lifts a ban by its ID, or all bans of the key or network that the flags give.
func banLift() *cobra.Command {
	c := &cobra.Command{
		Use: "lift (ID | --rule R --key K | --network N) [--reason TEXT]", Short: "lift bans",
		Long: `Lifts the ban by hand that has an ID; or all bans of a key under a rule, including those of the
rule's penalty, and clears the key's violations; or all bans of a network.`,
		DisableFlagsInUseLine: true,
	}
	var body adminapi.LiftRequest
	targetFlags(c.Flags(), &body.BanTarget)
	reasonFlag(c.Flags(), &body.Reason)
	check := func(_ *cobra.Command, words []string) error {
		byFlags := body.BanTarget != (adminapi.BanTarget{})
		switch {
		case len(words) > 1:
			return fmt.Errorf("unexpected argument %q", words[1])
		case len(words) == 1 && byFlags:
			return errors.New("want an ID, or --rule and --key, or --network: not two of them")
		case len(words) == 0:
			return checkTarget(&body.BanTarget)
		}
		return nil
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, words []string) error {
		if len(words) == 0 {
			return exchange(ctx, a, apiRequest{http.MethodPost, bansPath + "/lift", body}, printLifted)
		}
		return exchange(ctx, a, apiRequest{method: http.MethodDelete, path: removal(bansPath, words[0], body.Reason)}, func(w io.Writer, b adminapi.Ban) {
			printLifted(w, adminapi.Lifted{ByHand: []adminapi.Ban{b}, Reach: b.Reach})
		})
	})
}

func printLifted(w io.Writer, all adminapi.Lifted) {
	for _, b := range all.ByHand {
		fmt.Fprintf(w, "lifted ban %s: %s\n", shown(b.ID), banWords(&b))
	}
	for _, b := range all.ByPenalty {
		fmt.Fprintf(w, "lifted the penalty's ban: rule %s, key %s, %s left\n", shown(b.Rule), bannedKey(&b), micros(b.Left))
	}
	if len(all.ByHand)+len(all.ByPenalty) == 0 {
		fmt.Fprintln(w, "no ban was in force; violations are forgotten")
	}
	printReach(w, all.Reach)
}
