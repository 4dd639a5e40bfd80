package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/stintdev/stint/server/adminapi"
)

const explainAbout = `Says what would be decided about a request now, and why. Nothing is taken.

    stint explain --client 192.0.2.1 --method POST --path /login --header "X-User: ann"
    stint explain --operation export --attr user=ann --attr size=20 --cost 5

    stint explain --config stint.yaml --client 192.0.2.1

With any of --method, --path, --host, --route and --header there is a request, of GET and /
where not given. --config asks no server, but a file, or a directory of such files:
nothing is counted there yet, and nothing changed at run time.
`

func explain(ctx context.Context, args []string, out, errs io.Writer) error {
	f := flags("explain")
	a := adminFlags(f, errs)
	body, finish := askedFlags(f)
	config := f.String("config", "", "`FILE` with rules, or a directory of such files, in place of a server")
	if _, err := parseMixed(f, args, explainAbout, out); err != nil {
		return err
	}
	if err := finish(); err != nil {
		return err
	}
	if *config != "" {
		if err := a.unused(f); err != nil {
			return err
		}
		return explainFile(ctx, a, *config, body, out)
	}
	if err := a.open(f); err != nil {
		return err
	}
	return exchange(ctx, a, out, question{http.MethodPost, "/v1/explain", body}, tellExplanation)
}

// askedFlags adds to f what makes a check request. finish completes it, when the
// flags are parsed.
func askedFlags(f *flag.FlagSet) (q *adminapi.ExplainRequest, finish func() error) {
	q = &adminapi.ExplainRequest{}
	r := &adminapi.HTTPRequest{Method: http.MethodGet, Path: "/"}
	f.StringVar(&q.Operation, "operation", "", "`NAME` of the operation")
	f.StringVar(&q.Client, "client", "", "`IP` of the client")
	f.Func("method", "`METHOD` of the request", func(s string) error { r.Method = s; return nil })
	f.Func("path", "`PATH` of the request, with its query", func(s string) error { r.Path = s; return nil })
	f.StringVar(&r.Host, "host", "", "`NAME` of the host that the request is for")
	f.StringVar(&r.Route, "route", "", "`NAME` of the route that the request takes (default the one that leads there)")
	f.Func("header", "header of the request, as `\"Name: value\"`; may be given several times", func(s string) error { return addHeader(r, s) })
	f.Func("attr", "attribute as `NAME=VALUE`, where a number, true, false and null are that and all\nelse is text; may be given several times", func(s string) error { return addValue(&q.Attrs, s) })
	f.Func("claim", "claim of the client's token as `NAME=VALUE`, like --attr, in place of those of a token", func(s string) error { return addValue(&q.Claims, s) })
	cost := number{}
	f.Var(&cost, "cost", "`N` units that are asked for (default 1)")
	return q, func() error {
		if _, err := netip.ParseAddr(q.Client); q.Client != "" && err != nil {
			return wrong(f, "--client %q: want an IP address such as 192.0.2.1", q.Client)
		}
		if cost.given {
			q.Cost = &cost.value
		}
		if g := given(f); g["method"] || g["path"] || g["host"] || g["route"] || g["header"] {
			q.Request = r
		}
		return nil
	}
}

// addHeader adds a line such as "Name: value".
func addHeader(r *adminapi.HTTPRequest, line string) error {
	name, value, ok := strings.Cut(line, ":")
	if name = strings.TrimSpace(name); !ok || name == "" {
		return errors.New(`want "Name: value"`)
	}
	if r.Headers == nil {
		r.Headers = map[string][]string{}
	}
	name = http.CanonicalHeaderKey(name)
	r.Headers[name] = append(r.Headers[name], strings.TrimSpace(value))
	return nil
}

// addValue adds to a map what text, NAME=VALUE, says.
func addValue(to *map[string]any, text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("want NAME=VALUE")
	}
	if _, twice := (*to)[name]; twice {
		return fmt.Errorf("%q is given twice", name)
	}
	if *to == nil {
		*to = map[string]any{}
	}
	(*to)[name] = attrValue(value)
	return nil
}

// attrValue is a number, true, false or null if text is that in JSON, and else
// text. A number goes on as it is written.
func attrValue(text string) any {
	var value any
	if json.Unmarshal([]byte(text), &value) == nil {
		switch value.(type) {
		case float64:
			return json.Number(strings.TrimSpace(text))
		case bool, nil:
			return value
		}
	}
	return text
}

func tellExplanation(w io.Writer, e adminapi.Explanation) {
	fmt.Fprintln(w, list(shown(e.Outcome), named("rule", shown(e.Rule))))
	for _, line := range e.Words {
		fmt.Fprintln(w, plain(line))
	}
}
