// Package monitoring writes what watches Stint from outside: a file of alerting rules for
// Prometheus and a dashboard for Grafana, both from a set of rules. docs/metrics.md describes
// the metrics that they read.
package monitoring

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Options are what a set of rules does not say.
type Options struct {
	// Selector selects the instances that run the rules, such as job="stint". Empty: all
	// instances of Stint that Prometheus knows are one fleet.
	Selector string
	// Interval is how often Prometheus scrapes them.
	Interval time.Duration
}

var selectorForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*(=|!=|=~|!~)"[^"\\\n{}]*"(,[a-zA-Z_][a-zA-Z0-9_]*(=|!=|=~|!~)"[^"\\\n{}]*")*$`)

// CheckSelector returns what is wrong with a selector.
func CheckSelector(text string) error {
	if text != "" && !selectorForm.MatchString(text) {
		return fmt.Errorf(`selector %.60q: want labels such as job="stint",namespace="shop"`, text)
	}
	return nil
}

// query makes PromQL.
type query struct {
	selector string
	span     string // of rates, such as 1m
}

// over is a query over at least the time in which Prometheus has four samples: rate needs two.
func (o *Options) over(window time.Duration) query {
	return query{o.Selector, promDuration(max(window, 4*o.Interval))}
}

// metric is a metric with labels, such as rule="login".
func (q query) metric(name string, labels ...string) string {
	if q.selector != "" {
		labels = append(labels, q.selector)
	}
	if len(labels) == 0 {
		return name
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

// rate is how much a counter grows a second, over all instances.
func (q query) rate(name string, labels ...string) string {
	return "sum(rate(" + q.metric(name, labels...) + "[" + q.span + "]))"
}

// orZero is 0 where there are instances and the series that text needs does not exist, as for
// the outcomes of a rule that is in shadow mode.
func (q query) orZero(text string) string {
	return "(" + text + " or 0 * " + q.rate("stint_decision_seconds_count") + ")"
}

// share is part of whole, at most 1; 0 where whole is 0.
func share(part, whole string) string {
	return "(clamp_max(" + part + " / (" + whole + " > 0), 1) or 0 * " + whole + ")"
}

func (q query) quantile(of float64, name string) string {
	return fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s[%s])))", number(of), q.metric(name+"_bucket"), q.span)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// ofRule is the label of a rule; empty: all rules.
func ofRule(name string) []string {
	if name == "" {
		return nil
	}
	return []string{"rule=" + strconv.Quote(name)}
}

// measure is a measure of a condition.
func (q query) measure(m rules.Measure) string {
	rule := ofRule(m.Rule)
	decided := func(outcome string) string { return q.decided(m.Rule, outcome) }
	switch m.Name {
	case "rate":
		if m.Rule == "" && m.Outcome == "" {
			return decided("")
		}
		return q.orZero(decided(m.Outcome))
	case "block_rate":
		return share(decided("refused"), decided(""))
	case "undecided_rate":
		return share(decided("undecided"), decided(""))
	case "fallback_rate":
		return share(q.rate("stint_fallback_decisions_total", rule...), decided(""))
	case "holds":
		return q.orZero("sum(" + q.metric("stint_holds", rule...) + ")")
	case "hold_lost_rate":
		return q.orZero(share(q.rate("stint_holds_ended_total", append(slices.Clone(rule), `result="lost"`)...), q.endedHolds(rule)))
	case "cost_unknown_rate":
		return q.orZero(share(q.rate("stint_costs_unknown_total", rule...), q.endedHolds(rule)))
	case "store_down":
		return q.storeDown()
	case "store_calls":
		return q.rate("stint_store_seconds_count")
	case "store_error_rate":
		return q.storeErrors()
	case "bans":
		// Each instance counts the bans that it has imposed, and all bans by hand.
		return "(" + q.orZero("sum("+q.metric("stint_bans")+")") + " + " + q.orZero("max("+q.metric("stint_manual_bans")+")") + ")"
	case "latency":
		return q.quantile(m.Quantile, "stint_decision_seconds")
	case "store_latency":
		return q.quantile(m.Quantile, "stint_store_seconds")
	case "instances":
		return "max(" + q.metric("stint_instances") + ")"
	}
	panic("monitoring: no PromQL for the measure " + m.Name) // a test has them all
}

// storeDown is for how long the store has been away, at the instance that has missed it longest.
func (q query) storeDown() string {
	return "max(max_over_time(" + q.metric("stint_store_down_seconds") + "[" + q.span + "]))"
}

// storeErrors is the share of the calls of the store that fail. Nobody calls a store that is away.
func (q query) storeErrors() string {
	return "(clamp_max(" + q.rate("stint_store_errors_total") + " / (" + q.rate("stint_store_seconds_count") + " > 0), 1) or " + q.storeDown() + " > bool 0)"
}

// endedHolds is requests a second that held something and have ended. A settlement that found
// nothing may be one that was sent twice.
func (q query) endedHolds(rule []string) string {
	return q.rate("stint_holds_ended_total", append(slices.Clone(rule), `result!="unknown"`)...)
}

// decided is requests a second with an outcome, as rate of a condition has it.
func (q query) decided(rule, outcome string) string {
	labels := ofRule(rule)
	switch outcome {
	case "":
	case "refused":
		labels = append(labels, `outcome=~"limited|warned|banned|blocked"`)
	case "shadow_refused":
		return q.rate("stint_shadow_refusals_total", labels...)
	default:
		labels = append(labels, "outcome="+strconv.Quote(outcome))
	}
	return q.rate("stint_decisions_total", labels...)
}

// condition is a condition, as a vector that is empty where the condition does not hold.
func (q query) condition(c *rules.Condition) string {
	switch c.Op {
	case "&&":
		return q.part(c.Args[0]) + " and " + q.part(c.Args[1])
	case "||":
		return q.part(c.Args[0]) + " or " + q.part(c.Args[1])
	}
	left, right := q.value(c.Args[0]), q.value(c.Args[1])
	if len(c.Measures()) == 0 { // PromQL compares no two numbers
		left = asVector(left, c.Args[0])
	}
	return left + " " + c.Op + " " + right
}

func (q query) part(c *rules.Condition) string {
	if c.Op == "&&" || c.Op == "||" {
		return "(" + q.condition(c) + ")"
	}
	return q.condition(c)
}

// nothing is a vector that is always empty: the value of what is not known.
const nothing = "(vector(0) > 0)"

// value is a number, a measure, or what is computed of them. A number divided by 0 is nothing.
func (q query) value(c *rules.Condition) string {
	if len(c.Measures()) == 0 {
		v, known := constant(c)
		switch {
		case !known:
			return nothing
		case v < 0:
			return "(" + number(v) + ")"
		}
		return number(v)
	}
	if c.Op == "measure" {
		return q.measure(c.Measure)
	}
	left, right := q.value(c.Args[0]), q.value(c.Args[1])
	if by := c.Args[1]; c.Op == "/" {
		if v, known := constant(by); known && v == 0 {
			right = nothing
		} else if !known {
			right = "(" + right + " != 0)"
		}
	}
	return "(" + left + " " + c.Op + " " + right + ")"
}

// constant is a value that needs no measure; known is false if there is none.
func constant(c *rules.Condition) (v float64, known bool) {
	comparison := rules.Condition{Op: "<", Args: []*rules.Condition{c, c}}
	return comparison.Left(func(rules.Measure) (float64, bool) { return 0, false })
}

// asVector is a value as a vector, which it is not if it is a number.
func asVector(text string, c *rules.Condition) string {
	if _, known := constant(c); known {
		return "vector(" + text + ")"
	}
	return text
}

// promDuration is a duration of at least 1 ms as Prometheus writes it.
func promDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	d = max(d.Round(time.Millisecond), time.Millisecond)
	var b strings.Builder
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
		}
		d %= unit.length
	}
	return b.String()
}

var ownMetric = regexp.MustCompile(`\b(stint_\w+)(\{[^}]*\})?`)

// selected puts the selector into every metric of a PromQL text.
func (o *Options) selected(text string) string {
	if o.Selector == "" {
		return text
	}
	return ownMetric.ReplaceAllStringFunc(text, func(metric string) string {
		name, labels, ok := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
		if ok {
			labels += ","
		}
		return name + "{" + labels + o.Selector + "}"
	})
}
