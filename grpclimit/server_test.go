package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/rpclimit"
)

func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// retryAfter returns the delay of the RetryInfo of err; -1: it has none.
func retryAfter(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

// What passes has the limit in its header. What is refused has it in its trailer, costs nothing, and
// does not reach the handler.
func TestUnaryIsRefused(t *testing.T) {
	var handled atomic.Int64
	var limiter stint.Limiter
	limit := stint.MustLimit("api: 2 per 1h fixed_window")
	client := limited(t, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		handled.Add(1)
		return new(pb.SimpleResponse), nil
	}}, rpclimit.Server{Decide: rpclimit.By(&limiter, limit, rpclimit.Metadata("X-User"))})
	ctx := metadata.AppendToOutgoingContext(bounded(t), "x-user", "ann")

	for want := range 2 {
		var header metadata.MD
		if _, err := client.UnaryCall(ctx, new(pb.SimpleRequest), grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get("x-ratelimit-remaining"); len(got) != 1 || got[0] != strconv.Itoa(1-want) {
			t.Errorf("call %d: remaining %q", want, got)
		}
	}
	for range 3 {
		var header, trailer metadata.MD
		_, err := client.UnaryCall(ctx, new(pb.SimpleRequest), grpc.Header(&header), grpc.Trailer(&trailer))
		wantCode(t, err, codes.ResourceExhausted)
		if !strings.Contains(err.Error(), "Too many requests. The limit is 2 per 1h fixed_window.") {
			t.Error(err)
		}
		wait := retryAfter(err)
		if wait <= 0 || wait > time.Hour {
			t.Errorf("RetryInfo %s", wait)
		}
		if len(header) != 0 {
			t.Errorf("header %v: clients with a retry policy retry only without one", header)
		}
		if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != strconv.FormatInt(wait.Milliseconds(), 10) || wait%time.Millisecond != 0 {
			t.Errorf("pushback %q, RetryInfo %s", got, wait)
		}
		if got := trailer.Get("x-ratelimit-limit"); len(got) != 1 || got[0] != "2" {
			t.Errorf("limit %q", got)
		}
		var quota *errdetails.QuotaFailure
		for _, d := range status.Convert(err).Details() {
			if f, ok := d.(*errdetails.QuotaFailure); ok {
				quota = f
			}
		}
		if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "limit:api" || v[0].GetQuotaId() != "api" || v[0].GetQuotaValue() != 2 || strings.Contains(v[0].String(), "ann") {
			t.Errorf("QuotaFailure %v", quota)
		}
	}
	if n := handled.Load(); n != 2 {
		t.Errorf("%d calls were handled", n)
	}
	if _, err := client.UnaryCall(metadata.AppendToOutgoingContext(bounded(t), "x-user", "bob"), new(pb.SimpleRequest)); err != nil {
		t.Error("another user:", err)
	}
	_, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest)) // without a user
	wantCode(t, err, codes.InvalidArgument)
	_, err = client.UnaryCall(metadata.AppendToOutgoingContext(ctx, "x-user", "bob"), new(pb.SimpleRequest))
	wantCode(t, err, codes.InvalidArgument)
}

// The zero Server limits by the client's address, and in another dialect the metadata has other names.
func TestZeroServer(t *testing.T) {
	address := serve(t, &service{}, grpclimit.ServerOptions(rpclimit.Server{Dialect: httplimit.Draft11})...)
	client, ctx := dial(t, address), bounded(t)
	other := dial(t, address) // another connection is the same client
	for i := 0; ; i++ {       // the bucket fills up meanwhile
		var header, trailer metadata.MD
		_, err := client.UnaryCall(ctx, new(pb.SimpleRequest), grpc.Header(&header), grpc.Trailer(&trailer))
		if i >= 100 && status.Code(err) == codes.ResourceExhausted {
			if len(trailer.Get("ratelimit")) != 1 || len(trailer.Get("retry-after")) != 1 {
				t.Error(trailer)
			}
			return
		}
		if err != nil || len(header.Get("ratelimit-policy")) != 1 || i == 1000 {
			t.Fatal(i, err, header)
		}
		client, other = other, client
	}
}

// A client with a retry policy of grpc-go comes back when the trailer says.
func TestRetryPolicyObeys(t *testing.T) {
	var handled atomic.Int64
	address := serve(t, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		handled.Add(1)
		return new(pb.SimpleResponse), nil
	}}, grpclimit.ServerOptions(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("1 per 300ms burst 1"), nil)})...)
	// Its own backoff would be a minute.
	client := dial(t, address, grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "60s", "maxBackoff": "60s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
	for range 3 {
		if _, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest)); err != nil {
			t.Fatal(err)
		}
	}
	if n := handled.Load(); n != 3 {
		t.Errorf("%d calls were handled", n)
	}
}

// What the codes are, and what is told.
func TestCodes(t *testing.T) {
	answer := func(a rpclimit.Answer, err error) rpclimit.Decide {
		return func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) { return a, err }
	}
	broken := rpclimit.By(stint.NewLimiter(new(away)), stint.MustLimit("x: 1 per 1m"), everybody)
	refused := stint.Decision{Outcome: stint.Limited, RetryAfter: stint.Never, Limit: stint.MustLimit("1 per 1m")}
	for name, c := range map[string]struct {
		server rpclimit.Server
		code   codes.Code
		retry  time.Duration // -1: none
		text   string
	}{
		"blocked":    {rpclimit.Server{Decide: answer(rpclimit.Answer{Blocked: true}, nil)}, codes.PermissionDenied, -1, "not accepted"},
		"message":    {rpclimit.Server{Decide: answer(rpclimit.Answer{Decision: refused, Message: "slow down\xff"}, nil)}, codes.ResourceExhausted, -1, "slow down?"},
		"never":      {rpclimit.Server{Decide: answer(rpclimit.Answer{Decision: refused}, nil)}, codes.ResourceExhausted, -1, "costs more than the limit"},
		"zero":       {rpclimit.Server{Decide: answer(rpclimit.Answer{}, nil)}, codes.ResourceExhausted, -1, "Too many requests"},
		"away":       {rpclimit.Server{Decide: broken}, codes.Unavailable, time.Second, "cannot check"},
		"away, pass": {rpclimit.Server{Decide: broken, Undecided: func(_ context.Context, _ *rpclimit.Call, err error) bool { return errors.Is(err, errAway) }}, codes.OK, -1, ""},
		"overloaded": {rpclimit.Server{Decide: answer(rpclimit.Answer{}, &httplimit.Overloaded{RetryAfter: 3 * time.Second})}, codes.Unavailable, 3 * time.Second, "overloaded"},
		"malformed":  {rpclimit.Server{Decide: answer(rpclimit.Answer{}, stint.ErrRequest)}, codes.InvalidArgument, -1, "cannot be counted"},
		"own":        {rpclimit.Server{Decide: answer(rpclimit.Answer{}, &rpclimit.Refusal{Code: code.Code_UNAUTHENTICATED, Message: "who?"})}, codes.Unauthenticated, -1, "who?"},
		"unlimited":  {rpclimit.Server{Decide: answer(rpclimit.Answer{Unlimited: true}, nil)}, codes.OK, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := limited(t, &service{duplex: echo}, c.server)
			_, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest))
			stream, _ := client.FullDuplexCall(bounded(t))
			_ = stream.CloseSend()
			_, streamErr := stream.Recv()
			for _, err := range []error{err, eof(streamErr)} {
				wantCode(t, err, c.code)
				if !strings.Contains(status.Convert(err).Message(), c.text) || retryAfter(err) != c.retry {
					t.Errorf("%v, retry after %s", err, retryAfter(err))
				}
			}
		})
	}
}

// A stream holds its place until it ends, however it ends.
func TestStreamHoldsUntilItEnds(t *testing.T) {
	untilDone := func(ss pb.TestService_FullDuplexCallServer) error {
		<-ss.Context().Done()
		return ss.Context().Err()
	}
	for name, c := range map[string]struct {
		handler func(pb.TestService_FullDuplexCallServer) error
		end     func(pb.TestService_FullDuplexCallClient, context.CancelFunc, net.Conn)
		code    codes.Code // in Answer.OnEnd
	}{
		"handler returns": {echo, func(s pb.TestService_FullDuplexCallClient, _ context.CancelFunc, _ net.Conn) { _ = s.CloseSend() }, codes.OK},
		"handler fails": {func(ss pb.TestService_FullDuplexCallServer) error {
			_, _ = ss.Recv()
			_, _ = ss.Recv()
			return status.Error(codes.DataLoss, "")
		}, func(s pb.TestService_FullDuplexCallClient, _ context.CancelFunc, _ net.Conn) { _ = s.CloseSend() }, codes.DataLoss},
		"handler panics": {func(ss pb.TestService_FullDuplexCallServer) error {
			_, _ = ss.Recv()
			_, _ = ss.Recv()
			panic("a bug")
		}, func(s pb.TestService_FullDuplexCallClient, _ context.CancelFunc, _ net.Conn) { _ = s.CloseSend() }, codes.Unknown},
		"client cancels":                {untilDone, func(_ pb.TestService_FullDuplexCallClient, cancel context.CancelFunc, _ net.Conn) { cancel() }, codes.Canceled},
		"client cancels while it reads": {echo, func(_ pb.TestService_FullDuplexCallClient, cancel context.CancelFunc, _ net.Conn) { cancel() }, codes.Canceled},
		"connection breaks":             {untilDone, func(_ pb.TestService_FullDuplexCallClient, _ context.CancelFunc, c net.Conn) { _ = c.Close() }, codes.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			var limiter stint.Limiter
			limit := stint.MustLimit("streams: 1 in_flight")
			by := rpclimit.By(&limiter, limit, everybody)
			ends := make(chan rpclimit.End, 1)
			decide := func(ctx context.Context, c *rpclimit.Call, longest time.Duration) (rpclimit.Answer, error) {
				a, err := by(ctx, c, longest)
				if settle := a.OnEnd; settle != nil {
					a.OnEnd = func(ctx context.Context, e *rpclimit.End) { settle(ctx, e); ends <- *e }
				}
				return a, err
			}
			recovers := func(server any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = status.Error(codes.Internal, "panic")
					}
				}()
				return handler(server, ss)
			}
			address := serve(t, &service{duplex: c.handler}, append([]grpc.ServerOption{grpc.ChainStreamInterceptor(recovers)}, grpclimit.ServerOptions(rpclimit.Server{Decide: decide})...)...)
			conns := make(chan net.Conn, 1)
			client := dial(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				conns <- conn
				return conn, err
			}))
			ctx, cancel := context.WithCancel(bounded(t))
			defer cancel()
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(new(pb.StreamingOutputCallRequest)); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the stream holds nothing", func() bool { return held(t, &limiter, limit, "everybody") == 1 })
			second, err := dial(t, address).FullDuplexCall(bounded(t))
			if err == nil {
				_, err = second.Recv()
			}
			wantCode(t, err, codes.ResourceExhausted)
			if retryAfter(err) <= 0 || !strings.Contains(err.Error(), "in flight") {
				t.Errorf("%v, retry after %s", err, retryAfter(err))
			}

			c.end(stream, cancel, <-conns)
			e := <-ends
			if codes.Code(e.Code) != c.code || e.Panicked != (name == "handler panics") || e.Took <= 0 {
				t.Errorf("%+v, want %s", e, c.code)
			}
			if n := held(t, &limiter, limit, "everybody"); n != 0 {
				t.Errorf("%d units are held", n)
			}
		})
	}
}

// A unary call holds its place while it runs, too, and is charged what its response says.
func TestBudget(t *testing.T) {
	var limiter stint.Limiter
	tokens, running := stint.MustLimit("tokens: 100 per 1h fixed_window hold"), stint.MustLimit("running: 2 in_flight")
	ctx := bounded(t)
	fail := false
	client := limited(t, &service{
		unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			if n := held(t, &limiter, running, "ann"); n != 1 {
				t.Errorf("%d held while the handler runs", n)
			}
			if fail {
				return nil, status.Error(codes.Internal, "")
			}
			return &pb.SimpleResponse{Payload: payload("some words")}, nil
		},
		output: func(r *pb.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
			for range 3 {
				if err := ss.Send(&pb.StreamingOutputCallResponse{Payload: payload("words")}); err != nil {
					return err
				}
			}
			return nil
		},
	}, rpclimit.Server{Decide: rpclimit.Budget{
		Limiter: &limiter,
		Asks: func(_ context.Context, c *rpclimit.Call) ([]stint.Ask, error) {
			return []stint.Ask{{Key: "ann", Limit: tokens, Cost: 40}, {Key: "ann", Limit: running}}, nil
		},
		CostAfter: func(e *rpclimit.End) (int64, bool) {
			switch r := e.Last.(type) {
			case *pb.SimpleResponse:
				return int64(len(r.GetPayload().GetBody())), true
			case *pb.StreamingOutputCallResponse:
				return e.Sent * int64(len(r.GetPayload().GetBody())), true
			}
			return 0, false
		},
	}.Decide()})
	remaining := func(want int64) {
		t.Helper()
		d, err := limiter.Peek(ctx, "ann", tokens)
		if err != nil || d.Remaining != want || d.Held != 0 {
			t.Fatalf("%d remaining, %d held, %v; want %d", d.Remaining, d.Held, err, want)
		}
	}
	if _, err := client.UnaryCall(ctx, new(pb.SimpleRequest)); err != nil {
		t.Fatal(err)
	}
	remaining(90)
	stream, err := client.StreamingOutputCall(ctx, new(pb.StreamingOutputCallRequest))
	for err == nil {
		_, err = stream.Recv()
	}
	if eof(err) != nil {
		t.Fatal(err)
	}
	remaining(75)
	fail = true
	_, err = client.UnaryCall(ctx, new(pb.SimpleRequest))
	wantCode(t, err, codes.Internal)
	remaining(35) // unknown: what was held
	_, err = client.UnaryCall(ctx, new(pb.SimpleRequest))
	wantCode(t, err, codes.ResourceExhausted)
	remaining(35)
}

// Messages beyond a limit end the stream, whatever the handler makes of it. Single messages do not
// count.
func TestMessagesAreRefused(t *testing.T) {
	var limiter stint.Limiter
	two := rpclimit.By(&limiter, stint.MustLimit("two: 2 per 1h"), everybody)
	s := &service{
		duplex: func(ss pb.TestService_FullDuplexCallServer) error { _ = echo(ss); return nil },
		input: func(ss grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
			for n := int32(0); ; n++ {
				if _, err := ss.Recv(); errors.Is(err, io.EOF) {
					return ss.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
				} else if err != nil {
					return err
				}
			}
		},
		output: func(_ *pb.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
			for range 3 {
				_ = ss.Send(new(pb.StreamingOutputCallResponse))
			}
			return nil
		},
	}
	for name, server := range map[string]rpclimit.Server{
		"received": {Decide: rpclimit.By(nil, stint.MustLimit("9 per 1h"), everybody), Received: two},
		"sent":     {Decide: rpclimit.By(nil, stint.MustLimit("9 per 1h"), everybody), Sent: two},
	} {
		t.Run(name, func(t *testing.T) {
			client, ctx := limited(t, s, server), bounded(t)
			if err := limiter.Reset(ctx, "everybody", stint.MustLimit("two: 2 per 1h")); err != nil {
				t.Fatal(err)
			}
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for {
				if err = stream.Send(new(pb.StreamingOutputCallRequest)); err == nil {
					_, err = stream.Recv()
				}
				if err != nil {
					break
				}
				got++
			}
			if got != 2 {
				t.Errorf("%d messages", got)
			}
			_, err = stream.Recv()
			wantCode(t, err, codes.ResourceExhausted)
			if retryAfter(err) <= 0 || len(stream.Trailer().Get("x-ratelimit-limit")) != 1 {
				t.Errorf("%v, trailer %v", err, stream.Trailer())
			}

			// The limit is used up. What has one message is not refused for it.
			if _, err := client.UnaryCall(ctx, new(pb.SimpleRequest)); err != nil {
				t.Error(err)
			}
			up, err := client.StreamingInputCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = up.Send(new(pb.StreamingInputCallRequest))
			_, err = up.CloseAndRecv()
			down, downErr := client.StreamingOutputCall(ctx, new(pb.StreamingOutputCallRequest))
			for downErr == nil {
				_, downErr = down.Recv()
			}
			if name == "received" {
				wantCode(t, err, codes.ResourceExhausted)
				wantCode(t, eof(downErr), codes.OK)
			} else {
				wantCode(t, err, codes.OK)
				wantCode(t, downErr, codes.ResourceExhausted)
			}
		})
	}
}

// Messages that may wait do, and all arrive in order. The deadline of the call is respected.
func TestMessagesWait(t *testing.T) {
	for name, make := range map[string]func(rpclimit.Decide) rpclimit.Server{
		"received": func(d rpclimit.Decide) rpclimit.Server {
			return rpclimit.Server{Received: d, MessageWait: 10 * time.Second}
		},
		"sent": func(d rpclimit.Decide) rpclimit.Server {
			return rpclimit.Server{Sent: d, MessageWait: 10 * time.Second}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int64
			limiter := stint.Limiter{Observe: func(_ context.Context, _ *stint.Request, a *stint.Answer) {
				if !a.Decision.Allowed {
					refused.Add(1)
				}
			}}
			client := limited(t, &service{duplex: echo}, make(rpclimit.By(&limiter, stint.MustLimit("1 per 20ms"), everybody)))
			stream, err := client.FullDuplexCall(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: payload(strconv.Itoa(i))}); err != nil {
					t.Fatal(err)
				}
			}
			_ = stream.CloseSend()
			for i := range 10 {
				r, err := stream.Recv()
				if err != nil || string(r.GetPayload().GetBody()) != strconv.Itoa(i) {
					t.Fatalf("%d: %v, %v", i, r, err)
				}
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if refused.Load() == 0 {
				t.Error("no message had to wait")
			}

			client = limited(t, &service{duplex: echo}, make(rpclimit.By(nil, stint.MustLimit("1 per 15s"), everybody)))
			ctx, cancel := context.WithTimeout(bounded(t), 5*time.Second)
			defer cancel()
			stream, err = client.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(new(pb.StreamingOutputCallRequest))
			_ = stream.Send(new(pb.StreamingOutputCallRequest))
			for err == nil {
				_, err = stream.Recv()
			}
			wantCode(t, err, codes.ResourceExhausted) // at the deadline, it would be DEADLINE_EXCEEDED
		})
	}
}

// Keys see the peer, proxies that are trusted, the method, the message and the context.
func TestCallsAsKeysSeeThem(t *testing.T) {
	seen := make(chan rpclimit.Call, 1)
	key := rpclimit.ClientKey(httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	keys := make(chan string, 1)
	subject := func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(stint.WithSubject(ctx, "ann"), r)
	}
	decide := func(ctx context.Context, c *rpclimit.Call, _ time.Duration) (rpclimit.Answer, error) {
		seen <- *c
		keys <- key(ctx, c) + " " + rpclimit.Caller(ctx, c) + " " + rpclimit.Method(ctx, c) + " " + rpclimit.Metadata("X-Thing")(ctx, c)
		return rpclimit.Answer{Unlimited: true}, nil
	}
	clients := make(chan string, 1)
	options := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(subject)}, grpclimit.ServerOptions(rpclimit.Server{Decide: decide, Clients: &httplimit.Clients{}})...)
	client := dial(t, serve(t, &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		clients <- stint.Caller(stint.WithSubject(ctx, ""))
		return new(pb.SimpleResponse), nil
	}}, options...))
	ctx := metadata.AppendToOutgoingContext(bounded(t), "x-forwarded-for", "203.0.113.9, 192.0.2.7", "x-thing", "one")
	if _, err := client.UnaryCall(ctx, &pb.SimpleRequest{Payload: payload("hello")}); err != nil {
		t.Fatal(err)
	}
	c := <-seen
	request, ok := c.Message.(*pb.SimpleRequest)
	if c.Peer.String() != "127.0.0.1" || c.Target != "" || !ok || string(request.GetPayload().GetBody()) != "hello" {
		t.Errorf("%+v", c)
	}
	if got, want := <-keys, "192.0.2.7 subject=ann /grpc.testing.TestService/UnaryCall one"; got != want {
		t.Errorf("keys %q, want %q", got, want)
	}
	if got := <-clients; got != "client=127.0.0.1" {
		t.Errorf("the handler's context has %q", got)
	}
}

// A leaky bucket delays calls until their turn, and a deadline that comes first refuses at once.
func TestShape(t *testing.T) {
	limit := stint.MustLimit("10 per 1s leaky_bucket")
	client := limited(t, &service{}, rpclimit.Server{Decide: rpclimit.Shape(nil, limit, everybody)})
	start := time.Now()
	for range 3 {
		if _, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 190*time.Millisecond {
		t.Errorf("three calls took %s", took)
	}
	slow := limited(t, &service{}, rpclimit.Server{Decide: rpclimit.Shape(nil, stint.MustLimit("2 per 60s leaky_bucket"), everybody)})
	if _, err := slow.UnaryCall(bounded(t), new(pb.SimpleRequest)); err != nil {
		t.Fatal(err)
	}
	_, err := slow.UnaryCall(bounded(t), new(pb.SimpleRequest))
	wantCode(t, err, codes.ResourceExhausted)
}

// One call more than MaxInFlight is refused, also if the calls in flight are streams.
func TestMaxInFlight(t *testing.T) {
	client := limited(t, &service{duplex: echo}, rpclimit.Server{MaxInFlight: 2, Clients: &httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	from := func(address string) context.Context {
		return metadata.AppendToOutgoingContext(bounded(t), "x-forwarded-for", address)
	}
	var streams []pb.TestService_FullDuplexCallClient
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		s, err := client.FullDuplexCall(from(address))
		if err == nil {
			if err = s.Send(new(pb.StreamingOutputCallRequest)); err == nil {
				_, err = s.Recv()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	_, err := client.UnaryCall(from("192.0.2.3"), new(pb.SimpleRequest))
	wantCode(t, err, codes.Unavailable)
	if retryAfter(err) != time.Second {
		t.Error(retryAfter(err))
	}
	_ = streams[0].CloseSend()
	if _, err := streams[0].Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := client.UnaryCall(from("192.0.2.3"), new(pb.SimpleRequest)); err != nil {
		t.Error(err)
	}
}
