// Package rules reads rules files and finds, for each request, which limits it faces
// under which keys.
//
//	trusted_proxies: [10.0.0.0/8]
//	safelist:  ['client.ip in cidr("192.0.2.0/24")']
//	blocklist: ['request.headers["user-agent"].contains("badbot")']
//	tiers:
//	  gold: attrs.plan == "gold"
//	  free: attrs.plan == "free"
//	rules:
//	  - name: api
//	    key: attrs.user
//	    limits: [100 per 1m, 1000 per 1h]
//	    tiers:
//	      gold: {times: 10}
//	      free: {limits: [10 per 1m]}
//	  - name: login
//	    match: request.method == "POST" && request.path.is("/login")
//	    key: client.ip
//	    limits: [5 per 1m sliding_log, 100 per 1h]
//
// [Parse] compiles a file once into a [Set] that never changes, and [Set.Asks] turns an
// [Input] into [Matches]: the asks of a stint.Request. A file with any mistake is refused as
// a whole, and the error lists every mistake as file:line:column.
//
// [ParseFiles] makes one Set of several files, and [Read] reads those of a directory. Their
// lists are joined; enabled, ipv6_prefix and server may be in one file only. What is valid
// but probably not meant is in Set.Findings.
//
// # Order
//
// If enabled is false, nothing matches. Otherwise the safelist is evaluated first: if one of
// its expressions is true, no rule applies. Then comes the blocklist, and then the rules from
// top to bottom, without those in mode off. Every rule that matches applies. [Set.Explain]
// lists all these steps for one request.
//
// A rule with default: true is for requests that no other rule limits. Default rules are
// evaluated last, and only if no other rule applies. A rule in shadow mode refuses nothing,
// so it does not count as another rule here, and several default rules can apply together.
//
// # Expressions
//
// safelist, blocklist, tiers, match, key and cost are expressions in CEL
// (https://cel.dev), checked for their types when the file is read, with CEL's
// standard functions and its strings extension. Their variables are:
//
//	request.method   string
//	request.path     string
//	request.host     string
//	request.route    string               the name of the gateway's route, if it has one
//	request.headers  map(string, string)  names in lower case
//	request.query    map(string, string)  values by name
//	client.ip        string
//	operation        string
//	attrs            map(string, dyn)     what the caller says
//	claims           map(string, dyn)     what the client's token (JWT) says, if it is valid
//	secrets          map(string, secret)  for hmac alone
//	cost             int                  what the caller says the request costs
//
// cidr("192.0.2.0/24") is a network. An address is in it, and so is a network if all of its
// addresses are. The Host header is request.host, and not one of request.headers.
//
// sha256(text) is the SHA-256 of a text, and hmac(secrets.NAME, text) its HMAC-SHA256 under
// a secret, both in hexadecimal. Use them for keys that must not show personal data in the
// store, in logs and in answers. Short or guessable texts, such as addresses, can be found
// from their sha256 by trying; use hmac for them. Secrets belong to the instance: see
// [Instance]. An expression can use a secret in hmac only.
//
// Claims belong to the instance, too, which verifies tokens. A request without a valid token
// has no claims, so a rule with key: claims.sub does not apply to it. Add a rule that does,
// or a client escapes both by sending an invalid token:
//
//	rules:
//	  - name: user
//	    key: claims.sub
//	    limits: [100 per 1m]
//	  - name: nobody
//	    match: '!has(claims.sub)'
//	    key: client.ip
//	    limits: [20 per 1m]
//
// # Paths and queries
//
// request.path is a normal form of the path that the client sent, made by [ReadTarget]:
// escapes are decoded once, "//" is "/", and "." and ".." are resolved. So /a//b, /%61/b and
// /a/b are one path. A slash at the end and the case of letters count. request.query is the
// query as browsers read it: only & separates, and a malformed escape stands for itself. The
// target as it was sent is not available: one path has countless spellings, and each would
// count apart.
//
// Many applications treat /login/, /LOGIN or /login;a as /login. A rule that guards a path
// therefore says request.path.is("/login"), or request.path.under("/api") for /api and all
// below it. Both compare folded paths. request.path.folded() is the folded path, for a key or
// for "in". In a safelist, and behind !, is and under let more pass than == does. Folding
// means, in this order:
//
//   - escapes are decoded, also those that appear when others have been decoded, and the
//     path ends at a NUL
//   - a backslash is a slash
//   - in each segment, a semicolon is removed with what follows it, and then spaces and dots
//     at the end, unless the segment is "." or ".."
//   - empty segments and "." are removed, and ".." with the segment before it
//   - letters that differ in case only are the same; those of ASCII are in lower case
//   - there is a slash at the beginning, and none at the end
//
// A target with a #, a space or a control character is always refused, and so is a path with
// an escaped control character. Some targets and methods are read differently by different
// servers. An [Ambiguity] says why:
//
//	dot_segments     /a/../login, however it is written
//	encoded_slash    /a%2Flogin; here it is a slash
//	backslash        /a\login, /a%5Clogin; here it is not a slash
//	semicolon        /login;a, /login%3Ba; here it is a part of the name
//	double_encoding  /%256Cogin; here it is /%6Cogin
//	leading_slashes  //host/login; here it is /host/login
//	not_utf8         /%C0%AFlogin; a header that is needed and is not UTF-8
//	query_semicolon  ?a=1;user=me; here the value of a has a semicolon in it
//	query_nul        ?user=me%00
//	method_case      post; here it is not POST
//
// [Set.Ambiguous] reports which of these could mislead the set's expressions. A server
// refuses such requests unless its settings allow them.
//
// # Repeated headers and parameters
//
// If a header comes in several lines, or a parameter several times in a query, some servers
// take the first, some the last and some all of them. And some take one name for another:
// X_User for X-User (CGI, WSGI, PHP), user[] or User for user (PHP, Rack, ASP.NET). These are
// ambiguous, too:
//
//	repeated_header     X-User: a, and another line X-User: b
//	twin_header         X_User: b, also alone
//	repeated_parameter  ?user=a&user=b
//	twin_parameter      ?user=a&user[]=b, ?USER=b
//
// An expression that looks one of them up fails with an [AmbiguousError], and the request is
// refused, unless || or && decides without it. What no expression needs may repeat, except
// headers that HTTP allows once: Authorization, Content-Type, User-Agent and others.
// [Instance].Allow lists kinds that an application needs. Expressions then see all lines of a
// header, joined by ", ", and the first value of a parameter.
//
// Headers that are lists by HTTP, such as Accept and Via, may repeat: their lines are joined
// by ", ", and those of Cookie, where they are allowed, by "; ". A file may name more:
//
//	repeatable: {headers: [x-roles], parameters: [tag]}
//
// Expressions see all values of these, joined by ", ". A single line that contains a comma
// is like any other: a proxy before Stint may have joined two lines, and the application gets
// the same one line.
//
// # Tiers
//
// A tier is a kind of client, such as those who pay: a name and a condition. A rule may
// give other limits to a tier: times, from 1 to 1,000,000, multiplies amount and burst of
// each of the rule's limits; limits replaces them. The first tier whose condition is true
// counts, in the order in which the rule names them; if none is true, the rule's own limits
// count. A condition is evaluated at most once for a request, and only if a rule that applies
// needs it.
//
// Each tier has counts of its own, even if its numbers are the same as another's. A key whose
// requests are of several tiers has the limits of each of them, so a condition should not be
// something that a client can choose. Penalties belong to the rule: violations and bans of a
// key count in every tier. A tier's limits are named RULE@TIER in headers and problem
// details.
//
// # Leases
//
// A limit may have a lease, as in 60000 per 1m lease 5% or {amount: 60000, period: 1m,
// lease: 5%}: see fleet.Leases. It has an effect only where a request faces that limit alone
// and the rule has no penalty. If an instance is killed, the units that it had leased of a
// fixed window are lost until the window ends: with M instances and a lease of 5%, at most
// 2.5% of the amount divided by M.
//
// # Controls
//
// [Controls] are what operators change while a server runs: the kill switch, modes, further
// entries of both lists, overrides of limits, and manual bans. [Set.With] applies them to the
// file's set. An entry that cannot work, such as one for a rule that no longer exists, is
// reported and has no effect. An entry with an end stops by itself, by the instance's clock.
//
// With controls the order is: the safelist, the file's entries before added ones; the
// blocklist, likewise; bans of networks, before any rule; then, for each rule, its match, its
// key, a ban of that key, its cost and its limits. If several networks, or several keys, are
// banned, the longest ban counts. A ban of a key refuses nothing if the rule is in mode
// shadow. A request that is malformed for one enforced rule is an error even if another rule
// has a ban for it.
//
// An override is for a key or for a tier. The one for the key counts before the one for the
// tier, and of two for the same the later one. Its times multiplies the limits of the file:
// those of the request's tier, or the rule's own. It may also be for a tier that the rule
// does not name: such tiers come after those that the rule names, in the file's order.
//
// An override changes numbers, and a key keeps its counts, as described at stint.Spec.Name:
// while an override comes and goes, no more is admitted than the larger limit allows. A tier
// that only overrides name has counts of its own while one of them is in force, and shares
// those of the rule before and after. A limit of an override that shares the count of a limit
// with a lease has the same lease; a different lease is refused.
//
// # Keys
//
// A key is whom or what the limits of a rule count. A string is the key itself; an int, uint
// or double is its decimal digits; a bool is true or false. A list is its parts, each
// followed by a NUL byte: no two lists with different parts give the same key, and none gives
// the key of a string, because a NUL byte in a request's text is an error. To count everyone
// together, use key: '"all"'.
//
// A rule without a key counts by the list [operation, client.ip]; if the operation is
// unknown, the name of the gateway's route takes its place. If one of the two is unknown, its
// part is empty. If both are, the rule does not apply.
//
// In a key, client.ip is an IPv4 address itself, but of an IPv6 address only the first
// ipv6_prefix bits, as in 2001:db8:1:2::/64: a client that has one address there usually has
// all of them. Everywhere else it is the full address.
//
// # Responses as violations
//
// Under penalty, on_status: [401, 404] counts responses with these statuses as violations of
// the key, as if a limit had refused the request. The rule may have limits or not; without
// any, it refuses nothing except while a ban runs:
//
//	rules:
//	  - name: guessing
//	    match: request.path.is("/login")
//	    key: client.ip
//	    penalty: {on_status: [401], ban_after: 20, ban_for: 1h}
//
// The program that sees the responses counts the violations: see Rule.OnStatus. A rule in
// shadow mode counts none.
//
// # Messages
//
// A rule may have its own texts for clients that it refuses:
//
//	message: No more for now.
//	messages:
//	  limited: Try again in {retry_after}.
//	  warned:
//	    en: "{violations} of {ban_after}: try again in {retry_after}."
//	    zh-Hans: "第 {violations} 次，共 {ban_after} 次。"
//	  banned: Locked for {ban_left}.
//	  banned_by_hand: Write to help@example.com.
//
// limited, warned and banned are outcomes, and all of them refuse; banned is for bans by the
// rule's penalty, and banned_by_hand for manual bans. message is for outcomes without a text
// of their own. A text is one line, or a mapping of lines by language (BCP 47): the client
// gets the one that fits its Accept-Language best, and the first if none fits.
//
// A text may contain these placeholders. Each is a number, a wait such as 45s, 12m 5s or
// 1d 4h (∞ if no wait would help, or a ban does not end), or a limit as in the file:
//
//	{violations}   how many count, including this one; of a ban, how many led to it
//	{warn_after}, {ban_after}
//	{retry_after}  when the same request would pass
//	{ban_left}     how long the ban still runs; in banned and banned_by_hand
//	{limit}        the limit that refused; for a running ban, all limits of the rule
//
// {{ and }} are braces. If several rules refuse, the text is that of the rule whose limit
// keeps the client waiting longest, or whose penalty warned or banned.
//
// # Missing values and errors
//
// A header, query parameter, attribute or claim that is not there, an index beyond the end of
// a list, an unknown client or request and an empty operation are missing. An expression that
// needs one is missing itself, unless || or && decides without it. A match, tier, safelist or
// blocklist expression that is missing is false. A rule whose key is missing or null, or has
// such a part, does not apply.
//
// Every other failure is an error that wraps stint.ErrRequest, and so is a missing cost: a
// number that is too large, a text that is not a number, an invalid address, a key that is
// empty, too long or not UTF-8. Such a request is refused as malformed rather than let past
// the rule. So is a request that makes an expression take more than 100,000 steps, or that
// has a text of more than 68 KiB. If one operand of || or && is missing and the other fails,
// the failure counts. A rule in shadow mode refuses nothing: if a request is malformed for
// it, it asks nothing (Matches.Unread).
package rules
