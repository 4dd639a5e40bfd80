// Package rules reads the rules file and says, of each request, which limits it
// faces under which keys.
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
// [Parse] compiles a file once into a [Set] that never changes, and [Set.Asks]
// turns an [Input] into [Matches]: the asks of a stint.Request. A file with
// anything wrong is refused as a whole, with every problem told as
// file:line:column.
//
// [ParseFiles] makes one Set of several files, and [Read] finds those of a
// directory. What they list is appended; enabled, ipv6_prefix and server stand in
// one of them. What works as written but hardly as meant is in Set.Findings.
//
// # Order
//
// Where enabled is false, nothing matches. Else the safelist is read first: if
// one of its expressions is true, no rule applies. Then the blocklist, then the
// rules from top to bottom, without those in mode off. Every rule that matches
// applies. [Set.Explain] tells all these steps of one request.
//
// A rule with default: true is for what no other rule limits. Default rules are
// looked at last, and only if no other rule applies. A rule in shadow mode refuses
// nothing, so it does not keep the default rules from a request; a default rule that
// applies does not keep another from it.
//
// # Expressions
//
// safelist, blocklist, tiers, match, key and cost are expressions in CEL
// (https://cel.dev), checked for their types when the file is read, with CEL's
// standard functions and its strings extension. They see these variables:
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
// cidr("192.0.2.0/24") is a network: an address, or a network, is in it if all of
// it is. The Host header is request.host, and not among request.headers.
//
// sha256(text) is the SHA-256 of a text, and hmac(secrets.NAME, text) its HMAC-SHA256
// under a secret, both in hexadecimal: a key made so does not show what it is made of,
// in a store, a log or an answer. Short or guessable texts, such as addresses, can be
// found from their sha256 by trying; they take hmac. Secrets are the instance's: see
// [Instance]. An expression can do nothing with one but hmac.
//
// Claims are the instance's, too, which verifies tokens. A request without a valid
// token has no claims, so that a rule with key: claims.sub is not for it. Another must
// be, or a client escapes both by sending a token that is not valid:
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
// request.path is a normal form of what the client sent, which [ReadTarget] makes:
// escapes are decoded once, "//" is "/", and "." and ".." are resolved. So /a//b,
// /%61/b and /a/b are one path. A slash at the end and the case of letters count.
// request.query is the query as browsers read it: only & separates, and an escape that
// is malformed stands for itself. The target as it was sent is not to be seen: one path
// has countless spellings, and each would count apart.
//
// Many applications do not tell /login/, /LOGIN or /login;a from /login. A rule that
// guards a path therefore says request.path.is("/login"), or request.path.under("/api")
// for /api and all in it. Both compare folded paths: one form of all that some server
// takes for the same; see [FoldPath]. request.path.folded() is that form, for a key or
// for "in". In a safelist, and behind !, they let more pass than == does.
//
// A target with a #, a space or a control character, in a path also an escaped control
// character, is refused wherever it comes from. Some targets and methods are read
// differently by different servers. An [Ambiguity] says why:
//
//	dot_segments     /a/../login, however it is written
//	encoded_slash    /a%2Flogin; here it is a slash
//	backslash        /a\login, /a%5Clogin; here it is no slash
//	semicolon        /login;a, /login%3Ba; here it is a part of the name
//	double_encoding  /%256Cogin; here it is /%6Cogin
//	leading_slashes  //host/login; here it is /host/login
//	not_utf8         /%C0%AFlogin; a header that is needed and is no UTF-8
//	query_semicolon  ?a=1;user=me; here the value of a has a semicolon in it
//	query_nul        ?user=me%00
//	method_case      post; here it is not POST
//
// [Set.Ambiguous] tells whether any of that could mislead the set's expressions. A
// server refuses such requests unless its settings allow it.
//
// # What comes several times
//
// Of a header in several lines, or of a parameter that a query has several times, some
// servers take the first, some the last and some all. And some take one name for
// another: X_User for X-User (CGI, WSGI, PHP), user[] or User for user (PHP, Rack,
// ASP.NET). These are ambiguous, too:
//
//	repeated_header     X-User: a, and another line X-User: b
//	twin_header         X_User: b, also alone
//	repeated_parameter  ?user=a&user=b
//	twin_parameter      ?user=a&user[]=b, ?USER=b
//
// An expression that looks one of them up is an error, an [AmbiguousError], which refuses
// the request, where it could be decided otherwise. What no expression of a request needs
// may come as often as it likes, but for headers that HTTP allows once: Authorization,
// Content-Type, User-Agent and the like. [Instance].Allow takes from all that what an
// application needs; then an expression sees all lines of a header, joined by ", ", and
// the first value of a parameter.
//
// Headers that are lists by HTTP, such as Accept and Via, may repeat: their lines are
// joined by ", ", and those of Cookie would be by "; " where they are allowed. A file may
// name more of them:
//
//	repeatable: {headers: [x-roles], parameters: [tag]}
//
// Expressions see all values of these, joined by ", ". A line with a comma in it is like
// any other: what stands before Stint may have joined two, and the application gets that
// one line.
//
// # Tiers
//
// A tier is a kind of client, such as those who pay: a name and a condition. A
// rule may grant other limits to a tier: times, from 1 to 1,000,000, multiplies
// amount and burst of each of the rule's limits; limits replaces them. In a rule
// the first tier counts, in the order in which the rule names them, whose
// condition is true; if none is, the rule's own limits count. A condition is
// evaluated at most once for a request, and only if a rule that applies needs it.
//
// Tiers count apart: what a key has used in one tier leaves its other tiers alone, and
// so the limits of each hold whatever the others do. That is so even if the numbers of
// two tiers are the same. A key whose requests are of several tiers has the limits of
// each of them, so a condition should not be what a client can choose. Penalties are
// the rule's: violations and bans of a key count whatever its tier. A tier's limits are
// named RULE@TIER in headers and problem details.
//
// # Leases
//
// A limit may say lease, as in 60000 per 1m lease 5% or {amount: 60000, period: 1m,
// lease: 5%}: see fleet.Leases. It does something only where a request faces that limit
// alone, and the rule has no penalty. Of a fixed window, an instance that is killed takes
// with it what it had leased, until the window ends: of M instances and a lease of 5%, at
// most 2.5% of the amount divided by M.
//
// # Controls
//
// [Controls] are what operators change while everything runs: the kill switch,
// modes, further entries of both lists, overrides of limits and bans by hand.
// [Set.With] makes a set with them of the file's. What cannot work, such as an
// entry for a rule that is no more, is told and left out. An entry with an end
// comes to it by itself, by the clock of this machine.
//
// With controls the order is: the safelist, the file's before what was added; the
// blocklist, likewise; bans of networks, which decide before any rule is looked
// at; then for each rule its match, its key, a ban of that key, its cost and its
// limits. Of several networks that hit, the longest ban counts, and so of several
// keys. A ban of a key refuses nothing where the rule is in mode shadow. A request
// that is malformed for one rule that is enforced is an error even if another rule's ban
// hits.
//
// An override is for a key, or for a tier. The one for the key counts before the
// one for the tier, and of two for the same the later. Its times multiplies what
// the file grants: to the tier of the request or, if the rule names none that the
// request is of, to all. It may also be for a tier that the rule does not name:
// that is looked at after those the rule names, in the file's order of tiers.
//
// An override changes numbers, and a key keeps its counts, as stint.Spec.Name says of
// limits that share one: while an override comes and goes, no more is admitted than the
// larger limit allows. Each tier's count stays its own. A tier that only overrides name
// has counts of its own as long as one of them is in force, and shares those of the
// rule before and after. A limit of an override that shares the count of one with a
// lease has the same lease; one with another lease is refused.
//
// # Keys
//
// A key says whom or what is counted. A string is the key itself; an int, uint or
// double is its decimal digits; a bool is true or false. A list is its parts,
// each followed by a NUL byte: no two lists with different parts give the same
// key, and none gives the key of a string, because a NUL byte in what a request
// sends is an error. To count everyone together, use key: '"all"'.
//
// A rule without a key counts by what is done and by whom: its key is the list
// [operation, client.ip], in which the name of the gateway's route stands for an
// operation that is unknown. If only one of the two is known, the other part is
// empty. The rule does not apply if neither is known.
//
// In a key, client.ip is how the client is counted: an IPv4 address itself, an
// IPv6 address by its first ipv6_prefix bits, as in 2001:db8:1:2::/64, because
// whoever has one address there commonly has all of them. Everywhere else it is
// the full address.
//
// # Responses as violations
//
// Under penalty, on_status: [401, 404] takes responses with these statuses for
// violations of the key, as if a limit had refused the request, whether or not the
// rule has limits; without any, it refuses nothing but while a ban runs:
//
//	rules:
//	  - name: guessing
//	    match: request.path.is("/login")
//	    key: client.ip
//	    penalty: {on_status: [401], ban_after: 20, ban_for: 1h}
//
// Who sees the responses counts the violations: see Rule.OnStatus. A rule in shadow
// mode counts none.
//
// # Messages
//
// What a rule tells clients that it refuses, in place of the server's own sentence:
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
// limited, warned and banned are the outcomes, all of which are refusals; banned is of
// bans that the rule's penalty imposed, and banned_by_hand of those of operators.
// message is for whatever has no text of its own. A text is one line, or a mapping of
// lines by language (BCP 47): the client gets the one that goes best with its
// Accept-Language, and the first where none does.
//
// A text may name these, each a number, a wait such as 45s, 12m 5s or 1d 4h (∞ where no
// wait would help, or a ban does not end), or a limit as the file has it:
//
//	{violations}   how many count, this one among them; of a ban, how many led to it
//	{warn_after}, {ban_after}
//	{retry_after}  when the same request would pass
//	{ban_left}     how long the ban still runs; in banned and banned_by_hand
//	{limit}        what refused; of a ban that runs, all limits of the rule
//
// {{ and }} are braces. Where several rules refuse, it is the text of the one whose limit
// keeps the client waiting longest, or whose penalty warned or banned.
//
// # What is missing, and what is wrong
//
// A header, query name, attribute or claim that is not there, an index beyond the end of
// a list, an unknown client or request and an empty operation are missing. An
// expression that needs one is missing itself, unless || or && decides without
// it. A match, tier, safelist or blocklist that is missing is false. A rule whose
// key is missing or null, or has such a part, does not apply.
//
// Every other failure is an error that wraps stint.ErrRequest, as is a missing
// cost: a number too large, text that is no number, an address that is none, a key
// that is empty, too long or no UTF-8. Such a request is refused as malformed
// rather than let past the rule. So is one that makes an expression work more than
// MaxWork, or with a text of more than MaxRequestText. Where one operand of || or && is
// missing and the other fails, the failure counts. A rule in shadow mode refuses nothing:
// where a request is malformed for it, it asks nothing (Matches.Unread).
package rules
