package envoy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// raw is a client of gRPC that sends what it likes.
type raw struct {
	net.Conn
	t      testing.TB
	framer *http2.Framer
	ids    uint32
}

// rawTo connects, and reads what comes until the connection ends.
func rawTo(t testing.TB, address net.Addr) *raw {
	t.Helper()
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{Conn: c, t: t, framer: http2.NewFramer(c, c)}
	_, err = io.WriteString(c, http2.ClientPreface)
	if err == nil {
		err = r.framer.WriteSettings()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// begin begins a call and returns its stream.
func (r *raw) begin(method string) uint32 {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	id := 2*r.ids + 1
	r.ids++
	_ = r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
	return id
}

// half sends the beginning of a message of size bytes.
func (r *raw) half(stream uint32, size, sent int) {
	data := make([]byte, 5+sent)
	binary.BigEndian.PutUint32(data[1:], uint32(size))
	_ = r.framer.WriteData(stream, false, data)
}

const shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// Calls whose message stops half-way, of which each may hold 4 MiB, are ended but for a few, the
// oldest first. Others are answered meanwhile.
func TestAttackHalfMessages(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(allow)})
	r := rawTo(t, s.Addr("gRPC"))
	defer r.Close()
	const calls = 200
	ended := make(chan int, 1)
	go func() {
		n := 0
		for n < calls-16 {
			f, err := r.framer.ReadFrame()
			if err != nil {
				break
			}
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				n++
			case *http2.MetaHeadersFrame, *http2.HeadersFrame:
				if f.Header().Flags.Has(http2.FlagHeadersEndStream) {
					n++
				}
			}
		}
		ended <- n
	}()
	client := rls.NewRateLimitServiceClient(dial(t, s))
	for range calls {
		r.half(r.begin(shouldRateLimit), 4<<20, 100)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
		t.Error(err)
	}
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n := <-ended; n < calls-16 {
		t.Errorf("%d of %d calls ended", n, calls)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
		t.Error(err)
	}
}

// Streams that do nothing, such as watches of health, are bounded over all connections, and one address
// leaves room for others, however many connections it has.
func TestAttackStreams(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(allow)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(ctx context.Context, from *grpc.ClientConn) error {
		watch, err := grpc_health_v1.NewHealthClient(from).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		return err
	}
	fill := func(address string) (n int) {
		t.Helper()
		conns := []*grpc.ClientConn{dialFrom(t, s, address), dialFrom(t, s, address)}
		for {
			if err := watch(ctx, conns[n%2]); err != nil {
				if status.Code(err) != codes.ResourceExhausted {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
	}
	if n := fill("127.0.0.1"); n != 1500 {
		t.Errorf("one address has %d streams of 2000", n)
	}
	all := 1500
	for i := 2; all < 2000 && i < 30; i++ {
		n := fill(fmt.Sprint("127.0.0.", i))
		if n == 0 {
			t.Fatalf("the client 127.0.0.%d has no stream, with %d of 2000 taken", i, all)
		}
		all += n
	}
	if all > 2000 {
		t.Errorf("%d streams", all)
	}
	cancel()
	await.Until(t, "there is room after the others ended", func() bool {
		return watch(t.Context(), dialFrom(t, s, "127.0.0.1")) == nil
	})
}

// dialFrom connects from an address of this machine.
func dialFrom(t testing.TB, s *envoy.Server, address string) *grpc.ClientConn {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return dial(t, s, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		return from.DialContext(ctx, "tcp", to)
	}))
}

// Each listener keeps max_connections, and closes any more.
func TestAttackConnections(t *testing.T) {
	settings := config.Default()
	settings.MaxConnections = 2
	decides := server.New(server.Config{Settings: settings, Rules: new(rules.Set), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(decides.Close)
	s, _ := start(t, envoy.Config{Decider: decider(allow), Bound: decides.BoundConnections, Settings: &config.Envoy{Stats: config.EnvoyStats{PrometheusListen: "127.0.0.1:0"}}, Prometheus: http.NotFoundHandler()})
	for _, listener := range []string{"gRPC", "HTTP", "debug", "Prometheus"} {
		var open []net.Conn
		for i := range 3 {
			c, err := net.Dial("tcp", s.Addr(listener).String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			open = append(open, c)
			if i < 2 {
				continue
			}
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // an idle one is closed after 10 s
			if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
				t.Errorf("%s: one connection more is open: %v", listener, err)
			}
		}
		for _, c := range open {
			c.Close()
		}
	}
	client := rls.NewRateLimitServiceClient(dial(t, s))
	await.Until(t, "a call is answered", func() bool {
		_, err := client.ShouldRateLimit(t.Context(), request("d", "k", ""))
		return err == nil
	})
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}

// Connections that break off at any point leave nothing behind.
func TestAttackBrokenConnections(t *testing.T) {
	s, stop := start(t, envoy.Config{Decider: decider(allow)})
	client := rls.NewRateLimitServiceClient(dial(t, s))
	ask := func() {
		t.Helper()
		if _, err := client.ShouldRateLimit(t.Context(), request("d", "k", "")); err != nil {
			t.Error(err)
		}
	}
	ask()
	before := runtime.NumGoroutine()
	n := 400
	if attack.Time(t, 0) > 0 {
		n = 10_000
	}
	breaks := []func(){
		func() { // nothing
			c, err := net.Dial("tcp", s.Addr("gRPC").String())
			if err == nil {
				c.Close()
			}
		},
		func() { // half of a call
			r := rawTo(t, s.Addr("gRPC"))
			r.half(r.begin(shouldRateLimit), 1000, 10)
			r.Close()
		},
		func() { // a call that is reset, and one of an unknown method
			r := rawTo(t, s.Addr("gRPC"))
			_ = r.framer.WriteRSTStream(r.begin(shouldRateLimit), http2.ErrCodeCancel)
			r.half(r.begin("/x/y"), 10, 0)
			r.Close()
		},
		func() { // streams that nobody reads
			r := rawTo(t, s.Addr("gRPC"))
			for range 5 {
				_ = r.framer.WriteData(r.begin("/grpc.health.v1.Health/Watch"), false, make([]byte, 5))
			}
			r.begin("/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas")
			r.Close()
		},
		func() { // no HTTP/2
			c, err := net.Dial("tcp", s.Addr("gRPC").String())
			if err == nil {
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				c.Close()
			}
		},
		func() { // half of a body
			c, err := net.Dial("tcp", s.Addr("HTTP").String())
			if err == nil {
				_, _ = io.WriteString(c, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
				c.Close()
			}
		},
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				breaks[i%len(breaks)]()
			}
		})
	}
	all.Wait()
	ask()
	await.Until(t, "the goroutines of before", func() bool { return runtime.NumGoroutine() <= before+2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A page in a browser cannot spend limits by /json.
func TestAttackJSONFromAnotherPage(t *testing.T) {
	s, _ := start(t, envoy.Config{Decider: decider(allow)})
	url := "http://" + s.Addr("HTTP").String() + "/json"
	for _, header := range [][2]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"X-None", ""}} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k"}]}]}`))
		r.Header.Set(header[0], header[1])
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if want := map[bool]int{true: 200, false: 403}[header[0] == "X-None"]; answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", header[0], answer.StatusCode, want)
		}
	}
}

// Whatever a call asks for, gives back or makes its limit, nobody gets more of a limit than it has:
// amounts, sums and periods do not overflow, and what is given back makes no more than a full limit.
func TestAttackHits(t *testing.T) {
	const file = `
domain: shop
descriptors:
  - {key: window, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: sliding, rate_limit: {unit: year, requests_per_unit: 5, algorithm: sliding_window}}
`
	set, err := rules.ParseFiles([]rules.File{{Name: "shop.yaml", Data: []byte(file), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	stores := map[string]func(*redislimit.EnvoyKeys) stint.Store{
		"memory": func(*redislimit.EnvoyKeys) stint.Store { return new(stint.Memory) },
		"redis": func(*redislimit.EnvoyKeys) stint.Store {
			return connectTo(t, redis, redislimit.Options{Namespace: "own"})
		},
		"shared": func(k *redislimit.EnvoyKeys) stint.Store {
			return connectTo(t, redis, redislimit.Options{Namespace: "shared", Envoy: k})
		},
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			keys := &redislimit.EnvoyKeys{Name: set.EnvoyCount}
			of := config.Default()
			of.DecisionTimeout = 10 * time.Second // no call is decided without the store
			decides := server.New(server.Config{Settings: of, Rules: set, Limiter: stint.NewLimiter(store(keys)), Log: slog.New(slog.DiscardHandler)})
			t.Cleanup(decides.Close)
			service := envoy.NewService(decides, new(config.Envoy), nil)
			for _, key := range []string{"window", "bucket", "sliding"} {
				hits(t, service, key)
			}
			override(t, service)
		})
	}
}

func connectTo(t *testing.T, redis *redistest.Server, o redislimit.Options) stint.Store {
	store, err := redislimit.Connect(t.Context(), redis.URL(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// hits makes hostile calls about a rule of 5 units.
func hits(t *testing.T, service *envoy.Service, key string) {
	call := func(value string, n uint64, negative bool, times int) *rls.RateLimitResponse {
		t.Helper()
		r := &rls.RateLimitRequest{Domain: "shop"}
		for range times {
			r.Descriptors = append(r.Descriptors, &ratelimit.RateLimitDescriptor{
				Entries:    []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}},
				HitsAddend: wrapperspb.UInt64(n), IsNegativeHits: negative,
			})
		}
		out, err := service.ShouldRateLimit(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %d × %d, %t: %v", key, times, n, negative, err)
		}
		for _, s := range out.Statuses {
			if s.LimitRemaining > 5 {
				t.Errorf("%s: %d × %d, %t: %v", key, times, n, negative, out)
			}
		}
		return out
	}
	amounts := []uint64{6, 1 << 31, math.MaxUint32, 1 << 52, 1<<53 + 1, 1 << 63, math.MaxUint64}
	for i, n := range amounts {
		for _, times := range []int{1, 2, 500} {
			value := fmt.Sprint("v", i, times)
			if out := call(value, n, false, times); out.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
				t.Errorf("%s: %d × %d pass: %v", key, times, n, out.OverallCode)
			}
			call(value, n, true, times)
			passed := 0
			for range 7 {
				if call(value, 1, false, 1).OverallCode == rls.RateLimitResponse_OK {
					passed++
				}
			}
			if passed > 5 {
				t.Errorf("%s: %d × %d given back: %d of 5 pass", key, times, n, passed)
			}
		}
	}
}

// override makes calls with hostile limits of their own. Each is decided or refused as malformed.
func override(t *testing.T, service *envoy.Service) {
	for _, amount := range []uint32{0, 1, math.MaxUint32} {
		for unit := int32(-1); unit <= 9; unit++ {
			for _, times := range []*wrapperspb.UInt32Value{nil, wrapperspb.UInt32(0), wrapperspb.UInt32(1), wrapperspb.UInt32(math.MaxInt32), wrapperspb.UInt32(math.MaxUint32)} {
				for _, n := range []uint64{0, 1, math.MaxUint64} {
					d := request("shop", "window", fmt.Sprint("o", amount, unit, times.GetValue()))
					d.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: amount, Unit: envoytype.RateLimitUnit(unit), UnitMultiplier: times}
					d.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
					out, err := service.ShouldRateLimit(t.Context(), d)
					if err != nil && status.Code(err) != codes.InvalidArgument {
						t.Errorf("%v: %v", d, err)
					}
					if err == nil && n > uint64(amount) && out.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
						t.Errorf("%v: %v", d, out)
					}
				}
			}
		}
	}
}

// A request whose body never ends is ended on each listener of HTTP, also where nothing reads the body.
func TestAttackSlowloris(t *testing.T) {
	t.Parallel() // it takes 10 s
	s, _ := start(t, envoy.Config{Decider: decider(allow), Settings: &config.Envoy{Stats: config.EnvoyStats{PrometheusListen: "127.0.0.1:0"}}, Prometheus: http.NotFoundHandler()})
	var all sync.WaitGroup
	for _, listener := range []string{"gRPC", "HTTP", "debug", "Prometheus"} {
		for _, text := range []string{"", "POST /json HTTP/1.1\r\nHost:", "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", http2.ClientPreface[:10]} {
			all.Go(func() {
				c, err := net.Dial("tcp", s.Addr(listener).String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, _ = io.WriteString(c, text)
				_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
				if _, err := io.Copy(io.Discard, c); err != nil && isTimeout(err) {
					t.Errorf("%s: a connection with %q is open after 30 s", listener, text)
				}
			})
		}
	}
	all.Wait()
}
