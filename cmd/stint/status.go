package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "show the state of an instance, and what looks wrong",
		Long: `Shows the state of an instance, its rules, and what looks wrong. It exits with 1 if the store
does not answer. With --settings, it shows the settings in force and their sources.`,
	}
	settings := c.Flags().Bool("settings", false, "show the settings in force, each with its value and its file, variable or flag")
	return adminCommand(c, nil, func(ctx context.Context, a *admin, _ []string) error {
		if *settings {
			return exchange(ctx, a, apiRequest{method: http.MethodGet, path: "/v1/settings"}, printSettings)
		}
		return inspect(ctx, a, apiRequest{method: http.MethodGet, path: "/v1/status"}, printStatus, func(s adminapi.Status) bool { return s.Store.OK })
	})
}

func printSettings(w io.Writer, all adminapi.Settings) {
	var lines facts
	for _, s := range all.Settings {
		from := "by default"
		if s.From != "" {
			from = "from " + s.From
		}
		lines.add(plain(s.Path), plain(s.Value)+"  ("+from+")")
	}
	lines.print(w)
}

func printStatus(w io.Writer, s adminapi.Status) {
	var lines facts
	lines.add("program", plain(s.Program))
	lines.add("started", instant(s.Started))
	lines.add("rules", rulesWords(&s.Rules))
	if !s.Rules.Enabled {
		lines.add("", "limiting is off: everything passes; see `stint switch`")
	}
	if o := s.Rules.Ordered; o != nil {
		lines.add("", orderWords(o))
	}
	if r := s.Rules.Refused; r != nil {
		lines.add("refused", instant(r.At)+": "+r.Error)
	}
	lines.add("controls", controlsWords(&s.Controls))
	if s.Controls.StateError != "" {
		lines.add("", "the state for the next start cannot be written to state_dir: "+s.Controls.StateError)
	}
	for _, p := range s.Controls.Problems {
		lines.add("", shown(p.ID)+" has no effect: "+p.Text)
	}
	for _, p := range s.Controls.Pending {
		lines.add("pending", list(instant(p.At)+" "+plain(p.Action)+" by "+shown(p.Who), plain(p.Reason))+": in force only here until the store is back")
	}
	lines.add("store", storeWords(&s.Store))
	lines.add("namespace", shown(s.Store.Namespace))
	if us := s.Store.ClockAhead; us != nil {
		if ahead := time.Duration(*us) * time.Microsecond; ahead.Abs() >= adminapi.ClockApart {
			where := "AHEAD of"
			if ahead < 0 {
				where = "BEHIND"
			}
			lines.add("clock", fmt.Sprintf("%s %s the store's clock, by which bans and overrides expire", ahead.Abs().Round(time.Second), where))
		}
	}
	lines.add("decides", decidesWords(&s.Store))
	if s.Store.Breaker != "" {
		lines.add("breaker", plain(s.Store.Breaker)+", "+spelling.Several(s.Store.Instances, "instance"))
	}
	if m := s.Memory; m.Bytes > 0 { // of an instance that tells
		lines.add("memory", fmt.Sprintf("at most %s of %s (%s)", config.ByteSize(m.Sum), config.ByteSize(m.Bytes), plain(m.From)))
	}
	if s.Store.Listening != nil && !*s.Store.Listening {
		lines.add("denials", "not remembered: other instances cannot tell this one what they reset or lift")
	}
	for _, f := range s.Findings {
		lines.add("finding", plain(f.Code)+" "+located(f.Where, f.Text))
	}
	lines.print(w)
}

func rulesWords(r *adminapi.RulesStatus) string {
	source := plain(r.Source)
	switch r.Source {
	case "file":
		source = "from its file"
	case "fleet":
		source = fmt.Sprintf("from the fleet, number %d", r.Number)
	}
	return fmt.Sprintf("%s, version %s, %s, taken %s", spelling.Several(r.Count, "rule"), shown(r.Version), source, instant(r.Taken))
}

func decidesWords(s *adminapi.StoreStatus) string {
	if s.Decides != "on_store_error" {
		return "the " + plain(s.Decides)
	}
	if s.Instances > 1 {
		return fmt.Sprintf("each rule's on_store_error; local is one of %d shares of each limit", s.Instances)
	}
	return "each rule's on_store_error; local is the whole limit, because no other instance is known"
}

func controlsWords(c *adminapi.ControlsStatus) string {
	text := fmt.Sprintf("version %d", c.Number)
	switch c.Source {
	case "state_dir":
		var read time.Time
		if c.Read != nil {
			read = *c.Read
		}
		text += ", KEPT in state_dir, read from the store " + instant(read) + ": the store was not read since the start"
	case "nowhere":
		text = "NOT READ since the start: bans, lists, switches and pushed rules of the fleet are not in force here"
	}
	return text
}

func storeWords(s *adminapi.StoreStatus) string {
	text := shown(s.Kind)
	if !s.Shared {
		text += " of this instance only"
	}
	if s.OK {
		text += ", answers"
	} else {
		text += ", DOES NOT ANSWER"
		if s.Down > 0 {
			text += ", away for " + limittext.Duration(time.Duration(s.Down)*time.Second)
		}
	}
	if s.Error != "" {
		text += ": " + s.Error
	}
	return text
}
