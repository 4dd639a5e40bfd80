package connectlimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/connectlimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/rpclimit"
)

// refusesFirst returns a handler that refuses the first n calls with a RetryInfo.
func refusesFirst(n int64, delay time.Duration, calls *atomic.Int64) func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
	return func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		if calls.Add(1) > n {
			return connect.NewResponse(r.Msg), nil
		}
		err := connect.NewError(connect.CodeResourceExhausted, errors.New("not now"))
		d, _ := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		err.AddDetail(d)
		return nil, err
	}
}

// A Client makes a refused call again when the server allows it.
func TestClientObeysRetryInfo(t *testing.T) {
	const delay = 100 * time.Millisecond
	each(t, func(t *testing.T, w wire) {
		for name, c := range map[string]struct {
			client  rpclimit.Client
			refused int64
			delay   time.Duration
			calls   int64
			want    connect.Code
		}{
			"again":       {rpclimit.Client{}, 2, delay, 3, 0},
			"three times": {rpclimit.Client{}, 9, delay, 3, connect.CodeResourceExhausted},
			"refuse":      {rpclimit.Client{Refuse: true}, 9, delay, 1, connect.CodeResourceExhausted},
			"too long":    {rpclimit.Client{}, 9, time.Hour, 1, connect.CodeResourceExhausted},
		} {
			t.Run(name, func(t *testing.T) {
				var calls atomic.Int64
				client := dial(t, w, serve(t, service{unary: refusesFirst(c.refused, c.delay, &calls)}), connect.WithInterceptors(connectlimit.Client(c.client)))
				start := time.Now()
				r, err := client.call(bounded(t), "")
				wantCode(t, err, c.want)
				if err == nil && r.Msg.GetValue() != "hello" {
					t.Error(r)
				}
				if calls.Load() != c.calls {
					t.Errorf("%d calls, want %d", calls.Load(), c.calls)
				}
				if took := time.Since(start); took < time.Duration(c.calls-1)*delay {
					t.Errorf("it took %s", took)
				}
			})
		}
	})
}

// A Client's own limit refuses or waits, and what it refuses is not sent.
func TestClientLimit(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		var calls atomic.Int64
		url := serve(t, service{unary: refusesFirst(0, 0, &calls), duplex: func(ctx context.Context, s *connect.BidiStream[text, text]) error {
			calls.Add(1)
			return echo(ctx, s)
		}})
		c := dial(t, w, url, connect.WithInterceptors(connectlimit.Client(rpclimit.Client{Limit: stint.MustLimit("own: 2 per 1h"), Refuse: true})))
		ctx := bounded(t)
		for i := range 4 {
			_, err := c.call(ctx, "")
			if i < 2 {
				wantCode(t, err, 0)
				continue
			}
			wantCode(t, err, connect.CodeResourceExhausted)
			var refused *stint.RefusedError
			var refusal *rpclimit.Refusal
			if !errors.As(err, &refused) || refused.Limit.Spec().Name != "own" || !errors.As(err, &refusal) || retryAfter(err) <= 0 {
				t.Error(err)
			}
		}
		// Streams of each kind are refused, too, and nothing hangs.
		s := c.duplex.CallBidiStream(ctx)
		wantCode(t, s.Send(wrapperspb.String("hello")), connect.CodeResourceExhausted)
		_, err := s.Receive()
		wantCode(t, err, connect.CodeResourceExhausted)
		wantCode(t, s.CloseRequest(), connect.CodeResourceExhausted)
		wantCode(t, s.CloseResponse(), 0)
		if len(s.ResponseHeader()) != 0 || len(s.ResponseTrailer()) != 0 {
			t.Error("headers of a response that does not come")
		}
		_, err = c.down.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("hello")))
		wantCode(t, err, connect.CodeResourceExhausted)
		_, err = c.up.CallClientStream(ctx).CloseAndReceive()
		wantCode(t, err, connect.CodeResourceExhausted)
		if err := c.duplex.CallBidiStream(ctx).CloseResponse(); err != nil {
			t.Error("closed before it began:", err)
		}
		if calls.Load() != 2 {
			t.Errorf("%d calls were sent", calls.Load())
		}

		c = dial(t, w, url, connect.WithInterceptors(connectlimit.Client(rpclimit.Client{Limit: stint.MustLimit("own: 1 per 50ms")})))
		start := time.Now()
		for range 4 {
			if _, err := c.call(ctx, ""); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 150*time.Millisecond {
			t.Errorf("four calls took %s", took)
		}
	})
}

// A client's stream holds its place until it ends, however it ends. Its key can be in the headers that
// are set on the stream.
func TestClientStreamHoldsUntilItEnds(t *testing.T) {
	type stream = *connect.BidiStreamForClient[text, text]
	for name, end := range map[string]func(stream, context.CancelFunc){
		"server ends":    func(s stream, _ context.CancelFunc) { _ = s.CloseRequest(); _, _ = s.Receive(); _, _ = s.Receive() },
		"client cancels": func(_ stream, cancel context.CancelFunc) { cancel() },
		"client closes":  func(s stream, _ context.CancelFunc) { _ = s.CloseRequest(); _ = s.CloseResponse() },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w wire) {
				limit, limiter := stint.MustLimit("own: 1 in_flight"), new(stint.Limiter)
				c := dial(t, w, serve(t, service{}), connect.WithInterceptors(connectlimit.Client(rpclimit.Client{Limit: limit, Limiter: limiter, Key: rpclimit.Metadata("x-user"), Refuse: true})))
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				s := c.duplex.CallBidiStream(ctx)
				s.RequestHeader().Set("X-User", "ann")
				if err := s.Send(wrapperspb.String("hello")); err != nil {
					t.Fatal(err)
				}
				_, err := c.call(bounded(t), "ann")
				wantCode(t, err, connect.CodeResourceExhausted)
				if n := held(t, limiter, limit, "ann"); n != 1 {
					t.Fatalf("%d held", n)
				}
				end(s, cancel)
				await.Until(t, "the place is still held", func() bool { return held(t, limiter, limit, "ann") == 0 })
				if _, err := c.call(bounded(t), "ann"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Messages of a client are refused one by one.
func TestClientMessages(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		c := dial(t, w, serve(t, service{}), connect.WithInterceptors(connectlimit.Client(rpclimit.Client{Messages: stint.MustLimit("own: 1 per 1h"), Refuse: true})))
		s := c.up.CallClientStream(bounded(t))
		wantCode(t, s.Send(wrapperspb.String("first")), 0)
		wantCode(t, s.Send(wrapperspb.String("second")), connect.CodeResourceExhausted)
		if r, err := s.CloseAndReceive(); err != nil || r.Msg.GetValue() != "first" {
			t.Error(r, err)
		}
	})
}

// One interceptor of each kind may be given to clients and to handlers: each minds its own side.
func TestSides(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		both := connect.WithInterceptors(connectlimit.Server(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("3 per 1h"), everybody)}),
			connectlimit.Client(rpclimit.Client{Limit: stint.MustLimit("own: 5 per 1h"), Key: everybody, Refuse: true, MaxRetryDelay: -1}))
		c := dial(t, w, serve(t, service{}, both), both)
		served := 0
		for i := range 6 {
			_, err := c.call(bounded(t), "")
			if err == nil {
				served++
			}
			var refused *stint.RefusedError
			if errors.As(err, &refused) != (i == 5) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if served != 3 {
			t.Errorf("%d were served", served)
		}
	})
}
