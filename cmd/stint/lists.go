package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
)

const listAbout = `%[2]s, on top of the file.

    stint %[1]s list
    stint %[1]s add (--network N | --match EXPR) [--for D | --until T] [--reason TEXT]
    stint %[1]s remove ID [--reason TEXT]

list shows what was added while it runs; the file's own entries are in the file.
`

// listCommand is "stint safelist" and "stint blocklist".
func listCommand(ctx context.Context, name, purpose string, args []string, out, errs io.Writer) error {
	l := runList{name: name, path: "/v1/lists/" + name, about: fmt.Sprintf(listAbout, name, purpose)}
	return choose(ctx, name, l.about, []command{{"list", l.list}, {"add", l.add}, {"remove", l.remove}}, args, out, errs)
}

// runList is the safelist or the blocklist.
type runList struct{ name, path, about string }

// listedWords is the entry in a line.
func listedWords(e *adminapi.Listed) string {
	return list(named("network", shown(e.Network)), named("match", plain(e.Match)), end(&e.Note))
}

func (l runList) list(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags(l.name + " list")
	a := adminFlags(f, errs)
	if _, err := parseMixed(f, args, l.about, out); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{method: http.MethodGet, path: l.path}, func(w io.Writer, all adminapi.List) {
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
}

func (l runList) add(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags(l.name + " add")
	a := adminFlags(f, errs)
	var body adminapi.ListRequest
	f.StringVar(&body.Network, "network", "", "`NETWORK` such as 192.0.2.0/24, or an address")
	f.StringVar(&body.Match, "match", "", "`EXPRESSION` as in a rules file")
	termFlags(f, &body.Term)
	if _, err := parseMixed(f, args, l.about, out); err != nil {
		return err
	}
	if (body.Network == "") == (body.Match == "") {
		return wrong(f, "want one of --network and --match")
	}
	if err := checkTerm(f, &body.Term); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{http.MethodPost, l.path, body}, func(w io.Writer, e adminapi.Listed) {
		fmt.Fprintf(w, "%s %s: %s\n", l.name, shown(e.ID), listedWords(&e))
		hint(w, &e.Note, e.Effect, l.name+" remove")
	})
}

func (l runList) remove(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags(l.name + " remove")
	a := adminFlags(f, errs)
	var reason string
	reasonFlag(f, &reason)
	words, err := parseMixed(f, args, l.about, out, "ID")
	if err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{method: http.MethodDelete, path: removal(l.path, words[0], reason)}, func(w io.Writer, e adminapi.Listed) {
		fmt.Fprintf(w, "removed from the %s %s: %s\n", l.name, shown(e.ID), listedWords(&e))
		tellReach(w, e.Reach)
	})
}
