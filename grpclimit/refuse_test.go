package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/grpclimit"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rpclimit"
)

// A Guard's refusal in a handler is a whole status with one call, with interceptors and without, of unary calls
// and of streams.
func TestRefuse(t *testing.T) {
	for name, options := range map[string][]grpc.ServerOption{"alone": nil, "with interceptors": grpclimit.ServerOptions(rpclimit.Server{})} {
		guard := stint.Guard[string, int]{Limit: stint.MustLimit("load: 1 per 1h"), Message: "{retry_after} 后再试", Key: func(_ context.Context, a string) string { return a }}
		load := guard.Wrap(func(context.Context, string) (int, error) { return 1, nil })
		guard.Limiter, guard.Limit = &stint.Limiter{Instance: stint.MustLimit("1 per 5m")}, stint.MustLimit("9 per 1h")
		full := guard.Wrap(func(context.Context, string) (int, error) { return 1, nil })
		refuse := func(ctx context.Context, err error) error {
			if err == nil {
				return grpclimit.Refuse(ctx, httplimit.XRateLimit, nil)
			}
			return grpclimit.Refuse(ctx, httplimit.XRateLimit, fmt.Errorf("load: %w", err))
		}
		client := dial(t, serve(t, &service{
			unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				var err error
				switch what := string(r.GetPayload().GetBody()); what {
				case "failed":
					err = errors.New("failed")
				case "full":
					_, err = full(ctx, "k")
				default:
					_, err = load(ctx, what)
				}
				return new(pb.SimpleResponse), refuse(ctx, err)
			},
			duplex: func(ss pb.TestService_FullDuplexCallServer) error {
				_, err := load(ss.Context(), "stream")
				return refuse(ss.Context(), err)
			},
		}, options...))
		unary := func(what string) (metadata.MD, error) {
			var trailer metadata.MD
			_, err := client.UnaryCall(bounded(t), &pb.SimpleRequest{Payload: payload(what)}, grpc.Trailer(&trailer))
			return trailer, err
		}
		stream := func(string) (metadata.MD, error) {
			ss, err := client.FullDuplexCall(bounded(t))
			if err != nil {
				return nil, err
			}
			_, err = ss.Recv()
			return ss.Trailer(), eof(err)
		}
		for what, call := range map[string]func(string) (metadata.MD, error){"unary": unary, "stream": stream} {
			if _, err := call(what); err != nil {
				t.Errorf("%s, %s: the first: %v", name, what, err)
			}
			trailer, err := call(what)
			wantCode(t, err, codes.ResourceExhausted)
			wait := retryAfter(err)
			if wait <= 0 || wait > time.Hour || !strings.HasSuffix(status.Convert(err).Message(), " 后再试") || !strings.Contains(status.Convert(err).Message(), "小时") &&
				!strings.Contains(status.Convert(err).Message(), "分钟") {
				t.Errorf("%s, %s: %s, %v", name, what, wait, err)
			}
			var quota *errdetails.QuotaFailure
			for _, d := range status.Convert(err).Details() {
				if f, ok := d.(*errdetails.QuotaFailure); ok {
					quota = f
				}
			}
			if v := quota.GetViolations(); len(v) != 1 || v[0].GetQuotaId() != "load" {
				t.Errorf("%s, %s: %v", name, what, quota)
			}
			if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != strconv.FormatInt(wait.Milliseconds(), 10) || len(trailer.Get("x-ratelimit-limit")) != 1 {
				t.Errorf("%s, %s: trailer %v", name, what, trailer)
			}
		}
		_, err := unary("failed")
		wantCode(t, err, codes.Unknown)
		if _, err := unary("full"); err != nil {
			t.Error(err)
		}
		_, err = unary("full")
		wantCode(t, err, codes.Unavailable)
		if retryAfter(err) <= 0 {
			t.Errorf("%s: no time to retry: %v", name, err)
		}
	}
}

// The metadata is in the trailer once, though a handler calls Refuse for an error that is a status of it already, or
// that an interceptor refused a message with: a client that gets two waits does not retry.
func TestRefuseAgain(t *testing.T) {
	everybody := func(context.Context, *rpclimit.Call) string { return "k" }
	load := stint.Guard[int, int]{Limit: stint.MustLimit("load: 1 per 1h"), Message: "slow down", Anonymous: stint.AnonymousShare}.Wrap(
		func(context.Context, int) (int, error) { return 1, nil })
	_, _ = load(t.Context(), 0)
	client := dial(t, serve(t, &service{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			_, err := load(ctx, 0)
			err = fmt.Errorf("load: %w", grpclimit.Refuse(ctx, httplimit.XRateLimit, err))
			return nil, grpclimit.Refuse(ctx, httplimit.XRateLimit, err)
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			return grpclimit.Refuse(ss.Context(), httplimit.XRateLimit, echo(ss))
		},
	}, grpclimit.ServerOptions(rpclimit.Server{Received: rpclimit.By(nil, stint.MustLimit("1 per 1h"), everybody)})...))
	once := func(what string, trailer metadata.MD, err error) {
		t.Helper()
		wantCode(t, err, codes.ResourceExhausted)
		if len(trailer.Get("grpc-retry-pushback-ms")) != 1 || len(trailer.Get("x-ratelimit-limit")) != 1 {
			t.Errorf("%s: trailer %v", what, trailer)
		}
	}
	var trailer metadata.MD
	_, err := client.UnaryCall(bounded(t), new(pb.SimpleRequest), grpc.Trailer(&trailer))
	once("twice", trailer, err)
	if got := status.Convert(err).Message(); got != "slow down" {
		t.Error(got)
	}
	stream, err := client.FullDuplexCall(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_ = stream.Send(new(pb.StreamingOutputCallRequest))
	}
	for err == nil {
		_, err = stream.Recv()
	}
	once("a message", stream.Trailer(), err)
}
