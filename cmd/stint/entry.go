package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

func printReach(w io.Writer, r adminapi.Reach) {
	if r.Pending != "" {
		fmt.Fprintln(w, plain(r.Pending))
	}
}

func end(e *rules.Note) string {
	if e.Until.IsZero() {
		return "without end"
	}
	return "until " + instant(e.Until)
}

// hint tells how to end an entry that does not end by itself.
func hint(w io.Writer, e *rules.Note, effect adminapi.Effect, command string) {
	if e.Until.IsZero() {
		fmt.Fprintf(w, "it has no end: `stint %s %s` ends it; --for 30m or --until gives one\n", command, shown(e.ID))
	}
	if effect.Problem != "" {
		fmt.Fprintf(w, "it has no effect now: %s\n", plain(effect.Problem))
	}
	printReach(w, effect.Reach)
}

// entryHeads are the columns that every entry has after its own.
var entryHeads = []string{"UNTIL", "AUTHOR", "AT", "REASON", "PROBLEM"}

func entryCells(e *rules.Note, effect adminapi.Effect) []string {
	return []string{instant(e.Until), shown(e.Author), instant(e.At), plain(e.Reason), plain(effect.Problem)}
}

func termFlags(f *pflag.FlagSet, t *adminapi.Term) {
	f.StringVar(&t.For, "for", "", "end after `DURATION`, such as 30m or 7d")
	f.StringVar(&t.Until, "until", "", "end at `TIME`, such as 2030-01-31T18:00:00Z")
	reasonFlag(f, &t.Reason)
}

func checkTerm(t *adminapi.Term) error {
	if t.For != "" && t.Until != "" {
		return errors.New("want one of --for and --until")
	}
	if t.Until == "" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, t.Until); err != nil {
		return fmt.Errorf("--until %q: want a time such as 2030-01-31T18:00:00Z, or with +02:00 in place of Z", t.Until)
	}
	return nil
}

func reasonFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "reason", "", "the reason, a line of `TEXT` for others to read")
}

func removeCommand[T any](short, long, path string, tell func(io.Writer, T)) *cobra.Command {
	c := &cobra.Command{Use: "remove ID [--reason TEXT]", Short: short, Long: long, DisableFlagsInUseLine: true}
	var reason string
	reasonFlag(c.Flags(), &reason)
	return adminCommand(c, words("ID"), func(ctx context.Context, a *admin, words []string) error {
		return exchange(ctx, a, apiRequest{method: http.MethodDelete, path: removal(path, words[0], reason)}, tell)
	})
}

func removal(path, id, reason string) string {
	path = within(path, id)
	if reason != "" {
		path += "?" + url.Values{"reason": {reason}}.Encode()
	}
	return path
}

func within(path, segment string) string { return path + "/" + url.PathEscape(segment) }
