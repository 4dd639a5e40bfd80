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
// [Input] into [Plan]: the asks of a stint.Request. A file with any mistake is refused as
// a whole, and the error lists every mistake as file:line:column.
//
// [ParseFiles] makes one Set of several files, and [Read] reads those of a directory. Their
// lists are joined; enabled, ipv6_prefix, nat64_prefixes, credential_headers, refusal, errors and server may
// be in one file only. Set.Findings has things that are valid but probably not meant.
//
// docs/rules.md describes the file: its expressions and their variables, paths, tiers, keys, messages,
// formats of refusals, and malformed and ambiguous requests.
package rules
