package monitoring

import "time"

// standardAlert is an alert about Stint itself, whatever its rules are.
type standardAlert struct {
	name, severity string
	wait           time.Duration
	expr           string
	summary        string // one line, with Prometheus's templates
	description    string // what it means, or what to do
}

// standardAlerts are those of docs/metrics.md; a test compares. Severity critical is for what
// should page somebody, info for what need not be looked at before the next working day.
var standardAlerts = []standardAlert{
	{
		"StintStoreFails", "critical", 2 * time.Minute,
		"max by (job) (max_over_time(stint_store_down_seconds[1m])) > 0 or sum by (job) (rate(stint_store_errors_total[5m])) / sum by (job) (rate(stint_store_seconds_count[5m])) > 0.01",
		"The store is away, or its calls fail",
		"on_store_error decides: limits are per instance, or off, or everything is refused. stint status says why.",
	}, {
		"StintUndecided", "critical", time.Minute,
		`sum(rate(stint_decisions_total{outcome="undecided"}[5m])) > 0`,
		"Stint answers requests with 503",
		"The store failed, and a rule has on_store_error: deny or this instance could not count.",
	}, {
		"StintOverloaded", "warning", 5 * time.Minute,
		"sum by (reason) (rate(stint_overload_refusals_total[5m])) > 0",
		"Instances refuse requests because they are overloaded: {{ $labels.reason }}",
		"There are too few of them, somebody floods them, or an upstream is so slow that requests pile up.",
	}, {
		"StintPassesUnlimited", "warning", time.Minute,
		`sum by (rule) (rate(stint_fallback_decisions_total{policy="allow"}[5m])) > 0`,
		"Requests pass the rule {{ $labels.rule }} without a limit",
		"The store fails, and the rule has on_store_error: allow.",
	}, {
		"StintHoldsLost", "warning", 0,
		`sum by (rule) (increase(stint_holds_ended_total{result="lost"}[15m])) > 0`,
		"Requests under the rule {{ $labels.rule }} were not charged",
		"What they held ran out before they ended: the store was away for longer than hold.",
	}, {
		"StintCostsUnknown", "info", 15 * time.Minute,
		`sum by (rule) (rate(stint_costs_unknown_total[15m])) / sum by (rule) (rate(stint_holds_ended_total{result!="unknown"}[15m])) > 0.1`,
		"The cost of {{ $value | humanizePercentage }} of the requests under the rule {{ $labels.rule }} cannot be read",
		"The unsettled setting says what they are charged. The log says what is wrong with cost_after.",
	}, {
		"StintSlow", "warning", 10 * time.Minute,
		"histogram_quantile(0.99, sum by (le) (rate(stint_decision_seconds_bucket[5m]))) > 0.01",
		"Decisions take {{ $value | humanizeDuration }} (p99)",
		"If stint_store_seconds is as slow, it is the store or the network; otherwise the rules or the machine.",
	}, {
		"StintRulesRefused", "warning", 0,
		`increase(stint_rules_reloads_total{result="refused"}[15m]) > 0`,
		"{{ $labels.instance }} refused new rules",
		"The old rules are still in force. The log says which line is wrong.",
	}, {
		"StintCertificateExpires", "warning", 0,
		"stint_certificate_expiry_timestamp_seconds - time() < 7 * 86400",
		"The certificate of {{ $labels.listener }} at {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
		"Renew it. Stint reads the files again by itself.",
	}, {
		"StintCertificateRefused", "warning", 0,
		`increase(stint_certificate_reloads_total{result="refused"}[15m]) > 0`,
		"{{ $labels.instance }} refused a new certificate",
		"The previous one stays in use. The log says why.",
	}, {
		"StintFinding", "warning", 10 * time.Minute,
		"max by (code) (stint_findings) > 0",
		"Open finding {{ $labels.code }}",
		"docs/errors.md says for each code what to do, and the log says where it is.",
	}, {
		"StintLogDropped", "warning", 0,
		"increase(stint_log_lines_dropped_total[15m]) > 0",
		"Nothing reads the log of {{ $labels.instance }}",
		"Lines are dropped.",
	}, {
		"StintAuditDropped", "warning", 0,
		"increase(stint_audit_lines_dropped_total[15m]) > 0",
		"Lines about changes are missing from the log of {{ $labels.instance }}",
		"stint audit has the last changes.",
	}, {
		"StintDocumentsUnread", "warning", 0,
		"increase(stint_sync_failures_total[5m]) > 10",
		"{{ $labels.instance }} does not receive the fleet's documents",
		"Bans, switches and pushed rules of the last minutes are not in force there.",
	}, {
		"StintControlsDiffer", "warning", time.Minute,
		"max(stint_controls_version) - min(stint_controls_version) > 0",
		"Bans and switches are not the same at all instances",
		"Some instance does not receive the fleet's documents.",
	}, {
		"StintChangePending", "warning", 15 * time.Minute,
		"max by (instance) (stint_pending_changes) > 0",
		"Changes made at {{ $labels.instance }} are still not everywhere",
		"If that instance restarts now, they are lost.",
	}, {
		"StintRulesDiffer", "warning", 5 * time.Minute,
		"count(count by (version) (stint_rules_info)) > 1",
		"Instances run {{ $value }} different versions of the rules",
		"For longer than a roll-out takes.",
	}, {
		"StintRefusesMore", "info", 10 * time.Minute,
		`sum by (rule) (rate(stint_decisions_total{outcome=~"limited|warned|banned"}[10m])) > 5 * sum by (rule) (rate(stint_decisions_total{outcome=~"limited|warned|banned"}[10m] offset 1d)) + 1`,
		"The rule {{ $labels.rule }} refuses much more than a day ago",
		"An attack, a client out of control, or a wrong limit.",
	}, {
		"StintUnmatched", "info", 15 * time.Minute,
		`sum(rate(stint_decisions_total{outcome="unmatched"}[15m])) / sum(rate(stint_decisions_total[15m])) > 0.9`,
		"{{ $value | humanizePercentage }} of the requests match no rule",
		"The rules do not say what somebody intended, or the kill switch was left on.",
	}, {
		"StintBadRequests", "info", 10 * time.Minute,
		"rate(stint_bad_requests_total[10m]) > 1",
		"Callers of {{ $labels.instance }} send requests that Stint cannot read",
		"Nothing limits these callers but their own handling of 400.",
	},
}
