package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
)

// A management server named in a file gives descriptors beside the rules of the file; each may change
// without the other, and what is wrong leaves both.
func TestServeXDS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	configs := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	push := func(version, key string) {
		t.Helper()
		snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: {&ratelimit.RateLimitConfig{
			Name: "shop", Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{{Key: key, RateLimit: &ratelimit.RateLimitPolicy{Unlimited: true}}},
		}}})
		if err == nil {
			err = configs.SetSnapshot(t.Context(), "stint-1", snapshot)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	push("1", "plan")
	management := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(management, xds.NewServer(t.Context(), configs, nil))
	go func() { _ = management.Serve(l) }()
	t.Cleanup(management.Stop)

	dir := t.TempDir()
	file, socket := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "rls.sock")
	write := func(limit string) {
		t.Helper()
		text := "server:\n  envoy: {xds: {server: \"" + l.Addr().String() + "\", node_id: stint-1}, listen: \"unix:" + socket + "\"}\nrules: [{name: client, key: client.ip, limits: [" + limit + "]}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("unlimited")
	s := serving(t, "--config", file)
	a := answeringBeside(t, s)
	const unlimited, unknown = "OK 4294967295", "OK 0"
	is := func(what, plan, tier string, check int) {
		t.Helper()
		a.asks(t, plan, "shop", "plan=free")
		a.asks(t, tier, "shop", "tier=free")
		if status, _ := checkedBy(t, s, `{"client":"192.0.2.1"}`); status != check {
			t.Errorf("%s: a check: %d, want %d", what, status, check)
		}
	}
	is("at the start", unlimited, unknown, 200)
	push("2", "tier")
	a.logged(t, "rules taken")
	is("after other descriptors", unknown, unlimited, 200)
	write("0 per 1h")
	a.logged(t, "rules taken")
	is("after another file", unknown, unlimited, 429)
	write("wrong")
	a.logged(t, "rules not taken")
	push("3", "plan")
	a.logged(t, "rules taken")
	is("after a wrong file and other descriptors", unlimited, unknown, 429)
	push("4", "")
	a.logged(t, "rules not taken.*descriptor has empty key")
	write("unlimited")
	a.logged(t, "rules taken")
	is("after wrong descriptors and another file", unlimited, unknown, 200)
}
