package rules_test

import (
	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/message"
)

// What docs/rules-reference.md says of names. TestReferenceHasAllNames compares them with those that
// there are.

const penaltySays = "A violation is a request that the rule's limits refuse, or a response with a status of `on_status`. With `{ban_after: 10, ban_for: 15m, growth: 2, max_ban: 1d}`, the tenth violation bans the key for 15 minutes, ten more for 30, and so on up to a day."

const expressionsSay = "Expressions are in CEL (<https://cel.dev>), at most 4096 bytes. A condition is a `bool`, a cost a number, a key a `string`, number, `bool` or a list of these. See [missing values](rules.md#missing-values-and-errors)."

var variablesSay = map[string]string{
	"request.method":     "The method, such as `POST`.",
	"request.path":       "The path in its [normal form](rules.md#paths-and-queries). Compare with `is` and `under`.",
	"request.host":       "The host in lower case, without a port. Not in `request.headers`.",
	"request.route":      "The gateway's route name, if any.",
	"request.headers":    "Headers, by lower-case name.",
	"request.query":      "Query parameters, by name.",
	"request.cookies":    "Cookies, by name.",
	"request.credential": "The [client's credential](rules.md#credentials-and-cookies): a token, API key, or user and password.",
	"body":               "The JSON request body, by field, such as `body.user.id`. Only at the gateway and in `Server.Wrap`.",
	"client.ip":          "The client's address. In a key, only the first `ipv6_prefix` bits of IPv6.",
	"operation":          "The operation that a check names.",
	"attrs":              "Attributes that a check gives, by name.",
	"claims":             "The claims of the client's valid token (JWT).",
	"secrets":            "Secrets of the section `server`, only for `hmac`.",
	"cost":               "The cost that a check gives.",
	"response.status":    "The upstream's status; 0 without an answer.",
	"response.headers":   "Headers and trailers, by lower-case name. Several lines are joined by `, `.",
	"response.bytes":     "Bytes of the body that passed.",
	"response.seconds":   "How long the request took.",
	"response.json":      "The JSON body, by field, such as `response.json.usage.total_tokens`.",
}

var macrosSay = []struct{ name, form, says, example string }{
	{"has", "has(a.b)", "Whether a field exists.", `has({"a": 1}.a)`},
	{"all", "list.all(x, condition)", "Whether all meet the condition.", `[1, 2].all(x, x > 0)`},
	{"exists", "list.exists(x, condition)", "Whether at least one does.", `[1, 2].exists(x, x > 1)`},
	{"exists_one", "list.exists_one(x, condition)", "Whether exactly one does.", `[1, 2].exists_one(x, x > 1)`},
	{"filter", "list.filter(x, condition)", "The ones that do.", `[1, 2].filter(x, x > 1) == [2]`},
	{"map", "list.map(x, value)", "A value for each; `list.map(x, condition, value)`: only for those that meet the condition.", `[1, 2].map(x, x * 10) == [10, 20]`},
}

var functionsSay = map[string]struct{ says, example string }{
	"cidr":   {"A network. `in` tests for addresses and whole networks.", `client.ip in cidr("192.0.2.0/24")`},
	"is":     {"Whether two paths are equal, [in any spelling](rules.md#paths-and-queries).", `"/A//login/".is("/a/login")`},
	"under":  {"Whether a path equals another or is below it, in any spelling.", `"/api/v1".under("/api")`},
	"folded": {"The path that `is` compares.", `"/A//login/".folded() == "/a/login"`},
	"sha256": {"A text's SHA-256, in hexadecimal.", `sha256("a").startsWith("ca978112")`},
	"list":   {"The networks of a list of the section `server`. `in` tests for addresses and whole networks.", `client.ip in list("bad")`},
	"hmac":   {"A text's HMAC-SHA256 with a secret, in hexadecimal.", `hmac(secrets.pepper, client.ip) != ""`},

	"contains":      {"Whether it contains a text.", `"abc".contains("b")`},
	"startsWith":    {"Whether it starts with a text.", `"abc".startsWith("ab")`},
	"endsWith":      {"Whether it ends with a text.", `"abc".endsWith("bc")`},
	"matches":       {"Whether a regular expression (RE2) matches.", `"abc".matches("^a.c$")`},
	"indexOf":       {"First index of a text, from an index on; -1: none.", `"abca".indexOf("a", 1) == 3`},
	"lastIndexOf":   {"Last index, up to an index; -1: none.", `"abca".lastIndexOf("a") == 3`},
	"substring":     {"The text from an index, to before another.", `"abcd".substring(1, 3) == "bc"`},
	"charAt":        {"The character at an index.", `"abc".charAt(1) == "b"`},
	"split":         {"The parts between separators, at most so many.", `"a:b".split(":") == ["a", "b"]`},
	"join":          {"A list's texts, with a separator between.", `["a", "b"].join("-") == "a-b"`},
	"replace":       {"The text with all, or so many, occurrences replaced.", `"aba".replace("a", "c") == "cbc"`},
	"format":        {"The text with values for `%s`, `%d` and others.", `"%s-%d".format(["a", 1]) == "a-1"`},
	"lowerAscii":    {"The text with A to Z in lower case.", `"Ab".lowerAscii() == "ab"`},
	"upperAscii":    {"The text with a to z in upper case.", `"Ab".upperAscii() == "AB"`},
	"trim":          {"The text without white space around it.", `" a ".trim() == "a"`},
	"reverse":       {"The text reversed.", `"abc".reverse() == "cba"`},
	"strings.quote": {"The text quoted, with escapes.", `strings.quote("a") == "\"a\""`},
	"size":          {"Number of characters, bytes or elements.", `size("abc") == 3`},

	"string":    {"A value as a text.", `string(7) == "7"`},
	"int":       {"A value as a whole number.", `int("7") == 7`},
	"uint":      {"A value as a non-negative whole number.", `uint(7) == 7u`},
	"double":    {"A value as a floating-point number.", `double("0.5") == 0.5`},
	"bool":      {"A text as a bool.", `bool("true")`},
	"bytes":     {"A text as bytes, in UTF-8.", `bytes("a") == b"a"`},
	"dyn":       {"The value, without type checks when the file is read.", `dyn(1) == 1`},
	"type":      {"A value's type.", `type(1) == int`},
	"duration":  {"A text as a duration.", `duration("90s") > duration("1m")`},
	"timestamp": {"A text, or seconds since 1970, as a time.", `timestamp("2026-03-01T12:00:00Z") > timestamp(0)`},

	"getFullYear":     {"The year, in UTC or a time zone.", `timestamp("2026-03-01T12:00:00Z").getFullYear() == 2026`},
	"getMonth":        {"The month, from 0.", `timestamp("2026-03-01T12:00:00Z").getMonth() == 2`},
	"getDate":         {"Day of the month, from 1.", `timestamp("2026-03-01T12:00:00Z").getDate() == 1`},
	"getDayOfMonth":   {"Day of the month, from 0.", `timestamp("2026-03-01T12:00:00Z").getDayOfMonth() == 0`},
	"getDayOfWeek":    {"Day of the week, 0 for Sunday.", `timestamp("2026-03-01T12:00:00Z").getDayOfWeek() == 0`},
	"getDayOfYear":    {"Day of the year, from 0.", `timestamp("2026-03-01T12:00:00Z").getDayOfYear() == 59`},
	"getHours":        {"The hour, or a duration in hours.", `timestamp("2026-03-01T12:00:00Z").getHours("Europe/Berlin") == 13`},
	"getMinutes":      {"The minute, or a duration in minutes.", `duration("90m").getMinutes() == 90`},
	"getSeconds":      {"The second, or a duration in seconds.", `duration("2m").getSeconds() == 120`},
	"getMilliseconds": {"The milliseconds of the second.", `timestamp("2026-03-01T12:00:00.5Z").getMilliseconds() == 500`},
}

const conditionsSay = "A condition compares numbers (`<` `<=` `>` `>=` `==` `!=`), calculates (`+` `-` `*` `/`) and joins comparisons (`&&` `||` `!`). `usage > 80% of RULE`, or `usage >= 80% of RULE@TIER`, is about [single keys](alerts.md#keys) and stands alone. RULE is a quoted rule name; `\"*\"` or nothing means all requests."

var measuresSay = []struct{ name, says string }{
	{"rate", "Requests decided a second, all or with an outcome."},
	{"block_rate", "The share of requests refused, 0 to 1."},
	{"undecided_rate", "The share answered 503 because the store failed."},
	{"fallback_rate", "The share that `on_store_error` decided."},
	{"holds", "Requests in flight that hold units."},
	{"hold_lost_rate", "The share of ended requests whose hold had expired."},
	{"cost_unknown_rate", "The share of ended requests whose cost could not be read."},
	{"store_down", "Seconds that the store has been away."},
	{"store_calls", "Store calls a second."},
	{"store_error_rate", "The share of them that failed."},
	{"bans", "Bans in force."},
	{"latency", "Quantile Q of the seconds to decide a request; Q is above 0, at most 1."},
	{"store_latency", "The same for store calls."},
	{"instances", "Instances seen in the last seconds."},
}

// placeholders are those of messages, and of refusals and errors.
var placeholders = []struct {
	title, says string
	names       []string
	about       map[string]string
}{
	{"Placeholders of messages", "For `message` and `messages`. Write `{{` or `}}` for a brace.", message.Placeholders[:], map[string]string{
		"violations":  "Violations so far, with this one; for a ban, those that led to it.",
		"warn_after":  "`warn_after` of the penalty.",
		"ban_after":   "`ban_after` of the penalty.",
		"retry_after": "When the same request would pass, such as 12m 5s; ∞: never.",
		"ban_left":    "Time left of the ban; in `banned`, `still_banned` and `banned_by_hand`.",
		"limit":       "The limit that refused; for a running ban, all of the rule's limits.",
	}},
	{"Placeholders of refusals and errors", "For texts of `headers`, `bodies` and `grpc`. Unknown values are empty, in JSON outside quotation marks `null`. Other braces stay.", errorformat.Placeholders(), map[string]string{
		"message":             "The rule's message in the client's language, or Stint's own.",
		"outcome":             "`limited`, `warned`, `banned`, `blocked` or `overloaded`; for other answers the status, such as `bad_gateway`.",
		"status":              "The status, a number.",
		"decision_id":         "As in header `Stint-Decision`.",
		"retry_after":         "When the same request would pass, such as 12m 5s; ∞: never.",
		"retry_after_seconds": "As in header `Retry-After`, a number.",
		"ban_left":            "Time left of the ban, such as 12m 5s.",
		"limit":               "The limit that refused.",
		"limit_name":          "That limit's name, which is its rule's.",
		"violations":          "Violations so far, a number.",
		"warn_after":          "`warn_after` of the penalty, a number.",
		"ban_after":           "`ban_after` of the penalty, a number.",
	}},
}
