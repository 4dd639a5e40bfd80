package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/rpclimit"
)

// service answers as its functions say.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	output func(*pb.StreamingOutputCallRequest, grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error
	input  func(grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error
	duplex func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return s.unary(ctx, r)
}

func (s *service) StreamingOutputCall(r *pb.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return s.output(r, ss)
}

func (s *service) StreamingInputCall(ss grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	return s.input(ss)
}

func (s *service) FullDuplexCall(ss pb.TestService_FullDuplexCallServer) error { return s.duplex(ss) }

// echo sends each message back until the client ends the stream.
func echo(ss pb.TestService_FullDuplexCallServer) error {
	for {
		r, err := ss.Recv()
		if err != nil {
			return eof(err)
		}
		if err := ss.Send(&pb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// serve runs s on a port of loopback until the test ends, and returns its address.
func serve(t testing.TB, s *service, options ...grpc.ServerOption) string {
	t.Helper()
	if s.unary == nil {
		s.unary = func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return new(pb.SimpleResponse), nil
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return l.Addr().String()
}

// dial returns a client of a server.
func dial(t testing.TB, address string, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	return pb.NewTestServiceClient(connect(t, address, options...))
}

func connect(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// limited serves s behind limits.
func limited(t testing.TB, s *service, limits rpclimit.Server) pb.TestServiceClient {
	t.Helper()
	return dial(t, serve(t, s, grpclimit.ServerOptions(limits)...))
}

func payload(text string) *pb.Payload { return &pb.Payload{Body: []byte(text)} }

// context of a test, bounded so that a mistake is no hang.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("%v: %s, want %s", err, got, want)
	}
}

// held returns how many units of a key are held under a limit.
func held(t testing.TB, l *stint.Limiter, limit *stint.Limit, key string) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return d.Held
}

// away is a Store that decides nothing.
type away struct{ stint.Memory }

var errAway = errors.New("the store is away")

func (*away) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, fmt.Errorf("redis: %w", errAway)
}

// everybody is a Key.
func everybody(context.Context, *rpclimit.Call) string { return "everybody" }
