package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// listed is an entry of a list as the API tells it.
type listed struct {
	entry
	Network string `json:"network"`
	Match   string `json:"match"`
}

// words is the entry in a line.
func (e *listed) words() string {
	return list(named("network", shown(e.Network)), named("match", plain(e.Match)), e.end())
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
	type entries struct {
		Entries []listed `json:"entries"`
	}
	return exchange(ctx, a, out, question{method: http.MethodGet, path: l.path}, func(w io.Writer, all entries) {
		if len(all.Entries) == 0 {
			fmt.Fprintln(w, "no entries but the file's")
			return
		}
		t := table{heads: append([]string{"ID", "NETWORK", "MATCH"}, entryHeads...)}
		for _, e := range all.Entries {
			t.row(append([]string{shown(e.ID), shown(e.Network), plain(e.Match)}, e.cells()...)...)
		}
		t.print(w)
	})
}

func (l runList) add(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags(l.name + " add")
	a := adminFlags(f, errs)
	var body struct {
		Network string `json:"network,omitempty"`
		Match   string `json:"match,omitempty"`
		term
	}
	f.StringVar(&body.Network, "network", "", "`NETWORK` such as 192.0.2.0/24, or an address")
	f.StringVar(&body.Match, "match", "", "`EXPRESSION` as in a rules file")
	body.term.flags(f)
	if _, err := parseMixed(f, args, l.about, out); err != nil {
		return err
	}
	if (body.Network == "") == (body.Match == "") {
		return wrong(f, "want one of --network and --match")
	}
	if err := body.term.check(f); err != nil {
		return err
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{http.MethodPost, l.path, body}, func(w io.Writer, e listed) {
		fmt.Fprintf(w, "%s %s: %s\n", l.name, shown(e.ID), e.words())
		e.hint(w, l.name+" remove")
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
	return exchange(ctx, a, out, question{method: http.MethodDelete, path: removal(l.path, words[0], reason)}, func(w io.Writer, e listed) {
		fmt.Fprintf(w, "removed from the %s %s: %s\n", l.name, shown(e.ID), e.words())
		e.tell(w)
	})
}
