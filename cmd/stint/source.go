package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
)

const sourcePath = "/v1/rules/source"

// orderWords is the order in a line.
func orderWords(o *adminapi.Order) string {
	return list("ordered by "+shown(o.Who)+" at "+instant(o.At), plain(o.Reason)) + "; `stint rules source fleet` ends it"
}

// rulesSource shows the source, or sets it.
func rulesSource(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("rules source")
	a := adminFlags(f, errs)
	var reason string
	reasonFlag(f, &reason)
	words, err := parseWords(f, args, rulesAbout, out)
	switch {
	case err != nil:
		return err
	case len(words) > 1:
		return wrong(f, "unexpected argument %q", words[1])
	case len(words) == 1 && words[0] != "file" && words[0] != "fleet":
		return wrong(f, "%q: want file or fleet", words[0])
	case len(words) == 0 && reason != "":
		return wrong(f, "--reason goes with a change")
	}
	if err := a.open(f); err != nil {
		return err
	}
	q := question{method: http.MethodGet, path: sourcePath}
	if len(words) == 1 {
		q.method, q.body = http.MethodPut, adminapi.SourceRequest{Source: words[0], Reason: reason}
	}
	return exchange(ctx, a, out, q, func(w io.Writer, s adminapi.Source) {
		from := "its file"
		if s.Source == "fleet" {
			from = fmt.Sprintf("the fleet, number %d", s.Number)
		}
		fmt.Fprintf(w, "rules of %s, version %s\n", from, shown(s.Version))
		if s.Ordered != nil {
			fmt.Fprintln(w, orderWords(s.Ordered))
		}
	})
}
