package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/rpclimit"
)

// start runs a server of health checks and returns a connection to it.
func start(server []grpc.ServerOption, client []grpc.DialOption) (cc *grpc.ClientConn, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer(server...)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	cc, err = grpc.NewClient(l.Addr().String(), append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	return cc, func() { _ = cc.Close(); s.Stop() }
}

// Each user may make 100 calls a minute, also on several servers that share a store.
func Example() {
	limiter, perMinute := new(stint.Limiter), stint.MustLimit("api: 100 per 1m") // counts in memory

	calls := rpclimit.Server{Decide: rpclimit.By(limiter, perMinute, rpclimit.Metadata("x-user"))}
	server := grpc.NewServer(grpclimit.ServerOptions(calls)...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())

	for name := range server.GetServiceInfo() {
		fmt.Println(name)
	}
	// Output: grpc.health.v1.Health
}

// Two calls an hour for each user. The client reads what remains, and why a call is refused.
func ExampleServerOptions() {
	var limiter stint.Limiter
	limits := rpclimit.Server{
		Decide: rpclimit.By(&limiter, stint.MustLimit("api: 2 per 1h"), rpclimit.Metadata("x-user")),
	}
	cc, stop := start(grpclimit.ServerOptions(limits), nil)
	defer stop()

	client := grpc_health_v1.NewHealthClient(cc)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "ann")
	for range 3 {
		var header metadata.MD
		_, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.Header(&header))
		fmt.Println(status.Code(err), header.Get("x-ratelimit-remaining"))
		for _, d := range status.Convert(err).Details() {
			switch d := d.(type) {
			case *errdetails.RetryInfo:
				fmt.Println("retry after", d.GetRetryDelay().AsDuration().Round(time.Minute))
			case *errdetails.QuotaFailure:
				fmt.Println(d.GetViolations()[0].GetSubject(), "-", d.GetViolations()[0].GetDescription())
			}
		}
	}
	// Output:
	// OK [1]
	// OK [0]
	// ResourceExhausted []
	// retry after 30m0s
	// limit:api - The limit is 2 per 1h.
}

// At most two streams of a client run at once, and each message on them waits for its turn.
func ExampleServerOptions_streams() {
	var limiter stint.Limiter
	limits := rpclimit.Server{
		Decide:      rpclimit.By(&limiter, stint.MustLimit("streams: 2 in_flight"), rpclimit.Peer),
		Received:    rpclimit.By(&limiter, stint.MustLimit("messages: 50 per 1s"), rpclimit.Peer),
		MessageWait: 5 * time.Second,
	}
	cc, stop := start(grpclimit.ServerOptions(limits), nil)
	defer stop()

	client := grpc_health_v1.NewHealthClient(cc)
	for range 3 {
		stream, err := client.Watch(context.Background(), new(grpc_health_v1.HealthCheckRequest))
		if err == nil {
			_, err = stream.Recv()
		}
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// The calls of a client leave at its own pace, and wait if the server asks to.
func ExampleDialOptions() {
	limits := rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("api: 20 per 1s burst 1"), rpclimit.Peer)}
	calls := rpclimit.Client{Limit: stint.MustLimit("health: 100 per 1s")}
	cc, stop := start(grpclimit.ServerOptions(limits), grpclimit.DialOptions(calls))
	defer stop()

	client := grpc_health_v1.NewHealthClient(cc)
	for range 3 { // the second and third are refused, and made again when the server allows it
		_, err := client.Check(context.Background(), new(grpc_health_v1.HealthCheckRequest))
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
}
