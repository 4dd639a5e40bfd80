package envoy_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// decider decides by a function.
type decider func(ctx context.Context, in *rules.Input) (server.Verdict, error)

func (d decider) Decide(ctx context.Context, in *rules.Input, _ time.Time) (server.Verdict, error) {
	return d(ctx, in)
}

func (d decider) Rules() *rules.Set { return new(rules.Set) }

func allow(context.Context, *rules.Input) (server.Verdict, error) {
	return server.Verdict{Decision: stint.Decision{Allowed: true}}, nil
}

// start serves what c has on free ports, and stops it with the test.
func start(t testing.TB, c envoy.Config) (s *envoy.Server, stop func() error) {
	t.Helper()
	if c.Settings == nil {
		c.Settings = new(config.Envoy)
	}
	for _, address := range []*string{&c.Settings.Listen, &c.Settings.HTTPListen, &c.Settings.DebugListen} {
		if !strings.HasPrefix(*address, "unix:") {
			*address = "127.0.0.1:0"
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 10 * time.Second
	}
	s = envoy.New(c)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var result error
	var stopped atomic.Bool
	stop = func() error {
		if !stopped.Swap(true) {
			cancel()
			result = <-ended
		}
		return result
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s, stop
}

func dial(t testing.TB, s *envoy.Server, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	a := s.Addr("gRPC")
	target := "passthrough:///" + a.String()
	if a.Network() == "unix" {
		target = "unix://" + a.String()
	}
	if len(options) == 0 {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	c, err := grpc.NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// request is a call with one descriptor, of pairs of keys and values.
func request(domain string, pairs ...string) *rls.RateLimitRequest {
	d := new(ratelimit.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return &rls.RateLimitRequest{Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{d}}
}

func get(t *testing.T, s *envoy.Server, listener, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + s.Addr(listener).String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// Each error of a decision has the code that tells Envoy, and whoever reads its logs, what is wrong.
func TestErrors(t *testing.T) {
	var fails error
	var loaded atomic.Bool
	s, _ := start(t, envoy.Config{Loaded: loaded.Load, Decider: decider(func(ctx context.Context, in *rules.Input) (server.Verdict, error) {
		return server.Verdict{Decision: stint.Decision{Allowed: true}}, fails
	})})
	client := rls.NewRateLimitServiceClient(dial(t, s))
	is := func(r *rls.RateLimitRequest, code codes.Code, text string, httpCode int, body string) {
		t.Helper()
		_, err := client.ShouldRateLimit(t.Context(), r)
		if status.Code(err) != code || status.Convert(err).Message() != text {
			t.Errorf("%v, want %v: %s", err, code, text)
		}
		answer, err := http.Post("http://"+s.Addr("HTTP").String()+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if got, _ := io.ReadAll(answer.Body); answer.StatusCode != httpCode || text != "" && string(got) != text+"\n" {
			t.Errorf("/json: %d %q, want %d %q", answer.StatusCode, got, httpCode, text)
		}
	}
	const some = `{"domain":"d","descriptors":[{"entries":[{"key":"k"}]}]}`
	is(request(""), codes.InvalidArgument, "rate limit domain must not be empty", 400, `{"descriptors":[{}]}`)
	is(&rls.RateLimitRequest{Domain: "d"}, codes.InvalidArgument, "rate limit descriptor list must not be empty", 400, `{"domain":"d"}`)
	is(request("d", "k", ""), codes.Unavailable, "no rate limit configuration loaded", 503, some)
	loaded.Store(true)
	is(request("d", "k", ""), codes.OK, "", 200, some)
	fails = errors.New("no store")
	is(request("d", "k", ""), codes.Unavailable, "no store", 503, some)
	fails = stint.ErrRequest
	is(request("d", "k", ""), codes.InvalidArgument, "bad request", 400, some)
}

func TestHealth(t *testing.T) {
	var why atomic.Pointer[error]
	s, stop := start(t, envoy.Config{Decider: decider(allow), StopDelay: 300 * time.Millisecond, Ready: func() error {
		if err := why.Load(); err != nil {
			return *err
		}
		return nil
	}})
	client := grpc_health_v1.NewHealthClient(dial(t, s))
	is := func(want grpc_health_v1.HealthCheckResponse_ServingStatus, code int, body string) {
		t.Helper()
		for _, name := range []string{"", "ratelimit"} {
			got, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
			if err != nil || got.Status != want {
				t.Errorf("%q: %v, %v, want %v", name, got, err, want)
			}
		}
		if c, b := get(t, s, "HTTP", "/healthcheck"); c != code || b != body {
			t.Errorf("%d %q, want %d %q", c, b, code, body)
		}
	}
	is(grpc_health_v1.HealthCheckResponse_SERVING, 200, "OK")
	err := errors.New("no store")
	why.Store(&err)
	is(grpc_health_v1.HealthCheckResponse_NOT_SERVING, 500, "no store\n")
	why.Store(nil)
	is(grpc_health_v1.HealthCheckResponse_SERVING, 200, "OK")
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("other: %v", err)
	}

	watch, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(first, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	if next, err := watch.Recv(); err != nil || next.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Error(next, err)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("a watcher outlives the stop")
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A panic in one call ends that call.
func TestPanic(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(func(_ context.Context, in *rules.Input) (server.Verdict, error) {
		if in.Descriptors.Domain == "bad" {
			panic("a bug")
		}
		return server.Verdict{Decision: stint.Decision{Allowed: true}}, nil
	})})
	client := rls.NewRateLimitServiceClient(dial(t, s))
	if _, err := client.ShouldRateLimit(t.Context(), request("bad", "k", "")); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("good", "k", "")); err != nil {
		t.Error(err)
	}
}

func TestReflection(t *testing.T) {
	registered := false
	s, _ := start(t, envoy.Config{Decider: decider(allow), Register: []func(*grpc.Server){func(*grpc.Server) { registered = true }}})
	if !registered {
		t.Error("the other services were not registered")
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(dial(t, s)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	if all := strings.Join(names, " "); !strings.Contains(all, "envoy.service.ratelimit.v3.RateLimitService") || !strings.Contains(all, "grpc.health.v1.Health") {
		t.Error(all)
	}
}

// A call that is in flight when the server stops is answered, and one that comes later is not.
func TestStop(t *testing.T) {
	entered, release := make(chan bool), make(chan bool)
	s, stop := start(t, envoy.Config{Decider: decider(func(ctx context.Context, in *rules.Input) (server.Verdict, error) {
		entered <- true
		<-release
		return allow(ctx, in)
	})})
	client := rls.NewRateLimitServiceClient(dial(t, s))
	answered := make(chan error, 1)
	go func() {
		_, err := client.ShouldRateLimit(t.Context(), request("d", "k", ""))
		answered <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	<-s.Stopping()
	release <- true
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// A call that does not end is cut off after the timeout.
func TestStopTimeout(t *testing.T) {
	entered := make(chan bool)
	s, stop := start(t, envoy.Config{StopTimeout: 50 * time.Millisecond, Decider: decider(func(ctx context.Context, in *rules.Input) (server.Verdict, error) {
		entered <- true
		<-ctx.Done()
		return server.Verdict{}, ctx.Err()
	})})
	client := rls.NewRateLimitServiceClient(dial(t, s))
	answered := make(chan error, 1)
	go func() {
		_, err := client.ShouldRateLimit(t.Context(), request("d", "k", ""))
		answered <- err
	}()
	<-entered
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("a call that was cut off has an answer")
	}
}

// The socket that a killed process left behind is replaced, one that is served is not, and no
// other file is.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	s, _ := start(t, envoy.Config{Decider: decider(allow), Settings: &config.Envoy{Listen: "unix:" + path}})
	if _, err := rls.NewRateLimitServiceClient(dial(t, s)).ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
		t.Error(err)
	}
	second := envoy.New(envoy.Config{Decider: decider(allow), Settings: &config.Envoy{Listen: "unix:" + path}})
	if err := second.Listen(); err == nil {
		t.Error("a socket that is served was replaced")
	}
}

func TestDebug(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(allow), Stats: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the statistics")
	})})
	for path, want := range map[string]string{
		"/":             "/rlconfig: print out the currently loaded configuration",
		"/stats":        "the statistics",
		"/rlconfig":     "",
		"/debug/pprof/": "goroutine",
	} {
		if code, body := get(t, s, "debug", path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, _ := get(t, s, "debug", "/other"); code != 404 {
		t.Error(code)
	}
	if code, _ := get(t, s, "HTTP", "/rlconfig"); code != 404 {
		t.Error("the listener of calls has what is for debugging")
	}
}

// A connection ends at its age, and no call fails with it.
func TestConnectionAge(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(allow), Settings: &config.Envoy{MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: 10 * time.Second}})
	var dialled atomic.Int64
	client := rls.NewRateLimitServiceClient(dial(t, s, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})))
	for dialled.Load() < 3 {
		if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
			t.Fatal(err)
		}
	}
}

// A message, a body and headers that are too large are refused, and the server serves on.
func TestTooLarge(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(allow)})
	client := rls.NewRateLimitServiceClient(dial(t, s))
	large := request("d", "k", strings.Repeat("x", 5<<20))
	if _, err := client.ShouldRateLimit(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("message: %.100v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 100<<10))
	if _, err := client.ShouldRateLimit(ctx, request("d", "k", "")); err == nil {
		t.Error("headers of 100 KiB were read")
	}
	body := `{"domain":"` + strings.Repeat("x", 5<<20) + `"}`
	answer, err := http.Post("http://"+s.Addr("HTTP").String()+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("body: %d", answer.StatusCode)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
		t.Error(err)
	}
}

// Envoy's connection_keepalive asks more often than gRPC's default allows.
func TestKeepalive(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute: the least interval of grpc-go is 10 s")
	}
	s, _ := start(t, envoy.Config{Decider: decider(allow)})
	var dialled atomic.Int64
	client := rls.NewRateLimitServiceClient(dial(t, s, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		})))
	for range 2 {
		if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second)
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
