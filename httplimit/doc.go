// Package httplimit applies the limits of package stint to HTTP requests. It finds
// the client, asks the limiter, sets rate limit headers, and answers refused
// requests in place of the handler.
//
//	http.ListenAndServe(":8080", httplimit.Middleware{}.Wrap(mux)) // 100 per 1m for each client's address
//
//	clients := httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
//	limited := httplimit.Middleware{Clients: &clients, Decide: httplimit.By(limiter, stint.MustLimit("api: 20 per 1s"), clients.Key)}
//	http.ListenAndServe(":8080", limited.Wrap(mux))
//
// A [Key] returns the key that a request counts under. [Clients] finds the client's
// address behind proxies. A [Decide] decides whether a request may pass: [By] makes
// one from a limit and a key, or write your own. [Middleware] does the rest: it sets
// the headers of a [Dialect], writes problem details, and delays requests until their
// turn; an [ErrorFormat] replaces problem details by an API's own format. [Budget] decides requests whose
// cost is known only when they end. [Watch] bans clients that get certain responses, such as 401.
// [Transport] limits outgoing requests, and waits when a server asks to:
//
//	upstream := &httplimit.Transport{Limiter: limiter, Limit: stint.MustLimit("upstream: 20 in_flight"), MaxPause: time.Minute}
//	client := http.Client{Transport: upstream} // 20 for each host at once; Retry-After is obeyed
package httplimit
