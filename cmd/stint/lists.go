package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/server/adminapi"
)

func safelistCommand() *cobra.Command {
	return listCommand("safelist", "requests that are never limited")
}

func blocklistCommand() *cobra.Command {
	return listCommand("blocklist", "requests that are always refused")
}

func listCommand(name, what string) *cobra.Command {
	path := "/v1/lists/" + name
	return group(&cobra.Command{
		Use: name, Short: what,
		Long: "Lists " + what + ", by network or expression, in addition to\nthe entries of the file, which are not shown here.",
	}, listList(path), listAdd(name, path), removeCommand("remove an entry", "Removes the entry with an ID.", path, func(w io.Writer, e adminapi.Listed) {
		fmt.Fprintf(w, "removed from the %s %s: %s\n", name, shown(e.ID), listedWords(&e))
		printReach(w, e.Reach)
	}))
}

func listedWords(e *adminapi.Listed) string {
	return list(named("network", shown(e.Network)), named("match", plain(e.Match)), end(&e.Note))
}

func listList(path string) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "list the entries", Long: "Lists the entries added at run time."}
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: path}, func(w io.Writer, all adminapi.List) {
			if len(all.Entries) == 0 {
				fmt.Fprintln(w, "no entries but the file's")
				return
			}
			t := table{heads: append([]string{"ID", "NETWORK", "MATCH"}, entryHeads...)}
			for _, e := range all.Entries {
				t.row(append([]string{shown(e.ID), shown(e.Network), plain(e.Match)}, entryCells(&e.Note, e.Effect)...)...)
			}
			t.print(w)
		})
	})
}

func listAdd(name, path string) *cobra.Command {
	c := &cobra.Command{
		Use: "add (--network N | --match EXPR) [--for D | --until T] [--reason TEXT]", Short: "add an entry",
		Long: "Adds a network or an expression, until the entry is removed or ends.",
		Example: "  stint " + name + ` add --network 192.0.2.0/24 --reason office
  stint ` + name + ` add --match 'request.path == "/x"' --for 1h`,
		DisableFlagsInUseLine: true,
	}
	var body adminapi.ListRequest
	c.Flags().StringVar(&body.Network, "network", "", "clients in `NETWORK`, such as 192.0.2.0/24, or at one address")
	c.Flags().StringVar(&body.Match, "match", "", "requests for which `EXPRESSION` is true, as in a rules file")
	termFlags(c.Flags(), &body.Term)
	check := func(c *cobra.Command, args []string) error {
		var err error
		if (body.Network == "") == (body.Match == "") {
			err = errors.New("want one of --network and --match")
		}
		return cmp.Or(words()(c, args), err, checkTerm(&body.Term))
	}
	return adminCommand(c, check, func(ctx context.Context, a *admin, _ []string) error {
		return exchange(ctx, a, apiRequest{http.MethodPost, path, body}, func(w io.Writer, e adminapi.Listed) {
			fmt.Fprintf(w, "%s %s: %s\n", name, shown(e.ID), listedWords(&e))
			hint(w, &e.Note, e.Effect, name+" remove")
		})
	})
}
