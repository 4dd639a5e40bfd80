package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/server/adminapi"
)

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "audit [--limit N]", Short: "list who changed what, in the whole fleet",
		Long: `Lists the last changes made through the admin API of any instance of the fleet, newest first.
The fleet keeps at most 1,000 changes for 14 days. --json also shows the state before and after
each.`,
		Example:               "  stint audit --limit 20",
		DisableFlagsInUseLine: true,
	}
	limit := number{least: 1}
	c.Flags().Var(&limit, "limit", "show the newest `N` changes (default 50)")
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		q := url.Values{}
		limit.into(q, "limit")
		return exchange(ctx, a, apiRequest{method: http.MethodGet, path: withQuery("/v1/audit", q)}, printAudit)
	})
}

func printAudit(w io.Writer, all adminapi.AuditLog) {
	if len(all.Entries) == 0 {
		fmt.Fprintln(w, "no changes in the last 14 days")
		return
	}
	t := table{heads: []string{"AT", "WHO", "FROM", "HOST", "ACTION", "WHAT", "REASON", "DECISION", "PENDING"}}
	for _, e := range all.Entries {
		t.row(instant(e.At), shown(e.Who), plain(e.From), plain(e.Host), plain(e.Action), plain(e.What), plain(e.Reason), plain(e.Decision), plain(e.Pending))
	}
	t.print(w)
}
