package rules

import (
	"strconv"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/schema"
)

// limitRows are the fields of a limit in its mapping form.
func limitRows() schema.Rows {
	return schema.Rows{
		{Name: "amount", Value: shaped(numberShape(0, algo.Exact-1)), Required: true, Example: "100", See: "rules.md#nothing-and-no-limit",
			Says: "Units allowed in the period; 0: nothing passes. The period bounds it, too."},
		{Name: "period", Value: shaped(durationShape("1ms", "26062d")), Example: "1m", Instead: []string{"per", "algorithm=" + stint.InFlight.String()}, Not: []string{"per"}, See: "algorithms.md",
			Says: "The period for the amount."},
		{Name: "algorithm", Value: shaped(schema.Algorithm()), Computed: stint.TokenBucket.String() + "; " + stint.FixedWindow.String() + ", if the limit has per", Example: stint.FixedWindow.String(), See: "algorithms.md",
			Says: "How the limit counts."},
		{Name: "burst", Value: shaped(numberShape(1, algo.Exact-1)), Computed: "the amount", Example: "20", See: "algorithms.md#how-each-algorithm-counts",
			Says: "Units that pass at once, for token_bucket and leaky_bucket."},
		{Name: "buckets", Value: shaped(numberShape(1, algo.MaxBuckets)), Default: strconv.Itoa(algo.DefaultBuckets), Example: "12", Needs: []string{"algorithm=" + stint.SlidingWindow.String()}, See: "algorithms.md#how-each-algorithm-counts",
			Says: "Number of sub-windows. It must divide the period."},
		{Name: "per", Value: shaped(wordsShape(stint.Day, stint.Week, stint.Month, stint.Year)), Computed: "none", Example: stint.Month.String(), See: "algorithms.md#windows-of-the-calendar",
			Says: "A calendar period, for a fixed_window."},
		{Name: "in", Value: shaped(schema.Scalar("time zone", "^([A-Za-z][A-Za-z0-9_+/-]*)?$")), Default: "UTC", Example: "Europe/Berlin", Needs: []string{"per"}, See: "algorithms.md#windows-of-the-calendar",
			Says: "The calendar's time zone, by its IANA name."},
		{Name: "starts", Value: shaped(startsShape), Computed: "monday, 1 or 01-01", Example: "15", Needs: []string{"per"}, See: "algorithms.md#windows-of-the-calendar",
			Says: "The first day of a window: of a week such as sunday, of a month 1 to 31, of a year such as 04-06."},
		{Name: "cost", Value: shaped(costShape), Computed: "the rule's", Example: "10", See: "rules.md#what-requests-cost",
			Says: "The cost for this limit alone. A budget has none."},
		{Name: "lease", Value: shaped(schema.Scalar("share", "^0*([1-9]|[1-4][0-9]|50)%$")), Computed: "none", Example: "5%", See: "leases.md",
			Says: "The share of a token_bucket or fixed_window that instances may charge ahead, 1% to " + strconv.Itoa(limittext.MaxLease) + "%, to ask the store less often."},
		{Name: "hold", Value: shaped(boolShape.OrElse(durationShape("1ms", "24h"))), Default: "false", Example: "45s", See: "holds.md",
			Says: "The limit is held while a request runs, then charged: true (" + limittext.Duration(stint.DefaultHold) + "), or how long a hold lasts without renewal."},
		{Name: "retry", Value: shaped(durationShape("0s", "24h")), Default: "1s", Example: "5s", Needs: []string{"hold", "algorithm=" + stint.InFlight.String()}, See: "rules.md#what-requests-cost",
			Says: "The retry-after hint while others hold the limit; 0s: the default."},
		{Name: "debt", Value: shaped(debtShape), Computed: "the rule's", Example: "5000", See: "rules.md#what-requests-cost",
			Says: "How far charges may exceed this limit: units, or a share."},
	}
}

// startsShape is a day of the week, of the month, or of the year.
var startsShape = schema.Shape{Kind: schema.KindScalar, What: "day", Least: "1", Most: "31",
	Pattern: "^(|" + schema.AnyCase("sun", "mon", "tue", "wed", "thu", "fri", "sat") + "[A-Za-z]{0,6}|0*[1-9][0-9]?|[ -]*([A-Za-z]+[ -]+[0-9]+|[0-9]+[ -]+[A-Za-z0-9]+)[ -]*)$"}

func penaltyRows() schema.Rows {
	const longest = "36500d"
	return schema.Rows{
		{Name: "warn_after", Value: shaped(numberShape(0, algo.MostViolations)), Default: "0", Example: "3", Instead: []string{"ban_after"},
			Says: "Violations until refusals warn of a ban; 0: never."},
		{Name: "ban_after", Value: shaped(numberShape(0, algo.MostViolations)), Default: "0", Example: "10", Needs: []string{"ban_for"},
			Says: "Violations until a key is banned; 0: never."},
		{Name: "ban_for", Value: shaped(durationShape("0s", "")), Example: "15m",
			Says: "How long the first ban lasts, at most max_ban. With ban_after, at least 1ms."},
		{Name: "growth", Value: shaped(numberShape(1, algo.MostViolations)), Default: "1", Example: "2",
			Says: "Factor from each ban to the next."},
		{Name: "max_ban", Value: shaped(durationShape("0s", longest)), Default: longest, Example: "7d",
			Says: "The longest ban, at least ban_for; 0s: the default."},
		{Name: "forget_after", Value: shaped(durationShape("0s", longest)), Default: limittext.Duration(algo.DefaultForget), Example: "1d",
			Says: "Time after the last violation or ban until they count from 0 again, at least 1ms; 0s: the default."},
		{Name: "on_status", Value: listOf(numberShape(leastStatus, mostStatus)), Example: "[401, 404]", See: "rules.md#responses-as-violations",
			Says: "Response statuses that are violations, too, " + upTo(maxStatuses) + "."},
	}
}

func alertRows() schema.Rows {
	return schema.Rows{
		{Name: "name", Value: shaped(nameShape), Required: true, Example: "refused", See: "alerts.md",
			Says: "Unique in all files."},
		{Name: "when", Value: shaped(schema.Scalar("condition", "[(<=>]")), Required: true, Example: `block_rate("login") > 0.1`, See: "alerts.md#conditions",
			Says: "The condition: a comparison of measures, or usage > 80% of RULE."},
		{Name: "for", Value: shaped(durationShape("0s", limittext.Duration(maxFor))), Default: "0s", Example: "5m", See: "alerts.md",
			Says: "How long the condition must hold before the alert fires. Not for usage."},
		{Name: "window", Value: shaped(durationShape(limittext.Duration(leastWindow), limittext.Duration(mostWindow))), Default: limittext.Duration(defaultWindow), Example: "5m", See: "alerts.md#conditions",
			Says: "The period that the condition measures. Not for usage."},
		{Name: "severity", Value: shaped(nameShape), Default: defaultSeverity, Example: "critical", See: "alerts.md",
			Says: "A name such as info, warning or critical."},
		{Name: "labels", Value: shaped(namesShape("^[A-Za-z][A-Za-z0-9_]{0,63}$", textShape)), Example: "{team: payments}", See: "alerts.md",
			Says: "Labels sent with the alert, at most " + strconv.Itoa(maxLabelBytes) + " bytes. Names: a letter, then at most 63 of A-Z a-z 0-9 _."},
		{Name: "message", Value: shaped(textShape), Example: "More than a tenth of the logins is refused.", See: "alerts.md",
			Says: "A line of text sent with the alert, at most " + strconv.Itoa(maxAlertText) + " bytes."},
	}
}
