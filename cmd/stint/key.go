package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

func keyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "key", Short: "show, reset or refund a key, and release its holds",
		Long: `Shows the state of a key under a rule, resets it, refunds units, and releases the holds of
requests in flight, under all limits of the rule. Each tier of a key has its own counts.
Violations and bans stay: see "stint ban lift".`,
	},
		keyAction("show", "show what a key has used", `Shows the state of a key under each limit of a rule: for requests without a tier and for each
tier in which the key was used, or with --tier for that tier only. It lists the holds of requests
in flight, with their age and the time left unless they are renewed.`),
		keyAction("reset", "reset a key to unused", `Resets a key to unused under all limits of a rule, in every tier. Holds of requests in flight
stay: see "stint key release".`),
		keyAction("refund", "refund units to a key", `Refunds units to a key under all limits of a rule: to the counts of requests without a tier, or
with --tier to those of that tier. If the rule has budgets (limits with hold) and a cost, only the
budgets get the units, because its other limits count requests.`),
		keyAction("release", "release the holds of requests in flight", `Releases one hold of a key, or all holds, in every tier. They are not charged, and the requests
go on. Use it when the request is known to have ended; holds of a program that has died expire by
themselves.`),
	)
}

// keyAction is a command that does something with a key and shows its state.
func keyAction(name, short, long string) *cobra.Command {
	c := &cobra.Command{Use: name + " --rule R --key K", Short: short, Long: long}
	f := c.Flags()
	var body adminapi.RefundRequest
	var release adminapi.ReleaseRequest
	f.StringVar(&body.Rule, "rule", "", "`NAME` of the rule")
	keyFlag(f, &body.Key)
	f.StringVar(&body.Tier, "tier", "", "use the counts of the tier `NAME`")
	cost := number{least: 1}
	if name == "refund" {
		c.Use += " --cost N"
		f.Var(&cost, "cost", "refund `N` units")
	}
	if name == "release" {
		c.Use += " --hold ID | --all"
		f.StringVar(&release.Hold, "hold", "", "`ID` of the hold, from key show")
		f.BoolVar(&release.All, "all", false, "release all holds of the key")
	}
	if name != "show" {
		reasonFlag(f, &body.Reason)
	}
	check := func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return words()(c, args)
		case body.Rule == "" || body.Key == "":
			return errors.New("want --rule and --key")
		case name == "refund" && !cost.given:
			return errors.New("want --cost N: how many units")
		case name == "release" && (release.Hold == "") == !release.All:
			return errors.New("want --hold ID or --all")
		}
		return nil
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		q := apiRequest{http.MethodPost, "/v1/keys/" + name, body.KeyRequest}
		if name == "refund" {
			body.Cost = cost.value
			q.body = body
		}
		if name == "release" {
			release.KeyRequest = body.KeyRequest
			q.body = release
			return exchange(ctx, a, q, printReleased)
		}
		return exchange(ctx, a, q, printKey)
	})
}

func shownKey(k rules.Key) string {
	switch k {
	case "":
		return ""
	case "-": // which stands for none in tables
		return `"-"`
	}
	return k.String()
}

func keyFlag(f *pflag.FlagSet, to *rules.Key) {
	var parts []string
	f.Func("key", "the `KEY`, as the rule's key expression makes it; if that is a list, one --key for each part, in order", func(part string) (err error) {
		if parts = append(parts, part); len(parts) == 1 {
			*to = rules.Key(part)
			return nil
		}
		*to, err = rules.JoinKey(parts...)
		return err
	})
}

// warnLocal says what it means that an answer is not by the store, if it is not.
func warnLocal(w io.Writer, s adminapi.CountedBy, meaning string) {
	if s.By != "" {
		fmt.Fprintf(w, "the store does not answer: %s; %s\n", plain(s.StoreError), meaning)
	}
}

func printKey(w io.Writer, k adminapi.KeyState) {
	warnLocal(w, k.CountedBy, "this is what the instance itself has counted and received, of its share of each limit")
	var lines facts
	lines.add("rule", shown(k.Rule))
	lines.add("key", shownKey(k.Key))
	lines.add("mode", shown(k.Mode))
	lines.add("tier", shown(k.Tier))
	if k.Override != nil {
		lines.add("override", shown(k.Override.ID)+": "+overrideWords(k.Override))
	}
	if p := k.Penalty; p != nil {
		text := spelling.Several(p.Violations, "violation") + ", " + spelling.Several(p.Bans, "ban") + " in a row"
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
	t := table{heads: []string{"TIER", "LIMIT", "USED", "HELD", "OF", "LEFT", "UNUSED IN", "LAST CHARGED", "EXPIRES IN"}}
	for _, l := range k.Limits {
		charged, expires, held := "", "", ""
		if l.Held > 0 {
			held = strconv.FormatInt(l.Held, 10)
		}
		if l.ChargedAgo != nil {
			charged = micros(*l.ChargedAgo) + " ago"
		}
		if l.ExpiresIn != nil {
			expires = micros(*l.ExpiresIn)
		}
		t.row(shown(l.Tier), shown(l.Limit), strconv.FormatInt(l.Used, 10), held, strconv.FormatInt(l.Capacity, 10), strconv.FormatInt(l.Remaining, 10), micros(l.ResetAfter), charged, expires)
	}
	t.print(w)
	printHolds(w, k.Limits)
}

// printHolds lists what requests in flight hold.
func printHolds(w io.Writer, limits []adminapi.KeyLimit) {
	t := table{heads: []string{"HOLD", "TIER", "LIMIT", "UNITS", "AGE", "RUNS OUT IN"}}
	held := false
	for _, l := range limits {
		for _, h := range l.Holds {
			held = true
			t.row(shown(h.Hold), shown(l.Tier), shown(l.Limit), strconv.FormatInt(h.Units, 10), micros(h.Age), micros(h.Left))
		}
	}
	if held {
		fmt.Fprintln(w)
		t.print(w)
	}
}

func printReleased(w io.Writer, r adminapi.Released) {
	fmt.Fprintln(w, "released: "+spelling.Several(r.Released, "hold"))
	printKey(w, r.KeyState)
}
