package rulestest

// grammar has, for each word, the lines that may replace it, with equal probability; a line that is there
// twice is twice as likely. A line has words in <>. <#> is the next number, and <rule> and <key> are a rule
// of the file and a key of the kind that it counts: a rule's name begins with the kind of its key.
//
// Rules and requests draw the same few users, clients and operations, and limits are small, so
// that rules apply, refuse and ban.
var grammar = map[string][]string{
	// The rules file.
	"file": {`tiers: {gold: attrs.plan == "gold", odd: int(attrs.size) % 2 == 1}
<enabled><safelist><blocklist>rules:
<rules>`},
	"enabled":   {"", "", "", "", "", "enabled: true\n", "ipv6_prefix: 48\n"},
	"safelist":  {"", "safelist: ['attrs.vip == true', 'client.ip in cidr(\"192.0.2.128/25\")']\n"},
	"blocklist": {"", "blocklist: ['operation == \"bad\"']\n"},
	"rules":     {"<each>", "<each><each>", "<each><each><each>", "<each><each><each><each>", "<each><each><each><default>", "<each><each><each><each><each><default><default>"},
	"each":      {"  - {<rule of a file>}\n"},
	"default":   {"  - {<keyed>, limits: [<rates>], default: true<mode><penalty>}\n"},

	// Kinds of rules.
	"rule of a file": {
		"<keyed>, limits: [<rates>]<match><cost><mode><on error><tiers><message>",
		"<keyed>, limits: [<rates>]<match><cost><mode><tiers>, penalty: {<marks>}<message>",
		"<keyed>, limits: [<rates>]<match><cost><mode>, penalty: {<marks>}",                               // bans that overlap with those of others
		"<keyed>, limits: [<few> per <time> leaky_bucket burst <few>], shape: true<match><mode><penalty>", // it delays
		"<keyed>, limits: [<held>]<match><mode><tiers><penalty>",
		"<keyed>, limits: [<budget>, <slots>]<match>, unit: tokens<estimate><true cost><debt><max hold><mode>",
		"<keyed>, limits: [<few> per <time> lease <lease>%]<match><mode>",
		"<keyed>, limits: [<calendar>]<match><cost><mode><penalty>",
		"<keyed><match>, penalty: {on_status: [401, 404], <marks>}", // it watches responses
	},
	"keyed": {
		"name: user<#>, key: attrs.user",
		"name: client<#>, key: client.ip",
		"name: operation<#>, key: operation",
		"name: pair<#>, key: '[request.method, attrs.user]'",
		"name: all<#>, key: '\"all\"'",
		"name: default<#>", // [operation, client.ip]
	},
	"match":    {"", "", "", `, match: operation == "login"`, `, match: 'has(attrs.user) && client.ip != "192.0.2.3"'`, `, match: 'request.path.under("/v1")'`},
	"cost":     {"", "", "", ", cost: 2", ", cost: int(attrs.size)", ", cost: 'has(attrs.size) ? int(attrs.size) : cost'"},
	"mode":     {"", "", "", "", ", mode: shadow", ", mode: off"},
	"on error": {"", ", on_store_error: allow", ", on_store_error: deny, decision_timeout: 2s"},
	"message":  {"", ", messages: {limited: 'In {retry_after}.', banned_by_hand: {en: Locked., de: Gesperrt.}}"},
	"tiers": {"", "", ", tiers: {gold: {times: 3}}", ", tiers: {odd: {times: 2}, gold: {times: 5}}",
		", tiers: {odd: {limits: [<few> per <time> fixed_window]}}"},

	// Limits. Two of one rule differ in algorithm, so that they count apart.
	"rates":     {"<rate>", "<rate>", "<window>, <bucket>", "<window>, <bucket>, <log>"},
	"rate":      {"<window>", "<bucket>", "<log>"},
	"window":    {"<few> per <time> fixed_window", "<few> per <time> sliding_window", "{amount: <few>, period: <time>, algorithm: sliding_window, buckets: 5}"},
	"bucket":    {"<few> per <time>", "<few> per <time> token_bucket burst <few>", "<few> per <time> leaky_bucket burst <few>", "{amount: <few>, period: <time>, cost: 2}"},
	"log":       {"<few> per <time> sliding_log"},
	"calendar":  {"<few> per day", "<few> per week in Europe/Berlin starts sunday", "{amount: <few>, per: month, in: America/New_York, starts: 31}", "<few> per year starts 04-06"},
	"held":      {"<budget>", "<slots>", "<few> per <time>, <slots>", "<few> per <time> token_bucket hold 45s"},
	"budget":    {"1<few> per <time> fixed_window hold", "1<few> per <time> sliding_log hold 1m retry 2s debt 5"},
	"slots":     {"<few> in_flight", "<few> in_flight hold 10s"},
	"estimate":  {", cost: cost", ", cost: 3", ", cost: 'has(attrs.size) ? int(attrs.size) : 1'"},
	"true cost": {"", ", cost_after: response.json.usage.total_tokens", ", cost_after: int(response.bytes) / 100, unsettled: give_back"},
	"debt":      {"", ", debt: 0", ", debt: 50%"},
	"max hold":  {"", ", max_hold: 50%"},
	"lease":     {"5", "20"},
	"few":       {"1", "2", "3", "4", "5", "7"},
	"time":      {"1s", "10s", "1m", "1h"},

	// Penalties.
	"penalty": {"", "", ", penalty: {<marks>}"},
	"marks": {"warn_after: 1", "ban_after: <mark>, ban_for: <ban time>", "warn_after: 1, ban_after: <mark>, ban_for: <ban time>",
		"ban_after: <mark>, ban_for: <ban time>, forget_after: 1h, growth: 2, max_ban: 1d"},
	"mark":     {"1", "2", "3"},
	"ban time": {"5s", "1m", "30m"},

	// The file of Envoy's rate limit service.
	"envoy": {`domain: shop
descriptors:
  - {key: user<limited>}
  - {key: operation, value: login<limited>, descriptors: [{key: user<limited>}]}
  - {key: path, value: /v1/*<wildcard><limited>}
`},
	"limited":  {"", ", rate_limit: {unlimited: true}", ", rate_limit: {unit: <unit>, requests_per_unit: <few>}<flags>", ", rate_limit: {unit: <unit>, requests_per_unit: <few>}<flags>"},
	"flags":    {"", "", ", shadow_mode: true", ", quota_mode: true", ", quota_mode: true"},
	"wildcard": {"", ", share_threshold: true"},
	"unit":     {"second", "minute", "hour", "day"},

	// Steps, and their subjects.
	"action":   {"check", "check", "check", "check", "check", "check", "check", "check", "check", "hold", "hold", "settle", "charge", "ban", "lift", "override"},
	"after":    {"0s", "0s", "0s", "0s", "0s", "0s", "20ms", "1s", "1s", "7s", "1m", "31m"},
	"check":    {`{<client><operation><attrs><asked cost>}`, `{<client><operation><attrs><asked cost>}`, `{<client><operation><attrs><request><asked cost>}`, `{<call>}`},
	"hold":     {`{<client><operation><attrs><asked cost>}`},
	"charge":   {`{<client><operation><attrs><asked cost>}`},
	"ban":      {`{"rule":"<rule>","key":<key>,"for":"<ban time>"}`, `{"rule":"<rule>","key":<key>}`, `{"network":"192.0.2.<host>","for":"<ban time>"}`},
	"lift":     {`{"rule":"<rule>","key":<key>}`, `{"rule":"<rule>","key":<key>}`, `{"network":"192.0.2.<host>"}`},
	"override": {`{"rule":"<rule>","key":<key>,"times":<few>}`, `{"rule":"<rule>","key":<key>,"times":<few>,"for":"<ban time>"}`, `{"rule":"<rule>","tier":"gold","times":<few>}`},

	"client":     {`"client":"192.0.2.<host>"`, `"client":"192.0.2.<host>"`, `"client":"192.0.2.<host>"`, `"client":"2001:db8::<host>"`},
	"host":       {"1", "2", "3", "200"},
	"operation":  {"", `,"operation":"<name>"`, `,"operation":"<name>"`},
	"name":       {"login", "login", "read", "bad"},
	"attrs":      {"", `,"attrs":{"user":"<user>"<attr>}`, `,"attrs":{"user":"<user>"<attr>}`, `,"attrs":{"user":"<user>"<attr>}`},
	"attr":       {"", "", `,"size":<size>`, `,"plan":"gold","size":<size>`, `,"plan":"gold"`, `,"vip":true`},
	"user":       {"u1", "u1", "u2"},
	"size":       {"0", "1", "2", "5", "9", "-1", `"x"`},
	"asked cost": {"", "", "", "", `,"cost":0`, `,"cost":2`, `,"cost":6`},
	"request":    {`,"request":{"method":"<method>","path":"<path>"}`},
	"method":     {"GET", "POST"},
	"path":       {"/v1/x", "/other"},
	"call":       {`"domain":"shop","descriptors":[<descriptor>]`, `"domain":"shop","descriptors":[<descriptor>,<descriptor>]`},
	"descriptor": {`{"entries":[{"key":"user","value":"<user>"}]}`, `{"entries":[{"key":"operation","value":"login"},{"key":"user","value":"<user>"}]}`,
		`{"entries":[{"key":"operation","value":"login"}],"hits_addend":2}`, `{"entries":[{"key":"path","value":"<path>"}]}`,
		`{"entries":[{"key":"user","value":"<user>"}],"hits_addend":<few>}`, `{"entries":[{"key":"user","value":"<user>"}],"hits_addend":<few>,"is_negative_hits":true}`},

	// Keys, by the beginnings of rule names.
	"user key":      {`"<user>"`},
	"client key":    {`"192.0.2.<host>"`},
	"operation key": {`"<name>"`},
	"pair key":      {`["<method>","<user>"]`},
	"all key":       {`"all"`},
	"default key":   {`["<name>","192.0.2.<host>"]`},
}
