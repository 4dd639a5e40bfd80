package envoy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/redistest"
	stintconfig "github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// management is a management server of go-control-plane.
type management struct {
	address  string
	cache    cache.SnapshotCache
	requests chan *discovery.DiscoveryRequest
	headers  chan metadata.MD // of each stream
	version  int
	stop     func()
}

func newManagement() *management {
	return &management{
		address: "127.0.0.1:0", cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil),
		requests: make(chan *discovery.DiscoveryRequest, 100), headers: make(chan metadata.MD, 100),
	}
}

// start listens, after a stop at the same address.
func (m *management) start(t *testing.T, options ...grpc.ServerOption) {
	t.Helper()
	l, err := net.Listen("tcp", m.address)
	if err != nil {
		t.Fatal(err)
	}
	m.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, xds.NewServer(ctx, m.cache, xds.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			md, _ := metadata.FromIncomingContext(ctx)
			m.headers <- md
			return nil
		},
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			m.requests <- proto.CloneOf(r)
			return nil
		},
	}))
	go func() { _ = s.Serve(l) }()
	m.stop = func() { cancel(); s.Stop() }
	t.Cleanup(m.stop)
}

// set makes a new version of all configurations.
func (m *management) set(t *testing.T, all ...types.Resource) {
	t.Helper()
	m.version++
	snapshot, err := cache.NewSnapshot(fmt.Sprint("v", m.version), map[resource.Type][]types.Resource{resource.RateLimitConfigType: all})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cache.SetSnapshot(t.Context(), "node", snapshot); err != nil {
		t.Fatal(err)
	}
}

// next is the next request: the version and what was wrong.
func (m *management) next(t *testing.T) *discovery.DiscoveryRequest {
	t.Helper()
	select {
	case r := <-m.requests:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("no request came")
	}
	return nil
}

func (m *management) acknowledged(t *testing.T, version string) {
	t.Helper()
	if r := m.next(t); r.VersionInfo != version || r.ErrorDetail != nil {
		t.Errorf("a request with version %q and %v, want %q", r.VersionInfo, r.ErrorDetail, version)
	}
}

// following is an XDS that follows, and the sets it took.
func following(t *testing.T, x *stintconfig.XDS) <-chan *rules.Set {
	x.NodeID = "node"
	if x.Retry == 0 {
		x.Retry = 10 * time.Millisecond
	}
	if x.Backoff == 0 {
		x.Backoff, x.MaxBackoff = 10*time.Millisecond, 20*time.Millisecond
	}
	taken := make(chan *rules.Set, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		envoy.Follow(ctx, x, slog.New(slog.DiscardHandler), func(files []rules.File) error {
			if len(files) == 0 {
				taken <- nil
				return nil
			}
			set, err := rules.ParseFiles(files)
			if err == nil {
				taken <- set
			}
			return err
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return taken
}

// expect is the next set, which has a rule with this name in statistics.
func expect(t *testing.T, taken <-chan *rules.Set, stat string) *rules.Rule {
	t.Helper()
	select {
	case set := <-taken:
		if set == nil {
			t.Fatal("no configurations were taken")
		}
		for _, r := range set.Rules {
			if r.Descriptor != nil && r.Descriptor.Stat == stat {
				return r
			}
		}
		t.Fatalf("no rule %s", stat)
	case <-time.After(10 * time.Second):
		t.Fatalf("%s was not taken", stat)
	}
	return nil
}

func limited(domain, key string, n uint32) *config.RateLimitConfig {
	return &config.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*config.RateLimitDescriptor{
		{Key: key, RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_HOUR, RequestsPerUnit: n}},
	}}
}

func TestXDS(t *testing.T) {
	m := newManagement()
	m.start(t)
	taken := following(t, &stintconfig.XDS{
		Server: m.address, NodeMetadata: map[string]string{"zone": "a"}, Headers: map[string]string{"authorization": "Bearer x"},
	})
	first := m.next(t)
	if zone := first.Node.GetMetadata().GetFields()["zone"].GetStringValue(); first.Node.GetId() != "node" || zone != "a" || first.TypeUrl != resource.RateLimitConfigType || first.VersionInfo != "" {
		t.Errorf("the first request: %v", first)
	}
	if h := (<-m.headers).Get("authorization"); len(h) != 1 || h[0] != "Bearer x" {
		t.Errorf("headers: %q", h)
	}
	m.set(t, limited("shop", "user", 5))
	if r := expect(t, taken, "shop.user"); r.Descriptor.Amount != 5 || r.Descriptor.Unit != rules.Hour {
		t.Errorf("%+v", r.Descriptor)
	}
	m.acknowledged(t, "v1")
	m.set(t, limited("shop", "user", 6), limited("other", "key", 1))
	expect(t, taken, "other.key")
	m.acknowledged(t, "v2")

	m.set(t, limited("shop", "", 6))
	if r := m.next(t); r.VersionInfo != "v2" || !strings.Contains(r.ErrorDetail.GetMessage(), "descriptor has empty key") {
		t.Errorf("after a wrong configuration: %q, %v", r.VersionInfo, r.ErrorDetail)
	}
	// The server sends the same again at once. It is refused again, after a pause.
	if r := m.next(t); r.VersionInfo != "v2" || r.ErrorDetail == nil {
		t.Errorf("after the same: %q, %v", r.VersionInfo, r.ErrorDetail)
	}
	m.set(t, limited("shop", "user", 7))
	expect(t, taken, "shop.user")
	for r := m.next(t); r.VersionInfo != "v4"; r = m.next(t) {
		if r.ErrorDetail == nil {
			t.Errorf("version %q was acknowledged", r.VersionInfo)
		}
	}
	m.set(t)
	if set := <-taken; set != nil {
		t.Errorf("no configurations: %v", set)
	}
	m.acknowledged(t, "v5")
}

// TestXDSEveryField has all that a configuration can say, also what is newer than the generated code.
func TestXDSEveryField(t *testing.T) {
	c := limited("shop", "user", 5)
	d := c.Descriptors[0]
	d.Value, d.ShadowMode, d.DetailedMetric = "eve*", true, true
	d.RateLimit.Name, d.RateLimit.Unit = "strict", config.RateLimitUnit(5)
	d.RateLimit.Replaces = []*config.RateLimitReplace{{Name: "mild"}, {Name: "lax"}}
	said, err := structpb.NewStruct(map[string]any{"tier": "gold", "list": []any{1.5, true}})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 1)
	newer = protowire.AppendBytes(protowire.AppendTag(newer, 8, protowire.BytesType), encoded)
	d.ProtoReflect().SetUnknown(newer)
	d.Descriptors = []*config.RateLimitDescriptor{{Key: "free", RateLimit: &config.RateLimitPolicy{Unlimited: true}}}
	m := newManagement()
	m.set(t, c)
	m.start(t)
	r := expect(t, following(t, &stintconfig.XDS{Server: m.address}), "shop.user_eve*")
	got := r.Descriptor
	if r.Mode != rules.Shadow || !got.Quota || !got.Detailed || got.Name != "strict" || got.Unit != rules.Month || fmt.Sprint(got.Replaces) != "[mild lax]" || fmt.Sprint(got.Metadata) != "map[list:[1.5 true] tier:gold]" {
		t.Errorf("%v %+v", r.Mode, got)
	}
}

// TestXDSReconnects starts before the management server, loses it, and finds it again.
func TestXDSReconnects(t *testing.T) {
	m := newManagement()
	m.start(t)
	m.stop()
	taken := following(t, &stintconfig.XDS{Server: m.address})
	time.Sleep(30 * time.Millisecond) // some attempts
	m.set(t, limited("shop", "user", 5))
	m.start(t)
	expect(t, taken, "shop.user")
	m.next(t)
	m.acknowledged(t, "v1")

	m.stop()
	m.start(t) // with the same version, which it sends again, because it may have begun to count anew
	m.next(t)
	m.acknowledged(t, "v1")
	if len(taken) > 0 {
		t.Error("the same configuration was taken twice")
	}
	m.stop()
	m.version = 0
	m.set(t, limited("shop", "client", 5))
	m.start(t)
	expect(t, taken, "shop.client")
}

func TestXDSTLS(t *testing.T) {
	ca, cert, key := redistest.Certificate(t)
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	cas, err := pemfile.Certificates(text)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	m := newManagement()
	m.set(t, limited("shop", "user", 5))
	m.start(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pemfile.Pool(cas),
	})))
	x := stintconfig.XDS{Server: m.address, TLS: &stintconfig.UpstreamTLS{CA: ca, ServerName: "localhost", Cert: cert, Key: key}}
	for name, change := range map[string]func(*stintconfig.XDS){
		"no certificate":    func(x *stintconfig.XDS) { x.TLS.Cert, x.TLS.Key = "", "" },
		"the wrong name":    func(x *stintconfig.XDS) { x.TLS.ServerName = "elsewhere" },
		"another authority": func(x *stintconfig.XDS) { x.TLS.CA = "" },
		"no TLS":            func(x *stintconfig.XDS) { x.TLS = nil },
	} {
		wrong, files := x, *x.TLS
		wrong.TLS = &files
		change(&wrong)
		wrong.Retry = time.Millisecond
		taken := following(t, &wrong)
		time.Sleep(30 * time.Millisecond)
		if len(taken) > 0 {
			t.Errorf("%s: a configuration was taken", name)
		}
	}
	expect(t, following(t, &x), "shop.user")
}

// scripted answers each stream with its responses, and hands out the requests.
type scripted struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	responses []*discovery.DiscoveryResponse
	requests  chan *discovery.DiscoveryRequest
}

func (s *scripted) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for _, r := range s.responses {
		got, err := stream.Recv()
		if err != nil {
			return err
		}
		s.requests <- got
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	got, err := stream.Recv()
	s.requests <- got
	<-stream.Context().Done()
	return err
}

// TestXDSMalformed gets what no management server should send. Each is refused with a reason.
func TestXDSMalformed(t *testing.T) {
	const of = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	s := &scripted{requests: make(chan *discovery.DiscoveryRequest, 100)}
	wants := []string{"", "want " + of, "resource 0: type \"another\"", "resource 0: proto", ""}
	for i, r := range []*discovery.DiscoveryResponse{
		{TypeUrl: "another"},
		{TypeUrl: of, Resources: []*anypb.Any{{TypeUrl: "another"}}},
		{TypeUrl: of, Resources: []*anypb.Any{{TypeUrl: of, Value: []byte("\xff\xff")}}},
		{TypeUrl: of},
	} {
		r.Nonce, r.VersionInfo = fmt.Sprint("n", i), "v"
		s.responses = append(s.responses, r)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	following(t, &stintconfig.XDS{Server: l.Addr().String()})
	for i, want := range wants {
		r := <-s.requests
		if got := r.ErrorDetail.GetMessage(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
		nonce, version := fmt.Sprint("n", i-1), ""
		if i == 0 {
			nonce = ""
		}
		if i == len(wants)-1 {
			version = "v"
		}
		if r.ResponseNonce != nonce || r.VersionInfo != version {
			t.Errorf("request %d: nonce %q, version %q", i, r.ResponseNonce, r.VersionInfo)
		}
	}
}

// TestXDSRefusesSlowly counts how often a server that repeats what was refused at once is answered.
func TestXDSRefusesSlowly(t *testing.T) {
	m := newManagement()
	m.set(t, limited("shop", "", 6))
	m.start(t)
	x := &stintconfig.XDS{Server: m.address, Backoff: time.Hour}
	taken := following(t, x)
	m.next(t)
	for range 2 { // the second has waited for a second
		if r := m.next(t); r.ErrorDetail == nil {
			t.Error("it was not refused")
		}
	}
	time.Sleep(100 * time.Millisecond)
	if len(m.requests) > 0 || len(taken) > 0 {
		t.Errorf("%d refusals at once, %d taken", len(m.requests), len(taken))
	}
}
