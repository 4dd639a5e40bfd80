package quota_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/envoy/quota"
	"github.com/stintdev/stint/server/rules"
)

const composedFile = `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: few, rate_limit: {unit: year, requests_per_unit: 40}}
  - {key: bucket, rate_limit: {unit: day, requests_per_unit: 100, algorithm: token_bucket}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: closed, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: penal, rate_limit: {unit: year, requests_per_unit: 100}, penalty: {ban_after: 1, ban_for: 1h, forget_after: 1h}}
  - key: env
    value: prod
    descriptors:
      - {key: name, rate_limit: {unit: year, requests_per_unit: 100}}
`

// instance is a server with the quota service, on a port.
type instance struct {
	*server.Server
	quota *quota.Service
	addr  string
	conn  *grpc.ClientConn
}

// compose starts an instance as a program does, over a store (nil: memory).
func compose(t *testing.T, store stint.Store, settings quota.Settings) *instance {
	t.Helper()
	set, err := rules.ParseFiles([]rules.File{{Name: "envoy.yaml", Data: []byte(composedFile), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	c.Settings.DecisionTimeout = 10 * time.Second // no call is decided without the store
	if store != nil {
		c.Limiter = stint.NewLimiter(store)
	}
	s := &instance{Server: server.New(c)}
	t.Cleanup(s.Server.Close)
	settings.Instances = s.Instances
	if s.quota, err = quota.New(s.Server, settings); err != nil {
		t.Fatal(err)
	}
	e := envoy.New(envoy.Config{
		Settings: &config.Envoy{Listen: "127.0.0.1:0"}, Decider: s.Server, Log: c.Log, StopTimeout: 10 * time.Second,
		Register: []func(*grpc.Server){func(g *grpc.Server) { s.quota.Register(g) }},
	})
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	go func() {
		<-e.Stopping()
		s.quota.Stop()
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.addr = e.Addr("gRPC").String()
	if s.conn, err = grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// connected is a proxy with a stream of gRPC to s.
type connected struct {
	*proxy
	stream rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient
	came   chan *rlqs.RateLimitQuotaResponse
	err    error // why came was closed
}

func (s *instance) proxy(t *testing.T) *connected {
	c := &connected{proxy: &proxy{t: t, domain: "d", interval: time.Hour}, came: make(chan *rlqs.RateLimitQuotaResponse, 100)}
	c.connect = func() func(*rlqs.RateLimitQuotaUsageReports) error {
		stream, err := rlqs.NewRateLimitQuotaServiceClient(s.conn).StreamRateLimitQuotas(t.Context())
		if err != nil {
			t.Error(err)
			return nil
		}
		c.stream = stream
		go func() {
			defer close(c.came)
			for {
				m, err := stream.Recv()
				if err != nil {
					c.err = err
					return
				}
				c.came <- m
			}
		}()
		return stream.Send
	}
	return c
}

// next waits for a response, and returns what it assigns.
func (c *connected) next() string {
	c.t.Helper()
	select {
	case m, ok := <-c.came:
		if !ok {
			c.t.Fatalf("the stream ended: %v", c.err)
		}
		c.apply(m, time.Now())
		text := strings.Join(c.log, " ")
		c.log = nil
		return text
	case <-time.After(20 * time.Second):
		c.t.Fatal("no response")
		return ""
	}
}

// reportNow sends a report of all buckets.
func (c *connected) reportNow() {
	c.proxy.next = time.Now().Add(-time.Second)
	c.tick()
}

// remaining is how much is left of a descriptor.
func (s *instance) remaining(t *testing.T, entries ...rules.Entry) int64 {
	t.Helper()
	v, err := s.Decide(t.Context(), &rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{{Entries: entries}}}}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Each[v.Descriptors[0].Ask].Remaining
}

func onStores(t *testing.T, test func(t *testing.T, store stint.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, new(stint.Memory)) })
	t.Run("redis", func(t *testing.T) {
		store, err := redislimit.Connect(t.Context(), redistest.Start(t).URL(), redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		test(t, store)
	})
}

// Each kind of rule of Envoy's files gives the assignment that it should.
func TestComposed(t *testing.T) {
	onStores(t, func(t *testing.T, store stint.Store) {
		s := compose(t, store, quota.Settings{})
		p := s.proxy(t)
		ask := func(want string, pairs ...string) {
			t.Helper()
			p.request(bucketID(pairs...))
			if got := p.next(); got != want {
				t.Errorf("%v: %q, want %q", pairs, got, want)
			}
		}
		ask("DENY_ALL 50", "k", "one")
		ask("DENY_ALL 50", "k", "two")
		ask("DENY_ALL 50", "bucket", "one")
		ask("DENY_ALL 50", "name", "n", "env", "prod") // sorted: env, name
		ask("ALLOW_ALL", "name", "n", "env", "test")
		ask("ALLOW_ALL", "free", "x")
		ask("DENY_ALL", "closed", "x")
		ask("ALLOW_ALL", "shadow", "x")
		ask("ALLOW_ALL", "nobody", "x")
		ask("DENY_ALL 50", "penal", "x")
		if n := s.remaining(t, rules.Entry{Key: "k", Value: "one"}); n != 49 {
			t.Errorf("%d remain", n)
		}
		if n := s.remaining(t, rules.Entry{Key: "env", Value: "prod"}, rules.Entry{Key: "name", Value: "n"}); n != 49 {
			t.Errorf("%d remain", n)
		}
		for range 30 {
			p.request(bucketID("shadow", "x"))
		}
		for range 60 {
			p.request(bucketID("k", "one"))
		}
		time.Sleep(60 * time.Millisecond) // a report after less is one that follows an assignment
		p.reportNow()
		if got := p.next(); got != "DENY_ALL 49" {
			t.Errorf("after the report: %q", got)
		}
		if n := s.remaining(t, rules.Entry{Key: "shadow", Value: "x"}); n != 69 {
			t.Errorf("%d remain of a rule in shadow mode, of which 31 were used", n)
		}
		// What no assignment covers may be more than is left, and is charged.
		for range 60 {
			p.buckets[idText(bucketID("k", "two"))].allowed++
		}
		p.reportNow()
		if n := s.remaining(t, rules.Entry{Key: "k", Value: "two"}); n != 0 {
			await.Until(t, "39 remain: 61 of 100 were used", func() bool {
				return s.remaining(t, rules.Entry{Key: "k", Value: "two"}) <= 39
			})
		}
	})
}

// Instances that share a store never hand out more than the limit together, and all of it if it is
// wanted.
func TestInstancesShareALimit(t *testing.T) {
	onStores(t, func(t *testing.T, store stint.Store) {
		const limit = 40 // of key few
		one, two := compose(t, store, quota.Settings{}), compose(t, store, quota.Settings{})
		var proxies []*connected
		for i := range 6 {
			p := []*instance{one, two}[i%2].proxy(t)
			p.noAssignment = blanket(1) // deny
			proxies = append(proxies, p)
		}
		id, through := bucketID("few", "v"), 0
		deadline := time.Now().Add(time.Minute) // a busy machine assigns late
		for through < limit && time.Now().Before(deadline) {
			for _, p := range proxies {
				for p.request(id) {
					through++
				}
				p.reportNow()
			}
			time.Sleep(60 * time.Millisecond)
			for _, p := range proxies {
				for len(p.came) > 0 {
					p.next()
				}
			}
		}
		for _, p := range proxies {
			for p.request(id) {
				through++
			}
		}
		if through != limit {
			t.Errorf("%d let through: the limit is %d", through, limit)
		}
	})
}

// A stop ends streams with a code by which proxies connect again, and waits for none.
func TestComposedStop(t *testing.T) {
	s := compose(t, nil, quota.Settings{})
	p := s.proxy(t)
	p.request(bucketID("k", "v"))
	p.next()
	s.quota.Stop()
	for range p.came {
		t.Error("a response after the stop")
	}
	if status.Code(p.err) != codes.Unavailable {
		t.Error(p.err)
	}
}
