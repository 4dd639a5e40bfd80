package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/cmd/stint/internal/monitoring"
	"github.com/stintdev/stint/server/rules"
)

func generateCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "generate", Short: "write Prometheus alerts and a Grafana dashboard for rules",
		Long: `Writes files for Prometheus and Grafana from a rules file, without a server.`,
	}, generatePrometheus(), generateGrafana())
}

func generatePrometheus() *cobra.Command {
	return generated(&cobra.Command{
		Use: "prometheus FILE [--selector LABELS] [--interval DURATION]", Short: "write a file of alerting rules",
		Long: `Prints a rules file for Prometheus: alerts about Stint itself, and those in the section alerts
of a rules file, or of all files in a directory. Alerts about single keys are left out, because
metrics have no keys.`,
		Example: "  stint generate prometheus stint.yaml > /etc/prometheus/stint.yml",
	}, monitoring.Prometheus)
}

func generateGrafana() *cobra.Command {
	return generated(&cobra.Command{
		Use: "grafana FILE [--selector LABELS] [--interval DURATION]", Short: "write a dashboard",
		Long: `Prints a dashboard for Grafana as JSON: an overview, rules, store and instances, and the alerts
of a rules file, or of all files in a directory.`,
		Example: "  stint generate grafana stint.yaml > dashboard.json",
	}, monitoring.Grafana)
}

// generated makes c read rules and print what write makes of them.
func generated(c *cobra.Command, write func(*rules.Set, monitoring.Options) string) *cobra.Command {
	c.Args = words("FILE")
	c.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	c.DisableFlagsInUseLine = true
	f := c.Flags()
	f.SortFlags = false
	selector := f.String("selector", "", "watch only instances with these `LABELS`, such as 'job=\"stint\"'; without it, all that Prometheus knows are one fleet")
	interval := f.Duration("interval", 15*time.Second, "scrape interval of Prometheus; alerts of the rules are measured over at least four times that `DURATION`")
	c.RunE = func(c *cobra.Command, words []string) error {
		if err := monitoring.CheckSelector(*selector); err != nil {
			return errUsage{fmt.Errorf("--%w", err)}
		}
		if *interval < time.Millisecond || *interval > time.Hour {
			return errUsage{fmt.Errorf("--interval %v: want 1ms to 1h", *interval)}
		}
		_, set, err := readConfig(words[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(c.OutOrStdout(), write(set, monitoring.Options{Selector: *selector, Interval: *interval}))
		return err
	}
	return c
}
