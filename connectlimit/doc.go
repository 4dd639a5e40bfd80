// Package connectlimit applies the limits of package stint to the calls of servers and clients of
// connectrpc.com/connect, by interceptors, in all three protocols: Connect, gRPC and gRPC-Web. Package
// rpclimit has the settings, keys and decisions. It is a module of its own, so that programs without
// connect do not depend on it.
//
//	limits := connectlimit.Server(rpclimit.Server{Decide: rpclimit.By(limiter, stint.MustLimit("api: 20 per 1s"), rpclimit.Metadata("x-user"))})
//	mux.Handle(itemsv1connect.NewItemsHandler(items, connect.WithInterceptors(limits)))
//
//	calls := connectlimit.Client(rpclimit.Client{Limit: stint.MustLimit("billing: 50 per 1s")})
//	client := billingv1connect.NewBillingClient(http.DefaultClient, url, connect.WithInterceptors(calls))
//
// A refused call costs nothing, and its handler is not called. Its error is a *connect.Error with
// connect.CodeResourceExhausted, google.rpc.RetryInfo and google.rpc.QuotaFailure in its Details, and
// the metadata of the limits in its Meta. Clients made with Client wait as RetryInfo says. If a
// message of a stream was refused, the client's Meta has the metadata of the stream, from the header,
// and then that of the message.
package connectlimit
