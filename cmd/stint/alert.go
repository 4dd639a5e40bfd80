package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
)

const silencesPath = "/v1/silences"

func alertCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "alert", Short: "list alerts and silence them",
		Long: "Lists the alerts of the rules, silences them, and tests the webhooks.",
	}, alertList(), alertSilences(), alertSilence(), alertUnsilence(), alertTest())
}

func alertList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "list the alerts and their states",
		Long: `Lists the alerts of the rules and their states. It exits with 1 if an alert fires that is not
silenced.`,
	}
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		return inspect(ctx, a, apiRequest{method: http.MethodGet, path: "/v1/alerts"}, printAlerts, func(all adminapi.Alerts) bool {
			return !slices.ContainsFunc(all.Alerts, func(a adminapi.Alert) bool { return a.State == "firing" && a.Silence == "" })
		})
	})
}

func printAlerts(w io.Writer, all adminapi.Alerts) {
	if len(all.Alerts) == 0 {
		fmt.Fprintln(w, "the rules have no alerts")
		return
	}
	t := table{heads: []string{"ALERT", "STATE", "SINCE", "SEVERITY", "VALUE", "WHEN", "SILENCE"}}
	for _, a := range all.Alerts {
		since, value := "", ""
		if a.Since != nil {
			since = instant(*a.Since)
		}
		if a.Value != nil {
			value = plain(a.Measured) + " = " + strconv.FormatFloat(*a.Value, 'g', 4, 64)
		}
		when := plain(a.When)
		if a.For != "" {
			when += " for " + a.For
		}
		state := plain(a.State)
		if a.Unknown && a.State == "firing" {
			state += " (when it was last known)"
		}
		t.row(shown(a.Name), state, since, shown(a.Severity), value, when, shown(a.Silence))
	}
	t.print(w)
	for _, a := range all.Alerts {
		for _, k := range a.Keys {
			fmt.Fprintf(w, "%s: %s has used %.0f %% of a limit of %s, %s\n", shown(a.Name), shownKey(k.Key), k.Usage*100, shown(k.Rule), instant(k.At))
		}
		if d := a.Delivered; d != nil {
			fmt.Fprintf(w, "%s: sent to %d of %s, %s\n", shown(a.Name), d.By, spelling.Several(d.Of, "webhook"), instant(d.At))
		}
		for _, f := range a.Past {
			if f.Resolved != nil {
				fmt.Fprintf(w, "%s: fired %s, for %s\n", shown(a.Name), instant(f.Fired), f.Resolved.Sub(f.Fired).Round(time.Second))
			}
		}
		if a.Error != "" {
			fmt.Fprintf(w, "%s: not sent: %s\n", shown(a.Name), plain(a.Error))
		}
	}
	if all.Evaluator == "" {
		fmt.Fprintln(w, "no instance evaluates them now")
	}
}

func silenceWords(s *adminapi.Silence) string {
	what := "all alerts"
	if s.Alert != "" {
		what = shown(s.Alert)
	}
	return what + " until " + instant(s.Until)
}

func alertSilences() *cobra.Command {
	c := &cobra.Command{Use: "silences", Short: "list the silences in force", Long: "Lists the silences in force."}
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: silencesPath}, printSilences)
	})
}

func printSilences(w io.Writer, all adminapi.Silences) {
	if len(all.Silences) == 0 {
		fmt.Fprintln(w, "no silences")
		return
	}
	t := table{heads: []string{"ID", "ALERT", "UNTIL", "AUTHOR", "REASON", "PROBLEM"}}
	for _, s := range all.Silences {
		t.row(shown(s.ID), shown(s.Alert), instant(s.Until), shown(s.Author), plain(s.Reason), plain(s.Problem))
	}
	t.print(w)
}

func alertSilence() *cobra.Command {
	c := &cobra.Command{
		Use:   "silence (ALERT | --all) (--for D | --until T) [--reason TEXT]",
		Short: "send no messages about an alert for a while",
		Long: `Sends no messages about an alert, or about all alerts, until the silence ends. If the alert
still fires then, a message is sent. A new silence replaces the alert's old one.`,
		Example: `  stint alert silence logins-blocked --for 2h --reason "ticket 4711"
  stint alert silence --all --until 2030-01-31T18:00:00Z`,
		DisableFlagsInUseLine: true,
	}
	var body adminapi.SilenceRequest
	all, f := false, c.Flags()
	f.BoolVar(&all, "all", false, "silence all alerts")
	termFlags(f, &body.Term)
	check := func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 1 || (len(args) == 1) == all:
			return errors.New("want the name of an alert, or --all")
		case body.For == "" && body.Until == "":
			return errors.New("want --for or --until: a silence must have an end")
		}
		return checkTerm(&body.Term)
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, args []string) error {
		if !all {
			body.Alert = args[0]
		}
		return exchange(ctx, a, apiRequest{http.MethodPost, silencesPath, body}, func(w io.Writer, s adminapi.Silence) {
			fmt.Fprintf(w, "silence %s: %s\n", shown(s.ID), silenceWords(&s))
			printReach(w, s.Reach)
		})
	})
}

func alertUnsilence() *cobra.Command {
	c := removeCommand("end a silence", "Ends the silence with an ID.", silencesPath, func(w io.Writer, s adminapi.Silence) {
		fmt.Fprintf(w, "removed silence %s: %s\n", shown(s.ID), silenceWords(&s))
		printReach(w, s.Reach)
	})
	c.Use = "unsilence ID [--reason TEXT]"
	return c
}

func alertTest() *cobra.Command {
	c := &cobra.Command{
		Use: "test", Short: "send a test to every webhook",
		Long: "Makes the server send a test to every webhook. It exits with 1 if one did not accept it.",
	}
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		return inspect(ctx, a, apiRequest{method: http.MethodPost, path: "/v1/alerts/test"}, printAlertTest, func(test adminapi.AlertTest) bool {
			return !slices.ContainsFunc(test.Webhooks, func(w adminapi.WebhookTest) bool { return w.Error != "" })
		})
	})
}

func printAlertTest(w io.Writer, test adminapi.AlertTest) {
	if len(test.Webhooks) == 0 {
		fmt.Fprintln(w, "there are no webhooks: the section server has none")
		return
	}
	t := table{heads: []string{"WEBHOOK", "RESULT"}}
	for _, h := range test.Webhooks {
		result := "accepted"
		if h.Error != "" {
			result = "failed: " + plain(h.Error)
		}
		t.row(shown(h.Name), result)
	}
	t.print(w)
}
