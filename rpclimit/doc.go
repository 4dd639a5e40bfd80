// Package rpclimit applies the limits of package stint to remote procedure calls. Package
// grpclimit (grpc-go) and the module connectlimit (connectrpc.com/connect) share it: how
// calls are counted, decided and refused, and how clients wait.
//
//	limits := rpclimit.Server{Decide: rpclimit.By(limiter, stint.MustLimit("api: 20 per 1s"), rpclimit.Metadata("x-user"))}
//	server := grpc.NewServer(grpclimit.ServerOptions(limits)...)
//
//	calls := rpclimit.Client{Limit: stint.MustLimit("billing: 50 per 1s")}
//	conn, err := grpc.NewClient(target, append(options, grpclimit.DialOptions(calls)...)...)
//
// A [Key] returns the key that a call counts under. A [Decide] decides whether a call, or a
// message of a stream, may pass: [By] makes one from a limit and a key, or write your own.
// [Budget] decides calls whose cost is known only when they end. [Watch] bans clients whose
// calls end with certain codes. [Server] and [Client] are the settings of a server and of a
// client.
//
// [Gate] and [Pacer] are for authors of interceptors for other libraries.
package rpclimit
