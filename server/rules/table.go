package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/schema"
)

// Table returns all that a rules file may have, but for the section server, which package config
// describes. The rows say what parser reads, and read nothing themselves: tests try each against it.
func Table() schema.Rows {
	return schema.Rows{
		{Name: "rules", Value: listOf(mappingShape(ruleRows)), Example: `[{name: api, key: client.ip, limits: ["100 per 1m"]}]`, See: "rules.md#order",
			Says: "The rules, " + upTo(maxRules) + ". All rules that match a request apply."},
		{Name: "enabled", Value: shaped(boolShape), Default: "true", See: "rules.md#order",
			Says: "The kill switch: false turns all limits and lists off. In one file only."},
		{Name: "safelist", Value: listOf(conditionShape), Example: `['client.ip in cidr("192.0.2.0/24")']`, See: "rules.md#order",
			Says: "Conditions of requests that no rule limits, " + upTo(maxListed) + "."},
		{Name: "blocklist", Value: listOf(conditionShape), Example: `['request.headers["user-agent"].contains("badbot")']`, See: "rules.md#order",
			Says: "Conditions of requests refused with 403, unless on the safelist, " + upTo(maxListed) + "."},
		{Name: "tiers", Value: shaped(namesShape(schema.Name, conditionShape)), Example: `{gold: attrs.plan == "gold"}`, See: "rules.md#tiers",
			Says: "Kinds of clients, " + upTo(maxTiers) + ", by name and condition. Rules may give them other limits."},
		{Name: "alerts", Value: listOf(mappingShape(alertRows)), Example: `[{name: refused, when: block_rate() > 0.1}]`, See: "alerts.md",
			Says: "Alerts about what is measured, " + upTo(maxAlerts) + "."},

		{Name: "trusted_proxies", Value: listOf(schema.Scalar("network or address", `^(([0-9]+[.]){3}[0-9]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]+)?$`)), Example: "[10.0.0.0/8]", See: "rules.md#addresses-of-clients",
			Says: "Networks of proxies before Stint whose client addresses are trusted, " + upTo(maxListed) + "."},
		{Name: "ipv6_prefix", Value: shaped(numberShape(1, 128)), Default: strconv.Itoa(defaultIPv6Prefix), See: "rules.md#keys",
			Says: "Bits of an IPv6 address that identify a client in keys. In one file only."},
		{Name: "nat64_prefixes", Value: listOf(schema.Scalar("prefix", "^[0-9A-Fa-f:.]+/(32|40|48|56|64|96)$")), Example: "[2001:db8:64::/96]", See: "rules.md#addresses-of-clients",
			Says: "NAT64 prefixes of your network, " + upTo(maxNAT64) + ": /32, /40, /48, /56, /64 or /96. Addresses in them count as the IPv4 address inside. In one file only."},
		{Name: "credential_headers", Value: listOf(headerShape), Default: "[" + strings.ToLower(strings.Join(httpfield.CredentialHeaders, ", ")) + "]", Example: "[authorization, x-goog-api-key]", See: "rules.md#credentials-and-cookies",
			Says: "The headers of request.credential, " + upTo(maxCredentialHeaders) + ". In one file only."},
		{Name: "repeatable", Value: shaped(mappingShape(repeatableRows)), Example: "{headers: [x-roles], parameters: [tag]}", See: "rules.md#repeated-headers-and-parameters",
			Says: "What may repeat in a request. Expressions see all values, joined by \", \"."},

		{Name: "refusal", Value: shaped(mappingShape(refusalRows)), Example: `{bodies: {application/json: '{"error": "{message}"}'}}`, See: "rules.md#the-format-of-refusals",
			Says: "The format of refusals by rules and bans. Without it, problem details (RFC 9457). In one file only."},
		{Name: "errors", Value: shaped(mappingShape(errorRows)), Example: `{bodies: {application/json: '{"error": "{message}"}'}}`, See: "rules.md#the-format-of-refusals",
			Says: "The format of Stint's other answers, and of what refusal leaves out. In one file only."},
	}
}

func ruleRows() schema.Rows {
	return append(schema.Rows{
		{Name: "name", Value: shaped(nameShape), Required: true, Example: "login",
			Says: "Unique in all files. Counts are kept under it."},
		{Name: "match", Value: shaped(conditionShape), Computed: "every request", Example: `request.path.is("/login")`, See: "rules.md#expressions",
			Says: "Which requests the rule applies to."},
		{Name: "key", Value: shaped(schema.Scalar("expression (key)", "[!-~]")), Default: "'" + defaultKey + "'", Example: "client.ip", See: "rules.md#keys",
			Says: "Requests with the same key share a count. The rule skips requests without it."},
		{Name: "limits", Value: listOf(limitShape.OrElse(mappingShape(limitRows))), Example: `["5 per 1m", "100 per 1d"]`, Instead: []string{"penalty.on_status"}, See: "algorithms.md",
			Says: "The limits, " + upTo(maxLimits) + ". A request passes all or none."},
		{Name: "mode", Value: shaped(wordsShape(Enforce, Shadow, Off)), Default: Enforce.String(), See: "rules.md#order",
			Says: "Enforce refuses, shadow counts and reports what it would refuse, off does nothing."},
		{Name: "tiers", Value: shaped(namesShape(schema.Name, mappingShape(tierRows))), Example: "{gold: {times: 10}}", See: "rules.md#tiers",
			Says: "Other limits for tiers of the file, by name, tried in this order."},
		{Name: "penalty", Value: shaped(mappingShape(penaltyRows)), Example: "{ban_after: 10, ban_for: 15m}", See: "rules.md#responses-as-violations",
			Says: "Warnings and bans for keys that are refused repeatedly."},
		{Name: "default", Value: shaped(boolShape), Default: "false", See: "rules.md#order",
			Says: "The rule applies only if no other rule does."},
		{Name: "on_store_error", Value: shaped(wordsShape(stint.OnErrorLocal, stint.OnErrorAllow, stint.OnErrorDeny)), Default: stint.OnErrorLocal.String(), See: "reliability.md#how-an-instance-notices-a-failure",
			Says: "What decides while the store does not: local, each instance with its share of the limit; allow; or deny, with 503."},
		{Name: "decision_timeout", Value: shaped(durationShape("more than 0", "")), Computed: "the server's", Example: "10ms", See: "reliability.md#how-an-instance-notices-a-failure",
			Says: "How long a request waits for the store before on_store_error decides. Among rules that apply, the shortest counts."},
		{Name: "shape", Value: shaped(boolShape), Default: "false", See: "rules.md#shaping",
			Says: "The gateway delays requests to the rate of the rule's leaky_bucket."},
		{Name: "preflights", Value: shaped(boolShape), Default: "false", See: "rules.md#preflights",
			Says: "Also counts browsers' preflights, if the server has cors."},
		{Name: "message", Value: shaped(messageShape), Example: "No more for now.", See: "rules.md#messages",
			Says: "A text for refused clients where messages has none."},
		{Name: "messages", Value: shaped(mappingShape(messageRows)), Example: "{limited: \"Try again in {retry_after}.\"}", See: "rules.md#messages",
			Says: "Texts for refused clients, by cause."},
		{Name: "refusal", Value: shaped(mappingShape(refusalRows)), Example: "{headers: {X-Error-Code: login}}", See: "rules.md#the-format-of-refusals",
			Says: "The format of the rule's refusals. The rest comes from the file's refusal."},
	}, costRows()...)
}

func costRows() schema.Rows {
	return schema.Rows{
		{Name: "cost", Value: shaped(costShape), Computed: "1, or what the caller of the check API says", Example: "int(attrs.size)", See: "rules.md#what-requests-cost",
			Says: "The units that a request takes of each limit, or holds of a budget while it runs."},
		{Name: "unit", Value: shaped(schema.Scalar("word", "^[A-Za-z0-9_-]{1,32}$")), Computed: "tokens, if the rule has tokens", Example: "tokens", See: "rules.md#what-requests-cost",
			Says: "The unit of cost in headers, problem details and metrics: 1 to 32 of A-Z a-z 0-9 _ -."},
		{Name: "cost_after", Value: shaped(costShape), Computed: "the held cost", Example: "response.json.usage.total_tokens", See: "rules.md#the-true-cost",
			Says: "The final cost that budgets are charged when a request has ended."},
		{Name: "unsettled", Value: shaped(wordsShape(Keep, GiveBack)), Default: Keep.String(), Needs: []string{"cost_after", "tokens"}, See: "rules.md#what-requests-cost",
			Says: "The charge if cost_after finds nothing: keep, the held cost; give_back, nothing."},
		{Name: "debt", Value: shaped(debtShape), Computed: "unbounded; of a bucket, its capacity", Example: "50%", See: "rules.md#what-requests-cost",
			Says: "How far charges may exceed a budget: units, or a share up to " + strconv.Itoa(maxDebt) + "%."},
		{Name: "max_hold", Value: shaped(schema.Scalar("share", "^0*([1-9][0-9]?|100)%$")), Computed: "100%", Example: "50%", See: "rules.md#what-requests-cost",
			Says: "The largest share of a budget that one request holds, 1% to 100%."},
		{Name: "tokens", Value: shaped(wordsShape(OpenAI, Anthropic, Gemini).OrElse(mappingShape(tokensRows))), Example: "openai", Computed: "none", See: "tokens.md",
			Says: "A preset of cost, cost_after and unit for a language model API."},
		{Name: "unreadable_body", Value: shaped(unreadableShape), Computed: "refuse; default, if the rule has tokens", Example: "default", See: "rules.md#expressions",
			Says: "What happens if the rule cannot read a request's body: refuse (400), default (a body without fields), or a cost."},
	}
}

func tierRows() schema.Rows {
	return schema.Rows{
		{Name: "times", Value: shaped(numberShape(1, maxTimes)), Example: "10", Instead: []string{"limits"}, Not: []string{"limits"}, See: "rules.md#tiers",
			Says: "Multiplies amount, burst and debt of each of the rule's limits."},
		{Name: "limits", Value: listOf(limitShape.OrElse(mappingShape(limitRows))), Example: `["10 per 1m"]`, See: "rules.md#tiers",
			Says: "Limits in place of the rule's."},
	}
}

func tokensRows() schema.Rows {
	by := NewTokens(OpenAI)
	return schema.Rows{
		{Name: "api", Value: shaped(wordsShape(OpenAI, Anthropic, Gemini)), Required: true, Example: OpenAI.String(), See: "tokens.md#the-table",
			Says: "The API: openai and compatible ones; anthropic; gemini."},
		{Name: "default_output", Value: shaped(numberShape(1, maxDefaultOutput)), Default: strconv.FormatInt(by.DefaultOutput, 10), See: "tokens.md#the-estimate",
			Says: "Estimated output, if the request sets no limit."},
		{Name: "output_weight", Value: shaped(numberShape(1, maxOutputWeight)), Default: strconv.FormatInt(by.OutputWeight, 10), See: "tokens.md#the-true-cost",
			Says: "Cost of an output token; an input token costs 1."},
		{Name: "bytes_per_token", Value: shaped(numberShape(1, maxBytesPerToken)), Default: strconv.FormatInt(by.BytesPerToken, 10), See: "tokens.md#the-estimate",
			Says: "Bytes of text per token in estimates."},
		{Name: "include_usage", Value: shaped(boolShape), Default: strconv.FormatBool(by.IncludeUsage), See: "tokens.md#usage-of-streams",
			Says: "The gateway asks OpenAI for the usage of streams."},
	}
}

func repeatableRows() schema.Rows {
	return schema.Rows{
		{Name: "headers", Value: listOf(headerShape), Example: "[x-roles]",
			Says: "Headers that may have several lines, " + upTo(maxListed) + "."},
		{Name: "parameters", Value: listOf(schema.Scalar("name", "^.")), Example: "[tag]",
			Says: "Query parameters that may repeat, " + upTo(maxListed) + "."},
		{Name: "cookies", Value: listOf(schema.Scalar("name", "^[^ \t;,=]+$")), Example: "[session]",
			Says: "Cookies that may repeat, " + upTo(maxListed) + "."},
	}
}

// The kinds of values that several fields have.
var (
	boolShape       = schema.Shape{Kind: schema.KindBool, What: "true or false"}
	conditionShape  = schema.Scalar("expression (bool)", "[A-Za-z<=>]")
	costShape       = schema.Shape{Kind: schema.KindScalar, What: "number, or expression (number)", Pattern: "[!-~]", Least: "0"}
	limitShape      = schema.Limit()
	nameShape       = schema.Shape{Kind: schema.KindText, What: "name", Pattern: schema.Name}
	headerShape     = schema.Scalar("header", schema.Token)
	debtShape       = quotable(numberShape(0, algo.Exact-1)).OrElse(schema.Scalar("share", "^[+]?[0-9]+%$"))
	unreadableShape = schema.Words("refuse", "default").OrElse(quotable(numberShape(1, math.MaxInt64)))
	textShape       = schema.Shape{Kind: schema.KindText, What: "text"}
	lineShape       = schema.Shape{Kind: schema.KindText, What: "text", Pattern: schema.Something}
	messageShape    = lineShape.OrElse(namesShape(languagePattern, lineShape))
)

// languagePattern is what tags of languages of each kind begin with.
const languagePattern = "^([A-Za-z]{2,3}|[IiXx])([_-][A-Za-z0-9]{1,8})*$"

func shaped(s schema.Shape) schema.Value { return schema.Value{Shape: s} }

func listOf(item schema.Shape) schema.Value {
	return shaped(schema.Shape{Kind: schema.KindList, Item: &item})
}

// namesShape is a mapping of names, which match the pattern names, to items.
func namesShape(names string, item schema.Shape) schema.Shape {
	return schema.Shape{Kind: schema.KindNames, Item: &item, Names: names}
}

func mappingShape(rows func() schema.Rows) schema.Shape {
	return schema.Shape{Kind: schema.KindMapping, Rows: rows}
}

// numberShape is a whole number from least to most; the largest int64 as most is not a bound.
func numberShape(least, most int64) schema.Shape {
	return schema.Number(nil, new(int64), least, most).Shape
}

func durationShape(least, most string) schema.Shape {
	return schema.Shape{Kind: schema.KindDuration, What: "duration", Least: least, Most: most}
}

// quotable is a number that may be quoted.
func quotable(number schema.Shape) schema.Shape {
	number.Pattern = "^[+]?[0-9]+$"
	return number
}

// wordsShape is the text of one of all, in any case.
func wordsShape[T fmt.Stringer](all ...T) schema.Shape {
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = v.String()
	}
	shape := schema.Words(words...)
	shape.Pattern = "^" + schema.AnyCase(words...) + "$"
	return shape
}

func upTo(n int) string { return fmt.Sprintf("at most %d", n) }
