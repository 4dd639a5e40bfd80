package monitoring

import (
	"encoding/json"
	"fmt"

	"github.com/stintdev/stint/server/rules"
)

// mostAlertPanels bounds the panels for alerts of the rules.
const mostAlertPanels = 50

// Grafana returns a dashboard as JSON, to be imported or provisioned. It has a panel for each
// alert of set about rates, up to 50, and panels about leases, shadow mode, tokens and so on
// only if set uses them. What Options does not select, the dashboard's variable job selects.
func Grafana(set *rules.Set, o Options) string {
	selector := `job=~"$job"`
	if o.Selector != "" {
		selector = o.Selector + "," + selector
	}
	d := &dashboard{q: query{selector, "$__rate_interval"}, o: Options{selector, o.Interval}}
	d.overview()
	d.byRule(set)
	d.store(set)
	d.instances()
	d.alerts(set)
	text, err := json.MarshalIndent(d.document(o), "", "  ")
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return string(text) + "\n"
}

// dashboard is a dashboard while it is made.
type dashboard struct {
	q      query
	o      Options
	panels []panel
	x, y   int // where the next panel goes, of 24 columns
	height int // of the panels in this line
}

type object map[string]any

type panel = object

// target is a query of a panel, and the legend of its series.
type target struct{ expr, legend string }

func (d *dashboard) document(o Options) object {
	match := "stint_rules_info"
	if o.Selector != "" {
		match += "{" + o.Selector + "}"
	}
	variable := func(name, label, query string) object {
		return object{"name": name, "label": label, "type": "query", "datasource": datasource,
			"query": object{"query": query, "refId": name}, "definition": query,
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": "All", "value": "$__all"}}
	}
	return object{
		"uid": "stint", "title": "Stint", "tags": []string{"stint"}, "schemaVersion": 39, "version": 1,
		"editable": true, "graphTooltip": 1, "refresh": "10s", "timezone": "",
		"time":        object{"from": "now-1h", "to": "now"},
		"description": "Written by stint generate grafana.",
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			variable("job", "Job", "label_values("+match+", job)"),
			variable("rule", "Rule", `label_values(stint_decisions_total{job=~"$job",rule!=""}, rule)`),
		}},
		"panels": d.panels,
	}
}

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// row begins a row of panels.
func (d *dashboard) row(title string) {
	d.line()
	d.panels = append(d.panels, panel{"id": len(d.panels) + 1, "type": "row", "title": title, "collapsed": false,
		"gridPos": object{"x": 0, "y": d.y, "w": 24, "h": 1}, "panels": []panel{}})
	d.y++
}

// line begins a line of panels, unless one is begun.
func (d *dashboard) line() {
	d.x, d.y, d.height = 0, d.y+d.height, 0
}

func (d *dashboard) add(kind, title, description, unit string, w, h int, targets []target) panel {
	if d.x+w > 24 {
		d.line()
	}
	queries := []object{}
	for i, t := range targets {
		queries = append(queries, object{"refId": string(rune('A' + i)), "datasource": datasource, "expr": t.expr, "legendFormat": t.legend, "range": true})
	}
	p := panel{
		"id": len(d.panels) + 1, "type": kind, "title": title, "description": description, "datasource": datasource,
		"gridPos": object{"x": d.x, "y": d.y, "w": w, "h": h}, "targets": queries,
		"fieldConfig": object{"defaults": object{"unit": unit, "min": 0}, "overrides": []object{}},
		"options":     object{},
	}
	d.x, d.height = d.x+w, max(d.height, h)
	d.panels = append(d.panels, p)
	return p
}

// number adds a panel with one number.
func (d *dashboard) number(title, description, unit, expr string) {
	p := d.add("stat", title, description, unit, 4, 4, []target{{expr, ""}})
	p["options"] = object{"colorMode": "value", "graphMode": "area", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}
}

// lines adds a panel with lines over time.
func (d *dashboard) lines(title, description, unit string, targets ...target) panel {
	p := d.add("timeseries", title, description, unit, 12, 8, targets)
	p["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	return p
}

// stacked adds a panel whose lines lie on one another.
func (d *dashboard) stacked(title, description, unit string, targets ...target) {
	p := d.lines(title, description, unit, targets...)
	p["fieldConfig"].(object)["defaults"].(object)["custom"] = object{"stacking": object{"mode": "normal", "group": "A"}, "fillOpacity": 30}
}

// by is a sum of rates by a label.
func (d *dashboard) by(label, name string, labels ...string) string {
	return "sum by (" + label + ") (rate(" + d.q.metric(name, labels...) + "[" + d.q.span + "]))"
}

func (d *dashboard) overview() {
	q := d.q
	d.row("Overview")
	d.number("Decisions", "Requests decided a second.", "reqps", q.decided("", ""))
	d.number("Block rate", "The share that is refused.", "percentunit", share(q.decided("", "refused"), q.decided("", "")))
	d.number("Time to decide, p99", "With the store.", "s", q.quantile(0.99, "stint_decision_seconds"))
	d.number("Store errors", "The share of the calls that fail.", "percentunit", q.storeErrors())
	d.number("Bans by penalty", "That run now.", "short", "sum("+q.metric("stint_bans")+")")
	d.number("Instances", "That share the limits, as they count themselves.", "short", "max("+q.metric("stint_instances")+")")
	d.stacked("Decisions by outcome", "docs/metrics.md says what the outcomes mean.", "reqps", target{d.by("outcome", "stint_decisions_total"), "{{outcome}}"})
	d.lines("Time to decide", "From matching rules to the decision, with the store.", "s",
		target{q.quantile(0.5, "stint_decision_seconds"), "p50"}, target{q.quantile(0.99, "stint_decision_seconds"), "p99"}, target{q.quantile(0.999, "stint_decision_seconds"), "p99.9"})
}

func (d *dashboard) byRule(set *rules.Set) {
	const some = `rule=~"$rule"`
	refused := []string{some, `outcome=~"limited|warned|banned"`}
	d.row("Rules")
	d.lines("Refusals by rule", "Requests a second that were refused.", "reqps", target{d.by("rule", "stint_decisions_total", refused...), "{{rule}}"})
	d.lines("Block rate by rule", "The share of the requests that the rule decided.", "percentunit",
		target{d.by("rule", "stint_decisions_total", refused...) + " / (" + d.by("rule", "stint_decisions_total", some) + " > 0)", "{{rule}}"})
	d.stacked("Decisions by rule", "Where several rules apply, the one that decided.", "reqps", target{d.by("rule", "stint_decisions_total", some), "{{rule}}"})
	d.lines("Bans by rule", "By penalties; they run now.", "short", target{"sum by (rule) (" + d.q.metric("stint_bans", some) + ")", "{{rule}}"})
	if has(set, func(r *rules.Rule) bool { return r.Mode == rules.Shadow }) {
		d.lines("Shadow mode", "Requests a second that rules in shadow mode would have refused, and that they did not decide.", "reqps",
			target{d.by("rule", "stint_shadow_refusals_total"), "{{rule}}"}, target{d.by("rule", "stint_shadow_skipped_total"), "{{rule}}, not decided"})
	}
	if has(set, func(r *rules.Rule) bool { return len(r.OnStatus) > 0 }) {
		d.lines("Responses that count", "Responses a second that were violations (on_status).", "reqps", target{d.by("rule", "stint_response_violations_total"), "{{rule}}"})
	}
	if set.Holds() {
		d.holds(some)
	}
	if set.UsesClaims() {
		d.lines("Tokens of clients", "That rules have read, a second.", "reqps", target{d.by("result", "stint_client_tokens_total"), "{{result}}"})
	}
}

// holds adds the panels about limits that are held.
func (d *dashboard) holds(some string) {
	d.lines("Requests in flight that hold", "By rule, of the gateway.", "short", target{"sum by (rule) (" + d.q.metric("stint_holds", some) + ")", "{{rule}}"})
	d.lines("Ends of holds", "A second. Lost: what was held had run out, and nothing was charged.", "reqps",
		target{d.by("rule, result", "stint_holds_ended_total", some), "{{rule}}: {{result}}"}, target{d.by("rule", "stint_costs_unknown_total", some), "{{rule}}: cost unknown"})
	d.lines("Units of budgets", "A second: held by the estimate, used by the truth, and by how much the truth was above the estimate.", "short",
		target{d.by("rule, kind", "stint_hold_units_total", some), "{{rule}}: {{kind}}"})
	used, held := d.by("rule", "stint_hold_units_total", some, `kind="used"`), d.by("rule", "stint_hold_units_total", some, `kind="held"`)
	d.lines("Used of what was held", "How good the estimates are.", "percentunit", target{used + " / (" + held + " > 0)", "{{rule}}"})
}

func has(set *rules.Set, is func(*rules.Rule) bool) bool {
	for _, r := range set.Rules {
		if is(r) {
			return true
		}
	}
	return false
}

func (d *dashboard) store(set *rules.Set) {
	q := d.q
	d.row("Store")
	d.lines("Time of a call", "Calls that failed count, too.", "s", target{q.quantile(0.5, "stint_store_seconds"), "p50"}, target{q.quantile(0.99, "stint_store_seconds"), "p99"})
	d.lines("Calls", "A second, and how many fail.", "reqps", target{q.rate("stint_store_seconds_count"), "calls"}, target{d.by("kind", "stint_store_errors_total"), "failed: {{kind}}"})
	d.lines("Decided without the store", "By on_store_error, a second.", "reqps", target{d.by("rule, policy", "stint_fallback_decisions_total"), "{{rule}}: {{policy}}"})
	d.lines("Store away", "For how long, at the instance that has missed it longest.", "s", target{"max(" + q.metric("stint_store_down_seconds") + ")", "away"})
	d.lines("Circuit breaker", "How many instances call the store.", "short", target{"sum by (state) (" + q.metric("stint_breaker_state") + ")", "{{state}}"})
	d.lines("Refused without a call", "Remembered refusals, a second.", "reqps", target{q.rate("stint_denials_remembered_total"), "remembered"})
	if has(set, leased) {
		d.lines("Leases", "Units a second.", "short", target{d.by("state", "stint_lease_units_total"), "{{state}}"})
	}
}

// leased reports whether a limit of r has a lease.
func leased(r *rules.Rule) bool {
	for _, l := range r.Limits {
		if l.Spec().Lease != 0 {
			return true
		}
	}
	return false
}

func (d *dashboard) instances() {
	q := d.q
	d.row("Instances")
	d.lines("Requests in flight", "", "short", target{"sum by (instance, listener) (" + q.metric("stint_in_flight") + ")", "{{instance}} {{listener}}"})
	d.lines("Refused by the instance", "Because it is overloaded, a second.", "reqps", target{d.by("reason", "stint_overload_refusals_total"), "{{reason}}"})
	d.lines("Versions of the rules", "Instances that run each.", "short", target{"count by (version) (" + q.metric("stint_rules_info") + ")", "{{version}}"})
	d.lines("Findings", "docs/errors.md has the codes.", "short", target{"max by (code) (" + q.metric("stint_findings") + ")", "{{code}}"})
	d.lines("Memory", "Resident.", "bytes", target{"sum by (instance) (" + q.metric("process_resident_memory_bytes") + ")", "{{instance}}"})
	d.lines("Not as it should be", "Failed reads of the fleet's documents a second, changes that wait for the store, and the clock against the store's.", "short",
		target{d.by("instance", "stint_sync_failures_total"), "{{instance}}: failed reads"},
		target{"max by (instance) (" + q.metric("stint_pending_changes") + ")", "{{instance}}: waiting changes"},
		target{"max by (instance) (abs(" + q.metric("stint_clock_ahead_seconds") + "))", "{{instance}}: clock, s"})
}

// alerts adds a panel for each alert of the rules: what its first comparison compares, and with
// what.
func (d *dashboard) alerts(set *rules.Set) {
	shown := 0
	for i := range set.Alerts {
		a := &set.Alerts[i]
		if a.Condition == nil {
			continue
		}
		if shown++; shown == 1 {
			d.row("Alerts of the rules")
		}
		if shown > mostAlertPanels {
			return
		}
		first := a.Condition
		for first.Op == "&&" || first.Op == "||" {
			first = first.Args[0]
		}
		q := d.o.over(a.Window)
		left, right := first.Args[0], first.Args[1]
		targets := []target{{asVector(q.value(left), left), fmt.Sprintf("%s (%s)", a.Name, a.Severity)}}
		p := d.lines(a.Name, a.When, "short", append(targets, target{asVector(q.value(right), right), "threshold"})...)
		delete(p["fieldConfig"].(object)["defaults"].(object), "min")
	}
}
