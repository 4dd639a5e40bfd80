package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// echoService is a service of gRPC, written down by hand.
var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "One", Handler: func(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := read(in); err != nil {
			return nil, err
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-early", "1"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-late", "2"))
		if in.Value == "lost" {
			return nil, status.Error(grpccodes.NotFound, "no such thing: é%")
		}
		return in, nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Many", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs("x-late", "3"))
		for {
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			for range 2 {
				if err := s.SendMsg(in); err != nil {
					return err
				}
			}
		}
	}}},
}

// echoUpstream serves it and is a route's target.
func echoUpstream(t *testing.T, scheme string, options ...grpc.ServerOption) *url.URL {
	s := grpc.NewServer(options...)
	s.RegisterService(&echoService, nil)
	l := listen(t)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	u, err := config.ParseUpstream(scheme + "://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func grpcClient(t *testing.T, addr string, c credentials.TransportCredentials) *grpc.ClientConn {
	client, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// one calls the method of one message.
func one(client *grpc.ClientConn, text string, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out := new(wrapperspb.StringValue)
	err := client.Invoke(ctx, "/test.Echo/One", wrapperspb.String(text), out, options...)
	return out.Value, err
}

// gRPC passes, with and without TLS on either side: single messages, streams in both
// directions at once, errors and trailers.
func TestGRPC(t *testing.T) {
	ca := newAuthority(t)
	gatewayFiles := ca.sign(t, "gateway").write(t, nil)
	upstreamFiles := ca.sign(t, "upstream", dnsName("orders.internal")).write(t, ca)
	shown, err := credentials.NewServerTLSFromFile(upstreamFiles.Cert, upstreamFiles.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		gateway *config.TLSFiles
		client  credentials.TransportCredentials
		route   config.Route
	}{
		"in the clear": {nil, insecure.NewCredentials(), config.Route{Path: "/", Upstream: echoUpstream(t, "h2c")}},
		"by TLS": {
			gatewayFiles, credentials.NewTLS(ca.trusting(t)),
			config.Route{Path: "/", Upstream: echoUpstream(t, "https", grpc.Creds(shown)), TLS: &config.UpstreamTLS{CA: upstreamFiles.ClientCA, ServerName: "orders.internal"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, newServer(t, generous, routes(c.route), withTLS(c.gateway, nil, nil)))
			client := grpcClient(t, g.gateway, c.client)
			var header, trailer metadata.MD
			got, err := one(client, "hello", grpc.Header(&header), grpc.Trailer(&trailer))
			if err != nil || got != "hello" {
				t.Fatal(got, err)
			}
			if header.Get("x-early")[0] != "1" || header.Get("x-ratelimit-remaining")[0] != "999" || trailer.Get("x-late")[0] != "2" {
				t.Errorf("header %v, trailer %v", header, trailer)
			}
			_, err = one(client, "lost", grpc.Trailer(&trailer))
			if s := status.Convert(err); s.Code() != grpccodes.NotFound || s.Message() != "no such thing: é%" || trailer.Get("x-late")[0] != "2" {
				t.Errorf("%v, trailer %v", err, trailer)
			}

			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			stream, err := client.NewStream(ctx, &echoService.Streams[0], "/test.Echo/Many")
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"a", "b", "c"} { // the next is sent when the answers to this one have come
				if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					out := new(wrapperspb.StringValue)
					if err := stream.RecvMsg(out); err != nil || out.Value != text {
						t.Fatalf("%q, %v", out.Value, err)
					}
				}
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) || stream.Trailer().Get("x-late")[0] != "3" {
				t.Errorf("the end: %v, trailer %v", err, stream.Trailer())
			}
		})
	}
}

// What the gateway refuses is a status of gRPC, whatever it refuses for.
func TestGRPCRefusals(t *testing.T) {
	rules := `
blocklist: ['"x-bad" in request.headers']
rules:
  - {name: two, key: 'request.headers["x-user"]', limits: [2 per 1h sliding_log], message: "Slow down, é%"}
  - {name: none, match: '"x-large" in request.headers', key: '"all"', cost: 9, limits: [1 per 1h]}
`
	g := start(t, newServer(t, rules, routes(
		config.Route{Path: "/test.Echo", Upstream: echoUpstream(t, "h2c")},
		config.Route{Path: "/test.Gone", Upstream: &url.URL{Scheme: "h2c", Host: "127.0.0.1:1"}},
	)))
	client := grpcClient(t, g.gateway, insecure.NewCredentials())
	call := func(method string, pairs ...string) (*status.Status, metadata.MD) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var header metadata.MD
		err := client.Invoke(metadata.AppendToOutgoingContext(ctx, pairs...), method, wrapperspb.String("x"), new(wrapperspb.StringValue), grpc.Trailer(&header))
		return status.Convert(err), header
	}
	const method = "/test.Echo/One"
	for range 2 {
		if s, _ := call(method, "x-user", "ann"); s.Code() != grpccodes.OK {
			t.Fatal(s)
		}
	}
	s, header := call(method, "x-user", "ann")
	if s.Code() != grpccodes.ResourceExhausted || s.Message() != "Slow down, é%" {
		t.Errorf("limited: %v", s)
	}
	if len(s.Details()) != 2 {
		t.Fatalf("details %v", s.Details())
	}
	quota, ok := s.Details()[1].(*errdetails.QuotaFailure)
	if v := quota.GetViolations(); !ok || len(v) != 1 || v[0].Subject != "limit:two" || v[0].Description != "The limit is 2 per 1h sliding_log." || v[0].QuotaId != "two" || v[0].QuotaValue != 2 {
		t.Errorf("details %v", s.Details())
	}
	retry, ok := s.Details()[0].(*errdetails.RetryInfo)
	if d := retry.GetRetryDelay().AsDuration(); !ok || d < 59*time.Minute || d > time.Hour || header.Get("grpc-retry-pushback-ms")[0] != "3600000" || header.Get("retry-after")[0] != "3600" {
		t.Errorf("limited: %v after %v, %v", s.Details(), d, header)
	}
	for _, c := range []struct {
		what, method string
		pairs        []string
		code         grpccodes.Code
		message      string
		pushback     string
	}{
		{"blocked", method, []string{"x-bad", "1"}, grpccodes.PermissionDenied, "This request is not accepted.", ""},
		{"too large for any wait", method, []string{"x-large", "1"}, grpccodes.ResourceExhausted, "Too many requests.", "-1"},
		{"malformed", method, []string{"x-user", strings.Repeat("x", 5000)}, grpccodes.InvalidArgument, "The request cannot be counted", ""},
		{"no route", "/test.Other/One", nil, grpccodes.Unimplemented, "No route matches this request.", ""},
		{"no upstream", "/test.Gone/One", nil, grpccodes.Unavailable, "The upstream cannot be reached.", ""},
	} {
		s, header := call(c.method, c.pairs...)
		if s.Code() != c.code || !strings.HasPrefix(s.Message(), c.message) || strings.Join(header.Get("grpc-retry-pushback-ms"), ",") != c.pushback {
			t.Errorf("%s: %v, %v", c.what, s, header)
		}
	}
}

// Who has no room for a request, or cannot decide about it, says so in gRPC.
func TestGRPCUnavailable(t *testing.T) {
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [9 per 1m], on_store_error: deny}]`,
		over(failing()), routes(config.Route{Path: "/", Upstream: echoUpstream(t, "h2c")}))
	client := grpcClient(t, start(t, s).gateway, insecure.NewCredentials())
	if _, err := one(client, "x"); status.Code(err) != grpccodes.Unavailable || len(status.Convert(err).Details()) != 1 {
		t.Errorf("undecided: %v", err)
	}
	s = newServer(t, generous, routes(config.Route{Path: "/", Upstream: echoUpstream(t, "h2c")}), func(c *server.Config) { c.Settings.Instance.InFlight = 1 })
	client = grpcClient(t, start(t, s).gateway, insecure.NewCredentials())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.NewStream(ctx, &echoService.Streams[0], "/test.Echo/Many")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(wrapperspb.String("x")), stream.RecvMsg(new(wrapperspb.StringValue))); err != nil {
		t.Fatal(err)
	}
	if _, err := one(client, "x"); status.Code(err) != grpccodes.Unavailable || !strings.HasPrefix(status.Convert(err).Message(), "The server is overloaded") {
		t.Errorf("no room: %v", err)
	}
}

// A proxy that asks about a request of gRPC lets it pass by a 200: it is never told
// that of one that is refused, by whatever protocol it asks.
func TestAuthorizeOfGRPC(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, nil)
	g := start(t, newServer(t, "trusted_proxies: [127.0.0.1]\nrules: [{name: client, key: client.ip, limits: [1 per 1h]}]", withTLS(nil, files, nil)))
	for i, want := range []int{200, 429} {
		r, err := http.NewRequest("POST", "https://"+g.check+"/v1/authorize", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/grpc", "X-Original-Method": "POST", "X-Original-Uri": "/test.Echo/One", "X-Forwarded-For": "192.0.2.1"} {
			r.Header.Set(name, value)
		}
		resp, err := client(t, ca.trusting(t), true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("%d: %s %s", i, resp.Proto, resp.Status)
		}
	}
}

// A connection of HTTP/2 that idles does not keep the gateway from stopping.
func TestStopWithIdleHTTP2(t *testing.T) {
	var log logged
	g := start(t, newServer(t, generous, routes(config.Route{Path: "/", Upstream: echoUpstream(t, "h2c")}), logTo(&log)))
	if _, err := one(grpcClient(t, g.gateway, insecure.NewCredentials()), "x"); err != nil {
		t.Fatal(err)
	}
	err := g.stop()
	if lines := log.taken(); err != nil || strings.Contains(lines, "level=WARN") || strings.Contains(lines, "level=ERROR") {
		t.Errorf("%v, log: %s", err, lines)
	}
}
