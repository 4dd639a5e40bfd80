package monitoring

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stintdev/stint/server/rules"
)

// Prometheus returns a file of alerting rules: those about Stint itself, and the alerts of set.
// Alerts about single keys are not in it, because metrics have no keys; a comment names them.
func Prometheus(set *rules.Set, o Options) string {
	var b strings.Builder
	b.WriteString("# Written by stint generate prometheus.\ngroups:\n  - name: stint\n    rules:\n")
	for _, a := range standardAlerts {
		writeAlert(&b, alert{
			name: a.name, expr: o.selected(a.expr), wait: promDuration(a.wait),
			labels:      map[string]string{"severity": a.severity},
			annotations: map[string]string{"summary": a.summary, "description": a.description},
		})
	}
	own := 0
	for i := range set.Alerts {
		a := &set.Alerts[i]
		if a.Condition == nil {
			fmt.Fprintf(&b, "  # %s: %s. Metrics have no keys; Stint tells webhooks of this alert itself.\n", a.Name, a.When)
			continue
		}
		if own++; own == 1 {
			b.WriteString("  - name: stint-rules\n    rules:\n")
		}
		writeAlert(&b, ownAlert(a, o))
	}
	return b.String()
}

// ownAlert is an alert of a rules file.
func ownAlert(a *rules.Alert, o Options) alert {
	labels := map[string]string{"severity": a.Severity}
	for name, value := range a.Labels {
		labels[name] = literal(value)
	}
	return alert{
		name: a.Name, expr: o.over(a.Window).condition(a.Condition), wait: promDuration(a.For), labels: labels,
		annotations: map[string]string{"summary": literal(cmp.Or(a.Message, a.Name)), "description": literal(a.When)},
	}
}

// literal is a text in which Prometheus finds no template.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{"{{"}}`) }

type alert struct {
	name, expr, wait    string
	labels, annotations map[string]string
}

func writeAlert(b *strings.Builder, a alert) {
	fmt.Fprintf(b, "      - alert: %s\n        expr: |-\n          %s\n", quoted(a.name), a.expr)
	if a.wait != "0s" {
		fmt.Fprintf(b, "        for: %s\n", a.wait)
	}
	for _, part := range []struct {
		name   string
		values map[string]string
	}{{"labels", a.labels}, {"annotations", a.annotations}} {
		fmt.Fprintf(b, "        %s:\n", part.name)
		for _, name := range slices.Sorted(maps.Keys(part.values)) {
			fmt.Fprintf(b, "          %s: %s\n", name, quoted(part.values[name]))
		}
	}
}

// quoted is a text of one line in YAML, in which Go's escapes have the same meaning.
func quoted(text string) string { return strconv.Quote(text) }
