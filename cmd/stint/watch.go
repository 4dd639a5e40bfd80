package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/server/adminapi"
)

// errEnough ends a stream that was read far enough.
var errEnough = errors.New("enough")

// watched are the columns of stint watch, after the time.
var watched = []struct {
	head string
	rate func(*adminapi.RuleRates) float64
}{
	{"ALLOWED", func(r *adminapi.RuleRates) float64 { return r.Outcomes["allowed"] }},
	{"LIMITED", func(r *adminapi.RuleRates) float64 { return r.Outcomes["limited"] }},
	{"WARNED", func(r *adminapi.RuleRates) float64 { return r.Outcomes["warned"] }},
	{"BANNED", func(r *adminapi.RuleRates) float64 { return r.Outcomes["banned"] }},
	{"SHADOW", func(r *adminapi.RuleRates) float64 { return r.Outcomes["shadow"] }},
	{"FALLBACK", func(r *adminapi.RuleRates) float64 { return r.Fallback }},
	{"VIOLATIONS", func(r *adminapi.RuleRates) float64 { return r.Violations }},
}

func watchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "watch RULE", Short: "show the requests of a rule, second by second",
		Long: `Prints a line each second: the requests that the rule allows and refuses per second in the whole
fleet. SHADOW counts requests that shadow mode would have refused, FALLBACK decisions by
on_store_error, VIOLATIONS upstream responses that are violations.`,
		Example: "  stint watch login",
	}
	lines := number{least: 1}
	c.Flags().VarP(&lines, "lines", "n", "end after `N` lines")
	return adminCommand(c, words("RULE"), func(ctx context.Context, a *admin, words []string) error {
		printed := int64(0)
		err := a.live(ctx, "/v1/live?rule="+url.QueryEscape(words[0]), func(now *adminapi.Live, data []byte) error {
			if now.Rule == nil {
				return fmt.Errorf("rule %s is no longer in force", shown(words[0]))
			}
			if err := a.printRates(now, data, printed%20 == 0); err != nil {
				return err
			}
			if printed++; lines.given && printed >= lines.value {
				return errEnough
			}
			return nil
		}, func(err error) { fmt.Fprintf(a.errs, "stint: %v; trying again\n", err) })
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
}

// printRates prints a line about the rule of now, or its JSON.
func (a *admin) printRates(now *adminapi.Live, data []byte, head bool) error {
	if a.json {
		_, err := fmt.Fprintf(a.out, "%s\n", plainJSON(data))
		return err
	}
	var b strings.Builder
	if head {
		b.WriteString("TIME    ")
		for _, c := range watched {
			fmt.Fprintf(&b, "  %*s", width(c.head), c.head)
		}
		b.WriteByte('\n')
	}
	b.WriteString(now.At.UTC().Format("15:04:05"))
	for _, c := range watched {
		fmt.Fprintf(&b, "  %*s", width(c.head), perSecond(c.rate(now.Rule)))
	}
	b.WriteByte('\n')
	_, err := a.out.Write([]byte(b.String()))
	return err
}

func width(head string) int { return max(len(head), 8) }

// perSecond is a rate in up to six characters.
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 100:
		return fmt.Sprintf("%.1f", rate)
	case rate < 100_000:
		return fmt.Sprintf("%.0f", rate)
	case rate < 10_000_000:
		return fmt.Sprintf("%.0fk", rate/1000)
	}
	return fmt.Sprintf("%.0fM", rate/1_000_000)
}
