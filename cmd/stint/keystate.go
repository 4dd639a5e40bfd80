package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/stintdev/stint/server/adminapi"
)

const keyAbout = `Shows how a key stands under a rule, makes it unused, and gives units back.

    stint key show --rule R --key K [--tier T]
    stint key reset --rule R --key K [--tier T] [--reason TEXT]
    stint key refund --rule R --key K --cost N [--tier T] [--reason TEXT]

All limits of the rule are meant. Each tier of a key counts apart: show lists what the
key has used in every tier, and reset makes it unused in all. refund is for requests
of no tier. With --tier, show and refund are about that tier. Violations and bans
stay: see "stint ban lift".
`

var keyCommands = []command{
	{"show", func(ctx context.Context, args []string, out, errs io.Writer) error {
		return keyCommand(ctx, "show", args, out, errs)
	}},
	{"reset", func(ctx context.Context, args []string, out, errs io.Writer) error {
		return keyCommand(ctx, "reset", args, out, errs)
	}},
	{"refund", func(ctx context.Context, args []string, out, errs io.Writer) error {
		return keyCommand(ctx, "refund", args, out, errs)
	}},
}

// keyCommand does what what says with a key, and shows how it stands then.
func keyCommand(ctx context.Context, what string, args []string, out, errs io.Writer) error {
	f := flags("key " + what)
	a := adminFlags(f, errs)
	var body adminapi.RefundRequest
	f.StringVar(&body.Rule, "rule", "", "`NAME` of the rule")
	keyFlag(f, &body.Key)
	f.StringVar(&body.Tier, "tier", "", "`NAME` of the tier whose counts are meant")
	cost := number{least: 1}
	if what == "refund" {
		f.Var(&cost, "cost", "`N` units to refund")
	}
	if what != "show" {
		reasonFlag(f, &body.Reason)
	}
	if _, err := parseMixed(f, args, keyAbout, out); err != nil {
		return err
	}
	switch {
	case body.Rule == "" || body.Key == "":
		return wrong(f, "want --rule and --key")
	case what == "refund" && !cost.given:
		return wrong(f, "want --cost N: how many units")
	}
	if err := a.open(f); err != nil {
		return err
	}
	q := question{http.MethodPost, "/v1/keys/" + what, body.KeyRequest}
	if what == "refund" {
		body.Cost = cost.value
		q.body = body
	}
	return exchange(ctx, a, out, q, tellKey)
}

// warnLocal says what it means that an answer is not by the store, if it is not.
func warnLocal(w io.Writer, s adminapi.CountedBy, meaning string) {
	if s.By != "" {
		fmt.Fprintf(w, "the store does not answer: %s; %s\n", plain(s.StoreError), meaning)
	}
}

func tellKey(w io.Writer, k adminapi.KeyState) {
	warnLocal(w, k.CountedBy, "this is what the instance has counted and heard itself, of its share of each limit")
	var lines facts
	lines.add("rule", shown(k.Rule))
	lines.add("key", shownKey(k.Key))
	lines.add("mode", shown(k.Mode))
	lines.add("tier", shown(k.Tier))
	if k.Override != nil {
		lines.add("override", shown(k.Override.ID)+": "+overrideWords(k.Override))
	}
	if p := k.Penalty; p != nil {
		text := several(p.Violations, "violation") + ", " + several(p.Bans, "ban") + " in a row"
		if p.BanLeft != 0 {
			text += ", banned for " + micros(p.BanLeft) + " more"
		}
		lines.add("penalty", text)
	}
	if k.Ban != nil {
		lines.add("ban", shown(k.Ban.ID)+": "+banWords(k.Ban))
	}
	lines.print(w)
	if len(k.Limits) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{heads: []string{"TIER", "LIMIT", "USED", "OF", "LEFT", "UNUSED IN", "LAST CHARGED", "EXPIRES IN"}}
	for _, l := range k.Limits {
		charged, expires := "", ""
		if l.ChargedAgo != nil {
			charged = micros(*l.ChargedAgo) + " ago"
		}
		if l.ExpiresIn != nil {
			expires = micros(*l.ExpiresIn)
		}
		t.row(shown(l.Tier), shown(l.Limit), strconv.FormatInt(l.Used, 10), strconv.FormatInt(l.Capacity, 10), strconv.FormatInt(l.Remaining, 10), micros(l.ResetAfter), charged, expires)
	}
	t.print(w)
}
