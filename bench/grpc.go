package main

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// healthy is the service of health checks, whose messages come with grpc-go.
type healthy struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (healthy) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return new(grpc_health_v1.HealthCheckResponse), nil
}

func emptyGRPC(string) (service, error) {
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, healthy{})
	return s.Serve, nil
}

// calling makes unary calls by turns over so many connections.
func calling(connections int) func(addr string) (asker, error) {
	return func(addr string) (asker, error) {
		all := make([]*grpc.ClientConn, connections)
		hangUp := func() {
			for _, c := range all {
				if c != nil {
					_ = c.Close()
				}
			}
		}
		for i := range all {
			var err error
			if all[i], err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				hangUp()
				return asker{}, err
			}
		}
		var calls atomic.Uint64
		request := &grpc_health_v1.HealthCheckRequest{Service: checkBody}
		return asker{
			ask: func(ctx context.Context) (bool, error) {
				c := all[calls.Add(1)%uint64(connections)]
				_, err := grpc_health_v1.NewHealthClient(c).Check(ctx, request)
				return err == nil, err
			},
			close: hangUp,
		}, nil
	}
}
