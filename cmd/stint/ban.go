package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stintdev/stint/server/adminapi"
)

const banAbout = `Bans a key under a rule, or everyone in a network, and lifts bans.

    stint ban list [--rule R] [--limit N]
    stint ban add (--rule R --key K | --network N) [--for D | --until T] [--reason TEXT]
    stint ban lift ID [--reason TEXT]
    stint ban lift (--rule R --key K | --network N) [--reason TEXT]

lift with an ID ends that ban by hand. lift with a key ends all bans of the key under
the rule, those of the rule's penalty too, and forgets its violations.
`

const bansPath = "/v1/bans"

var banCommands = []command{{"list", banList}, {"add", banAdd}, {"lift", banLift}}

// banWords is the ban in a line.
func banWords(b *adminapi.Ban) string {
	return list(named("rule", shown(b.Rule)), named("key", shownKey(b.Key)), named("network", shown(b.Network)), end(&b.Note))
}

// bannedKey is the key, or its hash.
func bannedKey(b *adminapi.PenaltyBan) string {
	if b.Hashed {
		return shownKey(b.Key) + " (hash of a long key)"
	}
	return shownKey(b.Key)
}

func banList(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("ban list")
	a := adminFlags(f, errs)
	rule := f.String("rule", "", "`NAME` of the rule; without it, those of all rules and networks")
	limit := number{least: 1}
	f.Var(&limit, "limit", "show at most `N` of each kind (default 1000)")
	if _, err := parseMixed(f, args, banAbout, out); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	only := url.Values{}
	if *rule != "" {
		only.Set("rule", *rule)
	}
	if limit.given {
		only.Set("limit", strconv.FormatInt(limit.value, 10))
	}
	path := bansPath
	if len(only) > 0 {
		path += "?" + only.Encode()
	}
	return exchange(ctx, a, out, question{method: http.MethodGet, path: path}, tellBans)
}

func tellBans(w io.Writer, all adminapi.Bans) {
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

func targetFlags(f *flag.FlagSet, t *adminapi.BanTarget) {
	f.StringVar(&t.Rule, "rule", "", "`NAME` of the rule")
	keyFlag(f, &t.Key)
	f.StringVar(&t.Network, "network", "", "`NETWORK` such as 192.0.2.0/24, or an address")
}

func checkTarget(f *flag.FlagSet, t *adminapi.BanTarget) error {
	byKey := t.Rule != "" && t.Key != "" && t.Network == ""
	byNetwork := t.Rule == "" && t.Key == "" && t.Network != ""
	if !byKey && !byNetwork {
		return wrong(f, "want --rule and --key, or --network alone")
	}
	return nil
}

func banAdd(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("ban add")
	a := adminFlags(f, errs)
	var body adminapi.BanRequest
	targetFlags(f, &body.BanTarget)
	termFlags(f, &body.Term)
	if _, err := parseMixed(f, args, banAbout, out); err != nil {
		return err
	}
	if err := checkTarget(f, &body.BanTarget); err != nil {
		return err
	}
	if err := checkTerm(f, &body.Term); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{http.MethodPost, bansPath, body}, func(w io.Writer, b adminapi.Ban) {
		fmt.Fprintf(w, "ban %s: %s\n", shown(b.ID), banWords(&b))
		hint(w, &b.Note, b.Effect, "ban lift")
	})
}

// banLift lifts a ban by its ID, or all of whom the flags name.
func banLift(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("ban lift")
	a := adminFlags(f, errs)
	var body adminapi.LiftRequest
	targetFlags(f, &body.BanTarget)
	reasonFlag(f, &body.Reason)
	words, err := parseWords(f, args, banAbout, out)
	byID := len(words) == 1 && body.BanTarget == adminapi.BanTarget{}
	switch {
	case err != nil:
		return err
	case len(words) > 1:
		return wrong(f, "unexpected argument %q", words[1])
	case len(words) == 1 && !byID:
		return wrong(f, "want an ID, or --rule and --key, or --network: not two of them")
	case !byID:
		if err := checkTarget(f, &body.BanTarget); err != nil {
			return err
		}
	}
	if err := a.open(f); err != nil {
		return err
	}
	if byID {
		return exchange(ctx, a, out, question{method: http.MethodDelete, path: removal(bansPath, words[0], body.Reason)}, func(w io.Writer, b adminapi.Ban) {
			tellLifted(w, adminapi.Lifted{ByHand: []adminapi.Ban{b}, Reach: b.Reach})
		})
	}
	return exchange(ctx, a, out, question{http.MethodPost, bansPath + "/lift", body}, tellLifted)
}

func tellLifted(w io.Writer, all adminapi.Lifted) {
	for _, b := range all.ByHand {
		fmt.Fprintf(w, "lifted ban %s: %s\n", shown(b.ID), banWords(&b))
	}
	for _, b := range all.ByPenalty {
		fmt.Fprintf(w, "lifted the penalty's ban: rule %s, key %s, %s left\n", shown(b.Rule), bannedKey(&b), micros(b.Left))
	}
	if len(all.ByHand)+len(all.ByPenalty) == 0 {
		fmt.Fprintln(w, "no ban was in force; violations are forgotten")
	}
	tellReach(w, all.Reach)
}
