package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/rpclimit"
)

// Two servers share one limit of streams in a real Redis. When Redis dies, calls are decided all the
// same, and say so.
func TestServersShareRedis(t *testing.T) {
	redis := redistest.Start(t)
	var clients []pb.TestServiceClient
	limit := stint.MustLimit("streams: 2 in_flight")
	perHour := stint.MustLimit("calls: 1000 per 1h")
	for range 2 {
		bare, err := redislimit.Connect(bounded(t), "redis://"+redis.Addr, redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store := fleet.New(bare, fleet.Options{Deadline: 2 * time.Second, OnClose: bare.Close}) // a busy machine is no failure
		t.Cleanup(store.Close)
		limiter := stint.NewLimiter(store)
		decide := rpclimit.Budget{Limiter: limiter, Asks: func(_ context.Context, c *rpclimit.Call) ([]stint.Ask, error) {
			if strings.HasSuffix(c.Method, "/UnaryCall") {
				return []stint.Ask{{Key: "everybody", Limit: perHour}}, nil
			}
			return []stint.Ask{{Key: "everybody", Limit: limit}}, nil
		}}.Decide()
		clients = append(clients, dial(t, serve(t, &service{duplex: echo}, grpclimit.ServerOptions(rpclimit.Server{Decide: decide, Degraded: true})...)))
	}
	open := func(client pb.TestServiceClient) (pb.TestService_FullDuplexCallClient, error) {
		s, err := client.FullDuplexCall(bounded(t))
		if err == nil {
			if err = s.Send(new(pb.StreamingOutputCallRequest)); err == nil || errors.Is(err, io.EOF) {
				_, err = s.Recv()
			}
		}
		return s, err
	}
	for range 20 {
		a, err := open(clients[0])
		wantCode(t, err, codes.OK)
		b, err := open(clients[1])
		wantCode(t, err, codes.OK)
		for _, client := range clients {
			_, err = open(client)
			wantCode(t, err, codes.ResourceExhausted)
		}
		for _, s := range []pb.TestService_FullDuplexCallClient{a, b} {
			_ = s.CloseSend()
			if _, err := s.Recv(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
	}

	call := func() (degraded bool) {
		var header metadata.MD
		_, err := clients[0].UnaryCall(bounded(t), new(pb.SimpleRequest), grpc.Header(&header))
		wantCode(t, err, codes.OK)
		return len(header.Get("stint-degraded")) == 1
	}
	if call() {
		t.Error("degraded although Redis answers")
	}
	redis.Kill()
	await.Until(t, "nothing says that Redis is away", call)
}
