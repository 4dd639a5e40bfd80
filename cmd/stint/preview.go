package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
)

func rulesPreview() *cobra.Command {
	c := &cobra.Command{
		Use: "preview FILE", Short: "try a file on recent requests",
		Long: `Replays the requests of the instance's last 5 minutes under the rules in force and under those
of a file, and prints what each refuses. Both begin with empty counts. Nothing is changed.`,
		Example:               "  stint rules pull > fleet.yaml\n  stint rules preview fleet.yaml",
		ValidArgsFunction:     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
	}
	return adminCommand(c, words("FILE"), func(ctx context.Context, a *admin, words []string) error {
		file, err := readPulled(words[0])
		if err != nil {
			return fmt.Errorf("rules preview: %w", err)
		}
		err = exchange(ctx, a, apiRequest{http.MethodPost, "/v1/rules/preview", adminapi.PreviewRequest{Text: file.text}}, printPreview)
		return file.inFile(err)
	})
}

// wouldRefuse is how many requests a rule refused. Those of a rule in shadow mode are not among the
// refused, and passed.
func wouldRefuse(n int64, inShadow bool) string {
	text := strconv.FormatInt(n, 10)
	if inShadow {
		text += " (shadow)"
	}
	return text
}

func printPreview(w io.Writer, p adminapi.Preview) {
	of := "all clients"
	if p.Share > 1 {
		of = fmt.Sprintf("1 in %d clients", p.Share)
	}
	if p.Requests == 0 {
		fmt.Fprintln(w, "no requests in the last minutes")
		return
	}
	fmt.Fprintf(w, "%s of %s, since %s\n", spelling.Several(p.Requests, "request"), of, instant(p.From))
	if p.Partial {
		fmt.Fprintln(w, "not all that were recorded: it took too long, or there were too many keys")
	}
	if len(p.Missing) > 0 {
		fmt.Fprintf(w, "missing in all of them, because it was not recorded: %s\n", plain(strings.Join(p.Missing, ", ")))
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	t := table{heads: []string{"REQUESTS", "NOW", "THEN"}}
	t.row("allowed", number(p.Now.Allowed), number(p.Then.Allowed))
	t.row("refused", number(p.Now.Refused), number(p.Then.Refused))
	for _, r := range p.Rules {
		t.row("  by "+shown(r.Name), wouldRefuse(r.Now, r.ShadowNow), wouldRefuse(r.Then, r.ShadowThen))
	}
	t.print(w)
	if len(p.Sample) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = table{heads: []string{"AT", "CLIENT", "METHOD", "PATH", "NOW", "THEN", "RULE"}}
	for _, s := range p.Sample {
		t.row(instant(s.At), plain(s.Client), plain(s.Method), plain(s.Path), plain(s.Now), plain(s.Then), plain(s.Rule))
	}
	t.print(w)
}
