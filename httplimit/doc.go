// Package httplimit limits HTTP requests by the limits of package stint: it
// finds out who the client is, asks, tells the client in headers how it stands,
// and answers for the handler where a request is refused.
//
//	var limiter stint.Limiter
//	perMinute := stint.MustLimit("100 per 1m")
//	limited := httplimit.Middleware{Decide: httplimit.By(&limiter, perMinute, httplimit.Clients{}.Key)}
//	http.ListenAndServe(":8080", limited.Wrap(mux))
//
// A [Key] says whom or what a request counts for; [Clients] finds the client's
// address behind proxies. A [Decide] answers whether the request may pass; [By]
// makes one of a limit and a key, and anyone may write their own. [Middleware]
// does the rest: headers in a chosen [Dialect], problem details as the body, and
// requests held until it is their turn. [Watch] bans whose requests get certain
// responses, such as 401. [Transport] limits what goes out.
package httplimit
