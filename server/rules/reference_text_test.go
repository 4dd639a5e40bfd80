package rules_test

import (
	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/message"
)

// What docs/rules-reference.md says of names. TestReferenceHasAllNames compares them with those that
// there are.

const penaltySays = "A violation is a request that a limit of the rule refuses, or a response with a status of `on_status`. With `{ban_after: 10, ban_for: 15m, growth: 2, max_ban: 1d}`, the tenth violation bans the key for 15 minutes, ten further ones for 30, and so on up to a day."

const expressionsSay = "Expressions are in CEL (<https://cel.dev>), of at most 4096 bytes. A condition is a `bool`, a cost a number, a key a `string`, number, `bool` or a list of these. [What becomes of missing values](rules.md#missing-values-and-errors)."

var variablesSay = map[string]string{
	"request.method":     "The method, such as `POST`.",
	"request.path":       "The path in its [normal form](rules.md#paths-and-queries). Compare it by `is` and `under`.",
	"request.host":       "The host in lower case, without a port. It is not one of `request.headers`.",
	"request.route":      "The name of the gateway's route, if it has one.",
	"request.headers":    "Headers, by names in lower case.",
	"request.query":      "Parameters of the query, by name.",
	"request.cookies":    "Cookies, by name.",
	"request.credential": "[Who the client says it is](rules.md#credentials-and-cookies): a token, an API key, a user and password.",
	"body":               "The JSON body of the request, field by field, such as `body.user.id`. Only the gateway and `Server.Wrap` know it.",
	"client.ip":          "The client's address. In a key, of IPv6 only the first `ipv6_prefix` bits.",
	"operation":          "What the caller of a check says the request does.",
	"attrs":              "What the caller of a check says besides, by name.",
	"claims":             "What the client's token (JWT) says, if it is valid.",
	"secrets":            "The secrets of the section `server`, for `hmac` alone.",
	"cost":               "What the caller of a check says the request costs.",
	"response.status":    "The status of the upstream; 0 if it did not answer.",
	"response.headers":   "Headers and trailers, by names in lower case. Several lines are joined by `, `.",
	"response.bytes":     "How many bytes of the body passed.",
	"response.seconds":   "How long the request took.",
	"response.json":      "The JSON of the body, field by field, such as `response.json.usage.total_tokens`.",
}

var macrosSay = []struct{ name, form, says, example string }{
	{"has", "has(a.b)", "Whether there is a field.", `has({"a": 1}.a)`},
	{"all", "list.all(x, condition)", "Whether the condition holds for each.", `[1, 2].all(x, x > 0)`},
	{"exists", "list.exists(x, condition)", "Whether it holds for one at least.", `[1, 2].exists(x, x > 1)`},
	{"exists_one", "list.exists_one(x, condition)", "Whether it holds for exactly one.", `[1, 2].exists_one(x, x > 1)`},
	{"filter", "list.filter(x, condition)", "Those for which it holds.", `[1, 2].filter(x, x > 1) == [2]`},
	{"map", "list.map(x, value)", "A value for each; `list.map(x, condition, value)`: for those of which the condition holds.", `[1, 2].map(x, x * 10) == [10, 20]`},
}

var functionsSay = map[string]struct{ says, example string }{
	"cidr":   {"A network. `in` tells whether an address, or a whole network, is in it.", `client.ip in cidr("192.0.2.0/24")`},
	"is":     {"Whether two paths are one, [however they are written](rules.md#paths-and-queries).", `"/A//login/".is("/a/login")`},
	"under":  {"Whether a path is another or below it, likewise.", `"/api/v1".under("/api")`},
	"folded": {"The path that `is` compares.", `"/A//login/".folded() == "/a/login"`},
	"sha256": {"The SHA-256 of a text, in hexadecimal.", `sha256("a").startsWith("ca978112")`},
	"hmac":   {"The HMAC-SHA256 of a text under a secret, in hexadecimal.", `hmac(secrets.pepper, client.ip) != ""`},

	"contains":      {"Whether a text is within.", `"abc".contains("b")`},
	"startsWith":    {"Whether a text begins so.", `"abc".startsWith("ab")`},
	"endsWith":      {"Whether a text ends so.", `"abc".endsWith("bc")`},
	"matches":       {"Whether a regular expression (RE2) finds something.", `"abc".matches("^a.c$")`},
	"indexOf":       {"Where a text is first, from a place on; -1: nowhere.", `"abca".indexOf("a", 1) == 3`},
	"lastIndexOf":   {"Where it is last, up to a place.", `"abca".lastIndexOf("a") == 3`},
	"substring":     {"The text from a place, to before another.", `"abcd".substring(1, 3) == "bc"`},
	"charAt":        {"The character at a place.", `"abc".charAt(1) == "b"`},
	"split":         {"The parts between separators, so many at most.", `"a:b".split(":") == ["a", "b"]`},
	"join":          {"The texts of a list, with a separator between.", `["a", "b"].join("-") == "a-b"`},
	"replace":       {"The text with another in place of each, or of so many.", `"aba".replace("a", "c") == "cbc"`},
	"format":        {"The text with values in place of `%s`, `%d` and others.", `"%s-%d".format(["a", 1]) == "a-1"`},
	"lowerAscii":    {"The text with A to Z in lower case.", `"Ab".lowerAscii() == "ab"`},
	"upperAscii":    {"The text with a to z in upper case.", `"Ab".upperAscii() == "AB"`},
	"trim":          {"The text without white space around it.", `" a ".trim() == "a"`},
	"reverse":       {"The text from its end.", `"abc".reverse() == "cba"`},
	"strings.quote": {"The text in quotation marks, with escapes.", `strings.quote("a") == "\"a\""`},
	"size":          {"How many characters, bytes or elements there are.", `size("abc") == 3`},

	"string":    {"A value as a text.", `string(7) == "7"`},
	"int":       {"A value as a whole number.", `int("7") == 7`},
	"uint":      {"A value as a whole number that is not negative.", `uint(7) == 7u`},
	"double":    {"A value as a number with a fraction.", `double("0.5") == 0.5`},
	"bool":      {"A text as a bool.", `bool("true")`},
	"bytes":     {"A text as bytes, in UTF-8.", `bytes("a") == b"a"`},
	"dyn":       {"The value, whose type is not checked when the file is read.", `dyn(1) == 1`},
	"type":      {"The type of a value.", `type(1) == int`},
	"duration":  {"A text as a duration.", `duration("90s") > duration("1m")`},
	"timestamp": {"A text, or seconds since 1970, as an instant.", `timestamp("2026-03-01T12:00:00Z") > timestamp(0)`},

	"getFullYear":     {"The year, in UTC or in a time zone.", `timestamp("2026-03-01T12:00:00Z").getFullYear() == 2026`},
	"getMonth":        {"The month, from 0.", `timestamp("2026-03-01T12:00:00Z").getMonth() == 2`},
	"getDate":         {"The day of the month, from 1.", `timestamp("2026-03-01T12:00:00Z").getDate() == 1`},
	"getDayOfMonth":   {"The day of the month, from 0.", `timestamp("2026-03-01T12:00:00Z").getDayOfMonth() == 0`},
	"getDayOfWeek":    {"The day of the week, 0 for Sunday.", `timestamp("2026-03-01T12:00:00Z").getDayOfWeek() == 0`},
	"getDayOfYear":    {"The day of the year, from 0.", `timestamp("2026-03-01T12:00:00Z").getDayOfYear() == 59`},
	"getHours":        {"The hour, or all hours of a duration.", `timestamp("2026-03-01T12:00:00Z").getHours("Europe/Berlin") == 13`},
	"getMinutes":      {"The minute, or all minutes of a duration.", `duration("90m").getMinutes() == 90`},
	"getSeconds":      {"The second, or all seconds of a duration.", `duration("2m").getSeconds() == 120`},
	"getMilliseconds": {"The milliseconds of the second.", `timestamp("2026-03-01T12:00:00.5Z").getMilliseconds() == 500`},
}

const conditionsSay = "A condition compares numbers (`<` `<=` `>` `>=` `==` `!=`), calculates (`+` `-` `*` `/`) and joins comparisons (`&&` `||` `!`). `usage > 80% of RULE`, or `usage >= 80% of RULE@TIER`, is about [single keys](alerts.md#keys) and stands alone. RULE is the name of a rule in quotation marks, `\"*\"` or nothing: all requests."

var measuresSay = []struct{ name, says string }{
	{"rate", "Requests decided a second, all or those of an outcome."},
	{"block_rate", "The share of the requests that was refused, between 0 and 1."},
	{"undecided_rate", "The share that got 503 because the store failed."},
	{"fallback_rate", "The share that `on_store_error` decided."},
	{"holds", "Requests in flight that hold units."},
	{"hold_lost_rate", "The share of the requests that ended after their hold had run out."},
	{"cost_unknown_rate", "The share of the requests that ended whose cost could not be read."},
	{"store_down", "For how many seconds the store has been away."},
	{"store_calls", "Calls of the store a second."},
	{"store_error_rate", "The share of them that failed."},
	{"bans", "Running bans."},
	{"latency", "The time to decide a request in seconds, as a quantile: Q is above 0 and at most 1."},
	{"store_latency", "The time of a call of the store, likewise."},
	{"instances", "Instances that were seen in the last seconds."},
}

// placeholders are those of messages, and of refusals and errors.
var placeholders = []struct {
	title, says string
	names       []string
	about       map[string]string
}{
	{"Placeholders of messages", "In `message` and `messages`. For a brace, write `{{` or `}}`.", message.Placeholders[:], map[string]string{
		"violations":  "How many violations count, with this one; of a ban, how many led to it.",
		"warn_after":  "`warn_after` of the penalty.",
		"ban_after":   "`ban_after` of the penalty.",
		"retry_after": "When the same request would pass, such as 12m 5s; ∞: never.",
		"ban_left":    "How long the ban still runs; in `banned`, `still_banned` and `banned_by_hand`.",
		"limit":       "The limit that refused; for a running ban, all limits of the rule.",
	}},
	{"Placeholders of refusals and errors", "In the texts of `headers`, `bodies` and `grpc`. What is not known is empty, and in JSON outside of quotation marks `null`. Other braces stay as they are.", errorformat.Placeholders(), map[string]string{
		"message":             "The rule's message in the client's language, or Stint's own sentence.",
		"outcome":             "`limited`, `warned`, `banned`, `blocked` or `overloaded`; of other answers the status, such as `bad_gateway`.",
		"status":              "The status, a number.",
		"decision_id":         "As in the header `Stint-Decision`.",
		"retry_after":         "When the same request would pass, such as 12m 5s; ∞: never.",
		"retry_after_seconds": "As in the header `Retry-After`, a number.",
		"ban_left":            "How long the ban still runs, such as 12m 5s.",
		"limit":               "The limit that refused.",
		"limit_name":          "The name of that limit, which is that of the rule.",
		"violations":          "How many violations count, a number.",
		"warn_after":          "`warn_after` of the penalty, a number.",
		"ban_after":           "`ban_after` of the penalty, a number.",
	}},
}
