package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "explain", Short: "show what would be decided about a request, and why",
		Long: `Shows what would be decided about a request now, and why. It charges nothing.

With any of --method, --path, --host, --route and --header, it is an HTTP request, by default
GET /. With --config, the rules come from a file or a directory instead of a server: all counts
are then 0, and nothing was changed at run time.`,
		Example: `  stint explain --client 192.0.2.1 --method POST --path /login --header "X-User: ann"
  stint explain --operation export --attr user=ann --attr size=20 --cost 5
  stint explain --domain shop --descriptor user=ann,path=/cart --descriptor plan=gold
  stint explain --config stint.yaml --client 192.0.2.1`,
	}
	body, finish := explainFlags(c)
	file := c.Flags().String("config", "", "use the rules in `FILE`, or in a directory of such files, instead of a server's")
	fileFlags(c, "config")
	a := adminFlags(c)
	c.Args = words()
	c.RunE = func(c *cobra.Command, _ []string) error {
		a.out, a.errs = c.OutOrStdout(), c.ErrOrStderr()
		if err := finish(); err != nil {
			return errUsage{err}
		}
		if *file != "" {
			for _, name := range []string{"admin", "token-file", "ca", "cert", "key-file", "timeout"} {
				if c.Flags().Changed(name) {
					return errUsage{fmt.Errorf("--%s is for a server, and --config asks none: want one of them", name)}
				}
			}
			return explainFile(c.Context(), a, *file, body)
		}
		if err := a.open(); err != nil {
			return err
		}
		return exchange(c.Context(), a, apiRequest{http.MethodPost, "/v1/explain", body}, func(w io.Writer, e adminapi.Explanation) { printExplanation(w, body, e) })
	}
	return c
}

// explainFlags adds the flags of the request to explain, which finish completes after parsing.
func explainFlags(c *cobra.Command) (body *adminapi.ExplainRequest, finish func() error) {
	f := c.Flags()
	f.SortFlags = false
	body = &adminapi.ExplainRequest{}
	r := &adminapi.HTTPRequest{}
	f.StringVar(&body.Operation, "operation", "", "`NAME` of the operation")
	f.StringVar(&body.Client, "client", "", "`IP` address of the client")
	f.StringVar(&r.Method, "method", http.MethodGet, "`METHOD` of the request")
	f.StringVar(&r.Path, "path", "/", "`PATH` of the request, with its query")
	f.StringVar(&r.Host, "host", "", "`NAME` of the request's host")
	f.StringVar(&r.Route, "route", "", "`NAME` of the request's route (default by its host and path)")
	f.Func("header", "header of the request, as `\"Name: value\"`; may be given several times", func(s string) error { return addHeader(r, s) })
	f.Func("attr", "attribute `NAME=VALUE`; a number, true, false or null keeps its type, any other value is text; may be given several times", func(s string) error { return addValue(&body.Attrs, s) })
	f.StringVar(&body.Domain, "domain", "", "domain `NAME` of a call of Envoy's rate limit service")
	f.Func("descriptor", "descriptor of such a call: its `ENTRIES`, such as user=ann,path=/cart, with \\, for a comma in a value; may be given several times", func(s string) error { return addDescriptor(body, s) })
	f.Func("claim", "claim `NAME=VALUE`, like --attr, instead of the claims of a token", func(s string) error { return addValue(&body.Claims, s) })
	cost := number{}
	f.Var(&cost, "cost", "ask for `N` units (default 1)")
	return body, func() error {
		if _, err := address.Parse(body.Client); body.Client != "" && err != nil {
			return fmt.Errorf("--client %q: %w", body.Client, err)
		}
		if (body.Domain == "") != (body.Descriptors == nil) {
			return errors.New("--domain and --descriptor: want both")
		}
		if cost.given {
			body.Cost = &cost.value
		}
		if f.Changed("method") || f.Changed("path") || f.Changed("host") || f.Changed("route") || f.Changed("header") {
			body.Request = r
		}
		return nil
	}
}

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

func addDescriptor(to *adminapi.ExplainRequest, text string) error {
	const comma = "\x00"
	var d adminapi.Descriptor
	for entry := range strings.SplitSeq(strings.ReplaceAll(text, `\,`, comma), ",") {
		key, value, _ := strings.Cut(strings.ReplaceAll(entry, comma, ","), "=")
		if key == "" {
			return errors.New("want KEY=VALUE,KEY=VALUE")
		}
		d.Entries = append(d.Entries, adminapi.DescriptorEntry{Key: key, Value: value})
	}
	to.Descriptors = append(to.Descriptors, d)
	return nil
}

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

// attrValue is a number, as written, true, false or null where text is JSON of that; else text.
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

func printExplanation(w io.Writer, of *adminapi.ExplainRequest, e adminapi.Explanation) {
	fmt.Fprintln(w, list(shown(e.Outcome), named("rule", shown(e.Rule))))
	for _, line := range e.Words {
		fmt.Fprintln(w, plain(line))
	}
	if flags := missingFlags(of, e.Rules); flags != "" {
		fmt.Fprintf(w, "Rules were skipped because this call does not say all of the request: add %s.\n", flags)
	}
}

// missingFlags are the flags that were not given and that rules which do not apply need.
func missingFlags(of *adminapi.ExplainRequest, all []adminapi.ExplainedRule) string {
	needed := func(variable string) bool {
		return slices.ContainsFunc(all, func(r adminapi.ExplainedRule) bool {
			return !r.Applies && strings.Contains(r.Why, " needs ") && strings.Contains(r.Why, variable)
		})
	}
	var flags []string
	if of.Client == "" && of.Domain == "" && needed("client.ip") {
		flags = append(flags, "--client")
	}
	if of.Request == nil && of.Domain == "" && of.Operation == "" && needed("request.") {
		flags = append(flags, "--method", "--path or --header")
	}
	return strings.Join(flags, ", ")
}

func explainFile(ctx context.Context, a *admin, path string, body *adminapi.ExplainRequest) error {
	settings, set, err := readConfig(path)
	if err != nil {
		return err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	in, err := server.ReadInput(data)
	if err != nil {
		return err
	}
	s, err := offline(settings, server.Config{Rules: set})
	if err != nil {
		return err
	}
	defer s.Close()
	explained, err := s.Explain(ctx, in)
	if err != nil {
		return err
	}
	if data, err = json.Marshal(explained); err != nil {
		return err
	}
	return show(a, data, func(w io.Writer, e adminapi.Explanation) {
		fmt.Fprintf(w, "by %s alone: nothing is counted here, and nothing was changed at run time\n", plain(path))
		printExplanation(w, body, e)
	})
}

// offline is a server that nobody reaches, with the settings by which rules see requests.
func offline(from config.Settings, c server.Config) (*server.Server, error) {
	c.Settings = config.Default()
	c.Settings.DecisionTimeout = time.Minute // nobody waits
	c.Settings.Secrets, c.Settings.Lists, c.Settings.JWT, c.Settings.AllowAmbiguous = from.Secrets, from.Lists, from.JWT, from.AllowAmbiguous
	c.Settings.UpstreamProxy = from.UpstreamProxy // for lists
	for _, r := range from.Routes {
		r.TLS = nil
		c.Settings.Routes = append(c.Settings.Routes, r)
	}
	s := server.New(c)
	if err := s.Open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
