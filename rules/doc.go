// Package rules reads the rules file and says, of each request, which limits it
// faces under which keys.
//
//	trusted_proxies: [10.0.0.0/8]
//	safelist:  ['client.ip in cidr("192.0.2.0/24")']
//	blocklist: ['request.headers["user-agent"].contains("badbot")']
//	rules:
//	  - name: login
//	    match: request.method == "POST" && request.path == "/login"
//	    key: client.ip
//	    limits: [5 per 1m sliding_log, 100 per 1h]
//
// [Parse] compiles a file once into a [Set] that never changes, and [Set.Asks]
// turns an [Input] into [Matches]: the asks of a stint.Request. A file with
// anything wrong is refused as a whole, with every problem told as
// file:line:column.
//
// # Order
//
// Where enabled is false, nothing matches. Else the safelist is read first: if
// one of its expressions is true, no rule applies. Then the blocklist, then the
// rules from top to bottom, without those in mode off. Every rule that matches
// applies.
//
// # Expressions
//
// safelist, blocklist, match, key and cost are expressions in CEL
// (https://cel.dev), checked for their types when the file is read, with CEL's
// standard functions and its strings extension. They see these variables:
//
//	request.method   string
//	request.path     string
//	request.host     string
//	request.headers  map(string, string)  names in lower case; several lines joined by ", "
//	request.query    map(string, string)  the first value of each name
//	client.ip        string
//	operation        string
//	attrs            map(string, dyn)     what the caller says
//	cost             int                  what the caller says the request costs
//
// cidr("192.0.2.0/24") is a network: an address, or a network, is in it if all of
// it is. The Host header is request.host, and not among request.headers.
//
// # Keys
//
// A key says whom or what is counted. A string is the key itself; an int, uint or
// double is its decimal digits; a bool is true or false. A list is its parts,
// each followed by a NUL byte: no two lists with different parts give the same
// key, and none gives the key of a string, because a NUL byte in what a request
// sends is an error. To count everyone together, use key: '"all"'.
//
// In a key, client.ip is how the client is counted: an IPv4 address itself, an
// IPv6 address by its first ipv6_prefix bits, as in 2001:db8:1:2::/64, because
// whoever has one address there commonly has all of them. Everywhere else it is
// the full address.
//
// # What is missing, and what is wrong
//
// A header, query name or attribute that is not there, an index beyond the end of
// a list, an unknown client or request and an empty operation are missing. An
// expression that needs one is missing itself, unless || or && decides without
// it. A match, safelist or blocklist that is missing is false. A rule whose key is
// missing or null, or has such a part, does not apply.
//
// Every other failure is an error that wraps stint.ErrRequest, as is a missing
// cost: a number too large, text that is no number, an address that is none, a key
// that is empty, too long or no UTF-8. Such a request is refused as malformed
// rather than let past the rule. Where one operand of || or && is missing and the
// other fails, the failure counts.
package rules
