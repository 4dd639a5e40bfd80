// Package httplimit limits HTTP requests by the limits of package stint: it
// finds out who the client is, asks, tells the client in headers how it stands,
// and answers for the handler where a request is refused.
//
//	http.ListenAndServe(":8080", httplimit.Middleware{}.Wrap(mux)) // stint.DefaultLimit for each client's address
//
//	clients := httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
//	limited := httplimit.Middleware{Clients: &clients, Decide: httplimit.By(limiter, stint.MustLimit("api: 20 per 1s"), clients.Key)}
//	http.ListenAndServe(":8080", limited.Wrap(mux))
//
// A [Key] says whom or what a request counts for; [Clients] finds the client's
// address behind proxies. A [Decide] answers whether the request may pass; [By]
// makes one of a limit and a key, and anyone may write their own. [Middleware]
// does the rest: headers in a chosen [Dialect], problem details as the body, and
// requests held until it is their turn. [Watch] bans whose requests get certain
// responses, such as 401. [Transport] limits what goes out.
package httplimit
