// Package grpclimit applies the limits of package stint to the calls of grpc-go servers and
// clients, by interceptors. Package rpclimit has the settings, keys and decisions.
//
//	limits := rpclimit.Server{Decide: rpclimit.By(limiter, stint.MustLimit("api: 20 per 1s"), rpclimit.Metadata("x-user"))}
//	server := grpc.NewServer(grpclimit.ServerOptions(limits)...)
//
//	calls := rpclimit.Client{Limit: stint.MustLimit("billing: 50 per 1s")}
//	conn, err := grpc.NewClient(target, append(grpclimit.DialOptions(calls), grpc.WithTransportCredentials(creds))...)
//
// A refused call costs nothing, and its handler is not called. Its status is RESOURCE_EXHAUSTED
// with google.rpc.RetryInfo and google.rpc.QuotaFailure, and its trailer has the metadata of the
// limits:
//
//	for _, d := range status.Convert(err).Details() {
//		if info, ok := d.(*errdetails.RetryInfo); ok {
//			time.Sleep(info.GetRetryDelay().AsDuration())
//		}
//	}
//
// The clients of DialOptions do that by themselves.
//
// To limit the connections of grpc-go itself, see grpc.MaxConcurrentStreams and
// keepalive.ServerParameters.
package grpclimit
