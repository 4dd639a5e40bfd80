package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/rpclimit"
)

// refusesFirst returns a handler that refuses the first n calls with a code and a RetryInfo.
func refusesFirst(n int64, c codes.Code, delay time.Duration, calls *atomic.Int64) func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if calls.Add(1) > n {
			return new(pb.SimpleResponse), nil
		}
		s, err := status.New(c, "not now").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	}
}

// A Client makes a refused call again when the server allows it, and only then.
func TestClientObeysRetryInfo(t *testing.T) {
	const delay = 150 * time.Millisecond
	for name, c := range map[string]struct {
		client  rpclimit.Client
		refused int64
		code    codes.Code
		delay   time.Duration
		calls   int64
		want    codes.Code
	}{
		"again":         {rpclimit.Client{}, 2, codes.ResourceExhausted, delay, 3, codes.OK},
		"unavailable":   {rpclimit.Client{}, 1, codes.Unavailable, delay, 2, codes.OK},
		"three times":   {rpclimit.Client{}, 9, codes.ResourceExhausted, delay, 3, codes.ResourceExhausted},
		"five times":    {rpclimit.Client{Attempts: 5}, 9, codes.ResourceExhausted, delay, 5, codes.ResourceExhausted},
		"once":          {rpclimit.Client{Attempts: 1}, 9, codes.ResourceExhausted, delay, 1, codes.ResourceExhausted},
		"refuse":        {rpclimit.Client{Refuse: true}, 9, codes.ResourceExhausted, delay, 1, codes.ResourceExhausted},
		"ignored":       {rpclimit.Client{MaxRetryDelay: -1}, 9, codes.ResourceExhausted, delay, 1, codes.ResourceExhausted},
		"too long":      {rpclimit.Client{}, 9, codes.ResourceExhausted, time.Hour, 1, codes.ResourceExhausted},
		"past deadline": {rpclimit.Client{}, 9, codes.ResourceExhausted, 30 * time.Second, 1, codes.ResourceExhausted},
		"negative":      {rpclimit.Client{}, 9, codes.ResourceExhausted, -delay, 1, codes.ResourceExhausted},
		"another code":  {rpclimit.Client{}, 9, codes.Aborted, delay, 1, codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			client := dial(t, serve(t, &service{unary: refusesFirst(c.refused, c.code, c.delay, &calls)}), grpclimit.DialOptions(c.client)...)
			start := time.Now()
			_, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest))
			wantCode(t, err, c.want)
			if calls.Load() != c.calls {
				t.Errorf("%d calls, want %d", calls.Load(), c.calls)
			}
			if took := time.Since(start); took < time.Duration(c.calls-1)*delay {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// While a server has asked to wait, other calls of the method are not sent: they fail, or wait.
func TestClientHoldsBackOthers(t *testing.T) {
	var calls atomic.Int64
	address := serve(t, &service{unary: refusesFirst(1, codes.ResourceExhausted, 30*time.Second, &calls), duplex: echo})
	client, ctx := dial(t, address, grpclimit.DialOptions(rpclimit.Client{Refuse: true, Key: rpclimit.Metadata("x-user")})...), bounded(t)
	ann := metadata.AppendToOutgoingContext(ctx, "x-user", "ann")
	for range 3 {
		_, err := client.UnaryCall(ann, new(pb.SimpleRequest))
		wantCode(t, err, codes.ResourceExhausted)
		if after := retryAfter(err); after <= 25*time.Second || after > 30*time.Second {
			t.Errorf("retry after %s", after)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls were sent", calls.Load())
	}
	if _, err := client.UnaryCall(metadata.AppendToOutgoingContext(ctx, "x-user", "bob"), new(pb.SimpleRequest)); err != nil {
		t.Error("another key:", err)
	}
	if _, err := client.FullDuplexCall(ann); err != nil {
		t.Error("another method:", err)
	}

	// One that waits sees at once that its deadline comes first.
	calls.Store(0)
	client = dial(t, address, grpclimit.DialOptions(rpclimit.Client{})...)
	_, err := client.UnaryCall(ctx, new(pb.SimpleRequest))
	wantCode(t, err, codes.ResourceExhausted)
	_, err = client.UnaryCall(ctx, new(pb.SimpleRequest))
	wantCode(t, err, codes.DeadlineExceeded)
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Error("not at once", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = client.UnaryCall(canceled, new(pb.SimpleRequest))
	wantCode(t, err, codes.Canceled)
	if calls.Load() != 1 {
		t.Errorf("%d calls were sent", calls.Load())
	}
}

// A stream that was refused is not repeated, but the next waits.
func TestClientStreamNotesRetryInfo(t *testing.T) {
	address := serve(t, &service{duplex: echo}, grpclimit.ServerOptions(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("1 per 30s"), everybody)})...)
	client, ctx := dial(t, address, grpclimit.DialOptions(rpclimit.Client{Refuse: true})...), bounded(t)
	for i := range 3 {
		stream, err := client.FullDuplexCall(ctx)
		if i == 2 { // not sent
			wantCode(t, err, codes.ResourceExhausted)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
		if _, err = stream.Recv(); i == 1 {
			wantCode(t, err, codes.ResourceExhausted)
		}
	}
}

// A Client's own limit refuses or waits, and what it refuses is not sent.
func TestClientLimit(t *testing.T) {
	var calls atomic.Int64
	address := serve(t, &service{unary: refusesFirst(0, 0, 0, &calls), duplex: echo})
	client := dial(t, address, grpclimit.DialOptions(rpclimit.Client{Limit: stint.MustLimit("own: 2 per 1h"), Refuse: true})...)
	for i := range 4 {
		_, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest))
		if i < 2 {
			wantCode(t, err, codes.OK)
			continue
		}
		wantCode(t, err, codes.ResourceExhausted)
		var refused *stint.RefusedError
		var refusal *rpclimit.Refusal
		if !errors.As(err, &refused) || refused.Limit.Spec().Name != "own" || !errors.As(err, &refusal) || retryAfter(err) <= 0 || !strings.HasPrefix(err.Error(), "rpc error: code = ResourceExhausted desc = ") {
			t.Errorf("%v", err)
		}
	}
	_, err := client.FullDuplexCall(bounded(t))
	wantCode(t, err, codes.ResourceExhausted)
	if calls.Load() != 2 {
		t.Errorf("%d calls were sent", calls.Load())
	}

	calls.Store(0)
	client = dial(t, address, grpclimit.DialOptions(rpclimit.Client{Limit: stint.MustLimit("own: 1 per 50ms")})...)
	start := time.Now()
	for range 4 {
		if _, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("four calls took %s", took)
	}

	client = dial(t, address, grpclimit.DialOptions(rpclimit.Client{Limit: stint.MustLimit("own: 1 per 1h")})...)
	_, _ = client.UnaryCall(bounded(t), new(pb.SimpleRequest))
	ctx := bounded(t)
	_, err = client.UnaryCall(ctx, new(pb.SimpleRequest))
	wantCode(t, err, codes.DeadlineExceeded)
	if ctx.Err() != nil {
		t.Error("not at once")
	}
	client = dial(t, address, grpclimit.DialOptions(rpclimit.Client{Limit: stint.MustLimit("own: 1 per 1h"), Limiter: stint.NewLimiter(new(away))})...)
	_, err = client.UnaryCall(ctx, new(pb.SimpleRequest))
	wantCode(t, err, codes.Unavailable)
	if !errors.Is(err, errAway) {
		t.Error(err)
	}
}

// No more calls than an in-flight limit says are under way at once, and all get their turn.
func TestClientInFlight(t *testing.T) {
	var running, most atomic.Int64
	address := serve(t, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		running.Add(-1)
		return new(pb.SimpleResponse), nil
	}})
	client := dial(t, address, grpclimit.DialOptions(rpclimit.Client{Limit: stint.MustLimit("own: 2 in_flight")})...)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() > 2 {
		t.Errorf("%d were under way", most.Load())
	}
}

// A client's stream holds its place until it ends, however it ends.
func TestClientStreamHoldsUntilItEnds(t *testing.T) {
	type ending struct {
		stream pb.TestService_FullDuplexCallClient
		cancel context.CancelFunc
		conn   *grpc.ClientConn
	}
	for name, end := range map[string]func(ending){
		"server ends":           func(e ending) { _ = e.stream.CloseSend(); _, _ = e.stream.Recv() },
		"server ends, not read": func(e ending) { e.cancel() },
		"connection is closed":  func(e ending) { _ = e.conn.Close() },
		"message is too large": func(e ending) {
			_ = e.stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 5<<20)}})
			_, _ = e.stream.Recv()
		},
	} {
		t.Run(name, func(t *testing.T) {
			limit, limiter := stint.MustLimit("own: 1 in_flight"), new(stint.Limiter)
			cc := connect(t, serve(t, &service{duplex: echo}), grpclimit.DialOptions(rpclimit.Client{Limit: limit, Limiter: limiter, Key: everybody, Refuse: true})...)
			client := pb.NewTestServiceClient(cc)
			ctx, cancel := context.WithCancel(bounded(t))
			defer cancel()
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.UnaryCall(ctx, new(pb.SimpleRequest))
			wantCode(t, err, codes.ResourceExhausted)
			if n := held(t, limiter, limit, "everybody"); n != 1 {
				t.Fatalf("%d held", n)
			}
			end(ending{stream: stream, cancel: cancel, conn: cc})
			await.Until(t, "the place is still held", func() bool { return held(t, limiter, limit, "everybody") == 0 })
		})
	}
	t.Run("it does not begin", func(t *testing.T) {
		limit, limiter := stint.MustLimit("own: 1 in_flight"), new(stint.Limiter)
		client := dial(t, "127.0.0.1:1", grpclimit.DialOptions(rpclimit.Client{Limit: limit, Limiter: limiter, Key: everybody, Refuse: true})...)
		_, err := client.FullDuplexCall(bounded(t))
		wantCode(t, err, codes.Unavailable)
		if n := held(t, limiter, limit, "everybody"); n != 0 {
			t.Errorf("%d held", n)
		}
	})
	t.Run("an interceptor within refuses it", func(t *testing.T) {
		limit, limiter := stint.MustLimit("own: 1 in_flight"), new(stint.Limiter)
		refuses := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, status.Error(codes.Unauthenticated, "no token")
		}
		options := append(grpclimit.DialOptions(rpclimit.Client{Limit: limit, Limiter: limiter, Key: everybody, Refuse: true}), grpc.WithChainStreamInterceptor(refuses))
		_, err := dial(t, serve(t, &service{duplex: echo}), options...).FullDuplexCall(bounded(t))
		wantCode(t, err, codes.Unauthenticated)
		if n := held(t, limiter, limit, "everybody"); n != 0 {
			t.Errorf("%d held", n)
		}
	})
}

// Messages of a client wait, or are refused one by one.
func TestClientMessages(t *testing.T) {
	address := serve(t, &service{duplex: echo})
	client := dial(t, address, grpclimit.DialOptions(rpclimit.Client{Messages: stint.MustLimit("own: 1 per 1h"), Refuse: true})...)
	stream, err := client.FullDuplexCall(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, stream.Send(new(pb.StreamingOutputCallRequest)), codes.OK)
	wantCode(t, stream.Send(new(pb.StreamingOutputCallRequest)), codes.ResourceExhausted)
	_ = stream.CloseSend()
	got := 0
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
		got++
	}
	if got != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("%d messages, %v", got, err)
	}

	client = dial(t, address, grpclimit.DialOptions(rpclimit.Client{Messages: stint.MustLimit("own: 1 per 50ms")})...)
	if stream, err = client.FullDuplexCall(bounded(t)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 4 {
		if err := stream.Send(new(pb.StreamingOutputCallRequest)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("four messages took %s", took)
	}
	defer func() {
		if recover() == nil {
			t.Error("a limit of messages that is held")
		}
	}()
	grpclimit.DialOptions(rpclimit.Client{Messages: stint.MustLimit("1 in_flight")})
}
