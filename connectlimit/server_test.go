package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/connectlimit"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/rpclimit"
)

// What passes has the limit in its header, also if the handler fails. What is refused has it in the
// metadata of its error, costs nothing, and does not reach the handler.
func TestUnaryIsRefused(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		var handled atomic.Int64
		limits := connectlimit.Server(rpclimit.Server{Decide: rpclimit.By(nil, stint.MustLimit("api: 2 per 1h fixed_window"), rpclimit.Metadata("x-user"))})
		url := serve(t, service{unary: func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			if handled.Add(1) == 2 {
				return nil, connect.NewError(connect.CodeDataLoss, errors.New("lost"))
			}
			return connect.NewResponse(r.Msg), nil
		}}, connect.WithInterceptors(limits))
		c, ctx := dial(t, w, url), bounded(t)
		r, err := c.call(ctx, "ann")
		if err != nil || r.Header().Get("X-RateLimit-Remaining") != "1" {
			t.Fatal(err, r)
		}
		_, err = c.call(ctx, "ann")
		wantCode(t, err, connect.CodeDataLoss)
		if got := meta(err, "X-RateLimit-Remaining"); got != "0" {
			t.Errorf("remaining %q", got)
		}
		for range 3 {
			_, err := c.call(ctx, "ann")
			wantCode(t, err, connect.CodeResourceExhausted)
			if !strings.Contains(err.Error(), "resource_exhausted: Too many requests. The limit is 2 per 1h fixed_window.") {
				t.Error(err)
			}
			wait := retryAfter(err)
			if wait <= 0 || wait > time.Hour || meta(err, "Grpc-Retry-Pushback-Ms") != strconv.FormatInt(wait.Milliseconds(), 10) {
				t.Errorf("RetryInfo %s, pushback %q", wait, meta(err, "Grpc-Retry-Pushback-Ms"))
			}
			if meta(err, "X-RateLimit-Limit") != "2" || meta(err, "Retry-After") == "" {
				t.Errorf("limit %q, retry after %q", meta(err, "X-RateLimit-Limit"), meta(err, "Retry-After"))
			}
			if v := detail[*errdetails.QuotaFailure](err).GetViolations(); len(v) != 1 || v[0].GetSubject() != "limit:api" || v[0].GetQuotaValue() != 2 {
				t.Errorf("QuotaFailure %v", v)
			}
		}
		if handled.Load() != 2 {
			t.Errorf("%d calls were handled", handled.Load())
		}
		for user, want := range map[string]connect.Code{"bob": 0, "": connect.CodeInvalidArgument} {
			if _, err := c.call(ctx, user); err != nil && connect.CodeOf(err) != want || (err == nil) != (want == 0) {
				t.Errorf("user %q: %v", user, err)
			}
		}
	})
}

// The zero Server counts by the client's address, in all protocols together.
func TestZeroServer(t *testing.T) {
	seen := make(chan string, 200)
	url := serve(t, service{unary: func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		seen <- stint.Caller(ctx)
		return connect.NewResponse(r.Msg), nil
	}}, connect.WithInterceptors(connectlimit.Server(rpclimit.Server{Clients: &httplimit.Clients{}, Dialect: httplimit.Draft11})))
	var clients []*client
	for _, w := range wires {
		clients = append(clients, dial(t, w, url))
	}
	for i := 0; ; i++ { // the bucket fills up meanwhile
		r, err := clients[i%len(clients)].call(bounded(t), "")
		if i >= 100 && codeOf(err) == connect.CodeResourceExhausted {
			return
		}
		if err != nil || r.Header().Get("RateLimit-Policy") == "" || i == 1000 {
			t.Fatal(i, err)
		}
		if got := <-seen; got != "client=127.0.0.1" {
			t.Fatal(got)
		}
	}
}

// A stream holds its place until it ends, however it ends.
func TestStreamHoldsUntilItEnds(t *testing.T) {
	untilDone := func(ctx context.Context, _ *connect.BidiStream[text, text]) error {
		<-ctx.Done()
		return ctx.Err()
	}
	panics := func(_ context.Context, s *connect.BidiStream[text, text]) error {
		_, _ = s.Receive()
		_, _ = s.Receive()
		panic("a bug, which the handler's recover answers")
	}
	closeRequest := func(s *connect.BidiStreamForClient[text, text], _ context.CancelFunc) { _ = s.CloseRequest() }
	cancels := func(s *connect.BidiStreamForClient[text, text], cancel context.CancelFunc) {
		cancel()
		_ = s.CloseResponse() // with a response under way, net/http sends nothing before
	}
	// A client of net/http that cancels just when the response comes may never tell the server.
	cancelsReading := func(s *connect.BidiStreamForClient[text, text], cancel context.CancelFunc) {
		_, _ = s.Receive()
		cancels(s, cancel)
	}
	for name, c := range map[string]struct {
		handler func(context.Context, *connect.BidiStream[text, text]) error
		end     func(*connect.BidiStreamForClient[text, text], context.CancelFunc)
		code    connect.Code
	}{
		"handler returns":               {echo, closeRequest, 0},
		"handler panics":                {panics, closeRequest, connect.CodeUnknown},
		"client cancels":                {untilDone, cancels, connect.CodeCanceled},
		"client cancels while it reads": {echo, cancelsReading, connect.CodeCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w wire) {
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
				url := serve(t, service{duplex: c.handler},
					connect.WithRecover(func(_ context.Context, _ connect.Spec, _ http.Header, _ any) error {
						return connect.NewError(connect.CodeInternal, errors.New("panic"))
					}),
					connect.WithInterceptors(connectlimit.Server(rpclimit.Server{Decide: decide})))
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				s := dial(t, w, url).duplex.CallBidiStream(ctx)
				if err := s.Send(wrapperspb.String("hello")); err != nil {
					t.Fatal(err)
				}
				await.Until(t, "the stream holds nothing", func() bool { return held(t, &limiter, limit, "everybody") == 1 })
				other := dial(t, w, url)
				_, err := other.call(bounded(t), "")
				wantCode(t, err, connect.CodeResourceExhausted)
				second := other.duplex.CallBidiStream(bounded(t))
				_ = second.Send(wrapperspb.String("hello"))
				_, err = second.Receive()
				wantCode(t, err, connect.CodeResourceExhausted)
				if retryAfter(err) <= 0 {
					t.Error("no RetryInfo")
				}
				c.end(s, cancel)
				var e rpclimit.End
				select {
				case e = <-ends:
				case <-time.After(await.Patience):
					t.Fatal("the stream does not end")
				}
				if connect.Code(e.Code) != c.code || e.Panicked != (name == "handler panics") {
					t.Errorf("%+v, want %s", e, c.code)
				}
				if n := held(t, &limiter, limit, "everybody"); n != 0 {
					t.Errorf("%d units are held", n)
				}
			})
		})
	}
}

// A call is charged what its response says.
func TestBudget(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		var limiter stint.Limiter
		tokens, ctx := stint.MustLimit("tokens: 100 per 1h fixed_window hold"), bounded(t)
		c := dial(t, w, serve(t, service{}, connect.WithInterceptors(connectlimit.Server(rpclimit.Server{Decide: rpclimit.Budget{
			Limiter: &limiter,
			Asks: func(_ context.Context, c *rpclimit.Call) ([]stint.Ask, error) {
				return []stint.Ask{{Key: "ann", Limit: tokens, Cost: 40}}, nil
			},
			CostAfter: func(e *rpclimit.End) (int64, bool) {
				last, ok := e.Last.(*text)
				return e.Sent * int64(len(last.GetValue())), ok
			},
		}.Decide()}))))
		remaining := func(want int64) {
			t.Helper()
			if d, err := limiter.Peek(ctx, "ann", tokens); err != nil || d.Remaining != want || d.Held != 0 {
				t.Fatalf("%d remaining, %d held, %v; want %d", d.Remaining, d.Held, err, want)
			}
		}
		if _, err := c.call(ctx, ""); err != nil {
			t.Fatal(err)
		}
		remaining(95)
		s, err := c.down.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("hello")))
		if err != nil {
			t.Fatal(err)
		}
		for s.Receive() {
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		remaining(80)
	})
}

// Messages beyond a limit end the stream, whatever the handler makes of it. Single messages do not count.
func TestMessagesAreRefused(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		two := stint.MustLimit("two: 2 per 1h")
		roomy := rpclimit.By(nil, stint.MustLimit("9 per 1h"), everybody)
		for name, c := range map[string]struct {
			server         rpclimit.Server
			up, down, both connect.Code
		}{
			"received": {rpclimit.Server{Decide: roomy, Received: rpclimit.By(nil, two, rpclimit.Method)}, connect.CodeResourceExhausted, 0, connect.CodeResourceExhausted},
			"sent":     {rpclimit.Server{Decide: roomy, Sent: rpclimit.By(nil, two, rpclimit.Method)}, 0, connect.CodeResourceExhausted, connect.CodeResourceExhausted},
		} {
			t.Run(name, func(t *testing.T) {
				client, ctx := dial(t, w, serve(t, service{}, connect.WithInterceptors(connectlimit.Server(c.server)))), bounded(t)
				up := client.up.CallClientStream(ctx)
				for range 3 {
					_ = up.Send(wrapperspb.String("hello"))
				}
				_, err := up.CloseAndReceive()
				wantCode(t, err, c.up)
				down, err := client.down.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("hello")))
				if err != nil {
					t.Fatal(err)
				}
				for down.Receive() {
				}
				wantCode(t, down.Err(), c.down)
				both := client.duplex.CallBidiStream(ctx)
				for range 3 {
					_ = both.Send(wrapperspb.String("hello"))
				}
				_ = both.CloseRequest()
				for err == nil {
					_, err = both.Receive()
				}
				wantCode(t, err, c.both)
				if retryAfter(err) <= 0 || meta(err, "X-RateLimit-Limit") != "2" {
					t.Errorf("%v, limit %q", err, meta(err, "X-RateLimit-Limit"))
				}
				if _, err := client.call(ctx, ""); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// Messages that may wait do, and all arrive in order.
func TestMessagesWait(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		by := rpclimit.By(nil, stint.MustLimit("1 per 20ms"), everybody)
		c := dial(t, w, serve(t, service{}, connect.WithInterceptors(connectlimit.Server(rpclimit.Server{Received: by, MessageWait: 10 * time.Second}))))
		s := c.duplex.CallBidiStream(bounded(t))
		for i := range 6 {
			if err := s.Send(wrapperspb.String(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.CloseRequest()
		for i := range 6 {
			if m, err := s.Receive(); err != nil || m.GetValue() != strconv.Itoa(i) {
				t.Fatal(i, m, err)
			}
		}
		if _, err := s.Receive(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}
