package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/rpclimit"
)

// BenchmarkUnary is a unary call over loopback, without limits, behind one, and refused.
func BenchmarkUnary(b *testing.B) {
	for name, options := range map[string][]grpc.ServerOption{
		"plain":   nil,
		"limited": grpclimit.ServerOptions(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("1000000000 per 1s"), rpclimit.Metadata("x-user"))}),
		"held":    grpclimit.ServerOptions(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("1000 in_flight"), rpclimit.Metadata("x-user"))}),
		"refused": grpclimit.ServerOptions(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("1 per 24h"), rpclimit.Metadata("x-user"))}),
	} {
		b.Run(name, func(b *testing.B) {
			client := dial(b, serve(b, &service{}, options...))
			ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "ann")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = client.UnaryCall(ctx, new(pb.SimpleRequest))
			}
		})
	}
}
