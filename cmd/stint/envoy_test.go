package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/redistest"
)

// TestEnvoy runs the service in memory, as a newcomer does who sets only where the files are.
func TestEnvoy(t *testing.T) {
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	s := asEnvoy(t, append(variables, "REDIS_POOL_SIZE=5", "MEMCACHE_HOST_PORT=a:1")...)
	for _, want := range []string{
		"variables=MEMCACHE_HOST_PORT,REDIS_POOL_SIZE",
		"counts are kept in memory, by this instance alone, because REDIS_URL is not set",
	} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, s.log)
		}
	}
	for _, want := range []string{"OK 1", "OK 0", "OVER_LIMIT 0"} {
		s.asks(t, want, "shop", "remote_address=192.0.2.1")
	}
	s.asks(t, "OK 1", "shop", "remote_address=192.0.2.2")
	s.asks(t, "OK 4294967295", "shop", "plan=free")
	s.asks(t, "OK 0", "elsewhere", "remote_address=192.0.2.1")
	if got := fetched(t, s.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck: %s", got)
	}
	if got := fetched(t, s.http+"/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"remote_address","value":"192.0.2.1"}]}]}`); !strings.HasPrefix(got, "429 {") {
		t.Errorf("/json: %s", got)
	}
	if got := fetched(t, s.debug+"/rlconfig", ""); !strings.Contains(got, "shop.remote_address: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false\n") {
		t.Errorf("/rlconfig: %s", got)
	}
	if code, out, errs := call("", "status", "--admin", s.admin); code != 0 || !strings.Contains(out, "memory") {
		t.Errorf("stint status: %d, %s%s", code, out, errs)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d:\n%s", code, s.log)
	}
}

// TestEnvoyExplained: what decides all calls of the service is known to those who explain one.
func TestEnvoyExplained(t *testing.T) {
	for variable, want := range map[string]string{
		"QUOTA_MODE=false": "429, and refused by rule shop/remote_address",
		"QUOTA_MODE=true":  "200, and allowed",
	} {
		variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
		s := asEnvoy(t, append(variables, "REDIS_URL=memory", variable)...)
		const body = `{"domain":"shop","descriptors":[{"entries":[{"key":"remote_address","value":"192.0.2.1"}]},{"entries":[{"key":"nothing","value":"here"}]}]}`
		for range 2 {
			fetched(t, s.http+"/json", body)
		}
		code, out, errs := call("", "explain", "--admin", s.admin, "--domain", "shop", "--descriptor", "remote_address=192.0.2.1", "--descriptor", "nothing=here")
		if code != 0 {
			t.Fatal(code, out, errs)
		}
		explained := "allowed"
		if _, rule, refused := strings.Cut(out, "It would be refused (limited) by rule "); refused {
			rule, _, _ = strings.Cut(rule, ".\n")
			explained = "refused by rule " + rule
		} else if !strings.Contains(out, "It would be allowed.") {
			t.Errorf("%s: %s", variable, out)
		}
		answered, _, _ := strings.Cut(fetched(t, s.http+"/json", body), " ")
		if got := answered + ", and " + explained; got != want {
			t.Errorf("%s: %s, want %s\n%s", variable, got, want, out)
		}
	}
}

// TestEnvoyReload swaps the runtime directory, breaks it, and mends it.
func TestEnvoyReload(t *testing.T) {
	variables, config := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	root := filepath.Dir(filepath.Dir(filepath.Dir(config)))
	s := asEnvoy(t, append(variables, "LOG_LEVEL=info", "LOG_FORMAT=json", "REDIS_URL=memory")...)
	swap := func(version, text string) {
		t.Helper()
		dir := filepath.Join(root, version, "ratelimit/config")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(root, "next")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(root, "current")); err != nil {
			t.Fatal(err)
		}
	}
	s.asks(t, "OK 1", "shop", "remote_address=192.0.2.1")
	swap("v2", strings.ReplaceAll(shop, "plan", "tier"))
	s.logged(t, "rules taken")
	s.asks(t, "OK 4294967295", "shop", "tier=free")
	s.asks(t, "OK 0", "shop", "plan=free")
	s.asks(t, "OK 0", "shop", "remote_address=192.0.2.1") // the count stays
	swap("v3", "domain: shop\ndescriptors: [{key: a, surprise: 1}]\n")
	if line := s.logged(t, "rules not taken"); !strings.Contains(line, "shop.yaml:2:24: ") || !strings.Contains(line, "unknown key 'surprise'") {
		t.Errorf("the log: %s", line)
	}
	s.asks(t, "OK 4294967295", "shop", "tier=free")
	if err := os.WriteFile(filepath.Join(root, "v3/ratelimit/config/shop.yaml"), []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	s.signal(t, syscall.SIGHUP)                                                        // in place, so that only a signal makes it look
	if line := s.logged(t, "rules taken"); !strings.Contains(line, `"level":"WARN"`) { // as the line that it ends
		t.Errorf("the log: %s", line)
	}
	s.asks(t, "OK 4294967295", "shop", "plan=free")
}

// TestEnvoyWithoutRedis starts while Redis is away. Then Redis comes, goes and comes back.
func TestEnvoyWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	redis.Stop(t)
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	s := asEnvoy(t, append(variables, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr)...)
	if got := s.ask(t, "shop", "remote_address=192.0.2.1"); !strings.HasPrefix(got, "OK ") { // by this instance's share
		t.Errorf("without Redis: %s", got)
	}
	if got := fetched(t, s.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck: %s", got)
	}
	redis.Restart(t)
	s.logged(t, "the store decides again")
	client := redis.Client(t)
	await.Until(t, "it counts in Redis", func() bool {
		s.ask(t, "shop", "remote_address=192.0.2.2")
		keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*192.0.2.2*").Build()).AsStrSlice()
		return err == nil && len(keys) == 1
	})
}

// TestEnvoySharedCounts is STINT_ENVOY_KEYS: a count of envoyproxy/ratelimit counts here, and ours there.
func TestEnvoySharedCounts(t *testing.T) {
	redis := redistest.Start(t)
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	s := asEnvoy(t, append(variables, "REDIS_URL="+redis.Addr, "STINT_ENVOY_KEYS=true", "CACHE_KEY_PREFIX=old:")...)
	if time.Now().Unix()%86400 > 86390 {
		time.Sleep(11 * time.Second) // the window of a day must not end meanwhile
	}
	client, day := redis.Client(t), time.Now().Unix()/86400*86400
	key := fmt.Sprint("old:shop_remote_address_192.0.2.1_", day)
	if err := client.Do(t.Context(), client.B().Set().Key(key).Value("1").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	s.asks(t, "OK 0", "shop", "remote_address=192.0.2.1")
	if got, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString(); err != nil || got != "2" {
		t.Errorf("%s: %s, %v", key, got, err)
	}
}

// TestEnvoyPerSecond is REDIS_PERSECOND: limits of less than a minute count in another Redis, in either
// form of keys, and it may be away without the other.
func TestEnvoyPerSecond(t *testing.T) {
	for _, shared := range []string{"false", "true"} {
		t.Run("STINT_ENVOY_KEYS="+shared, func(t *testing.T) {
			t.Parallel()
			if time.Now().Unix()%86400 > 86340 {
				time.Sleep(61 * time.Second) // the window of a day must not end meanwhile
			}
			first, second := redistest.Start(t), redistest.Start(t)
			variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": `domain: shop
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 1000000}}
  - {key: minute, rate_limit: {unit: day, requests_per_unit: 3}}
`})
			s := asEnvoy(t, append(variables, "REDIS_URL="+first.Addr, "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL="+second.Addr, "STINT_ENVOY_KEYS="+shared)...)
			counts := func(in *redistest.Server, what string) int {
				client := in.Client(t)
				keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*"+what+"*").Build()).AsStrSlice()
				if err != nil {
					t.Fatal(err)
				}
				return len(keys)
			}
			await.Until(t, "both count", func() bool {
				s.ask(t, "shop", "second=1")
				return counts(second, "second") > 0
			})
			s.asks(t, "OK 2", "shop", "minute=1")
			if counts(first, "second") != 0 || counts(first, "minute") != 1 || counts(second, "minute") != 0 {
				t.Error("a count is in the other Redis")
			}
			second.Stop(t)
			await.Until(t, "the second is known to be away", func() bool {
				s.ask(t, "shop", "second=1")
				return strings.Contains(s.log.String(), "the second Redis")
			})
			s.asks(t, "OK 1", "shop", "minute=1") // with its number, so of the store
			s.asks(t, "OK 0", "shop", "minute=1")
			s.asks(t, "OVER_LIMIT 0", "shop", "minute=1")
		})
	}
}

// TestEnvoyHealthNeedsRedis is REDIS_HEALTH_CHECK_ACTIVE_CONNECTION.
func TestEnvoyHealthNeedsRedis(t *testing.T) {
	redis := redistest.Start(t)
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	s := asEnvoy(t, append(variables, "REDIS_URL="+redis.Addr, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")...)
	if got := fetched(t, s.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck: %s", got)
	}
	redis.Stop(t)
	s.logged(t, "the store does not decide")
	if got := fetched(t, s.http+"/healthcheck", ""); !strings.HasPrefix(got, "500 ") {
		t.Errorf("/healthcheck without Redis: %s", got)
	}
}

// TestEnvoyEmpty has an empty directory at first, and again in the end: nothing is limited.
func TestEnvoyEmpty(t *testing.T) {
	variables, config := runtimeDirectory(t, nil)
	s := asEnvoy(t, append(variables, "RUNTIME_WATCH_ROOT=false")...)
	s.asks(t, "OK 0", "shop", "plan=free")
	if got := fetched(t, s.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck: %s", got)
	}
	file := filepath.Join(config, "shop.yaml")
	if err := os.WriteFile(file, []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	s.asksUntil(t, "OK 4294967295", "shop", "plan=free")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.asksUntil(t, "OK 0", "shop", "plan=free")
}

// TestEnvoyStartWithout has no good files at first.
func TestEnvoyStartWithout(t *testing.T) {
	variables, config := runtimeDirectory(t, map[string]string{"shop.yaml": "domain: [\n"})
	s := asEnvoy(t, append(variables, "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "RUNTIME_WATCH_ROOT=false", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")...)
	if got := s.ask(t, "shop", "plan=free"); !strings.Contains(got, "no rate limit configuration loaded") {
		t.Errorf("without a configuration: %s", got)
	}
	if got := fetched(t, s.http+"/healthcheck", ""); !strings.HasPrefix(got, "500 ") {
		t.Errorf("/healthcheck without a configuration: %s", got)
	}
	if err := os.WriteFile(filepath.Join(config, "shop.yaml"), []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	s.asksUntil(t, "OK 4294967295", "shop", "plan=free")
	if got := fetched(t, s.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck: %s", got)
	}
}

// TestEnvoyRefusesToStart has the errors of a start: each ends the program at once.
func TestEnvoyRefusesToStart(t *testing.T) {
	good, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	bad, _ := runtimeDirectory(t, map[string]string{"a.yaml": shop, "b.yaml": "domain: x\ndescriptors: [{key: a, surprise: 1}]\n"})
	for name, c := range map[string]struct {
		variables []string
		code      int
		want      string
	}{
		"a wrong variable":         {append([]string{"NEAR_LIMIT_RATIO=7"}, good...), 2, `NEAR_LIMIT_RATIO: "7": want a number from 0 to 1`},
		"a wrong file":             {bad, 1, "b.yaml:2:24: config error, unknown key 'surprise'"},
		"no directory":             {[]string{"RUNTIME_ROOT=/nonexistent"}, 1, "/nonexistent/config: no such file or directory"},
		"a port that there is not": {append([]string{"DEBUG_PORT=99999"}, good...), 2, "DEBUG_PORT"},
		"a certificate not there":  {append([]string{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/nonexistent", "GRPC_SERVER_TLS_KEY=/nonexistent"}, good...), 1, "/nonexistent: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := program(t, "envoy", "--admin-listen", "127.0.0.1:0")
			p.Env = append(p.Env, "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "USE_STATSD=false")
			p.Env = append(p.Env, c.variables...)
			said, _ := p.CombinedOutput()
			if p.ProcessState.ExitCode() != c.code || !strings.Contains(string(said), c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", p.ProcessState.ExitCode(), c.code, c.want, said)
			}
		})
	}
}

// TestEnvoyXDS waits for the first configuration of a management server, takes a change, and keeps it
// while the server is away.
func TestEnvoyXDS(t *testing.T) {
	limited := func(key string) types.Resource {
		return &ratelimit.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{
			{Key: key, RateLimit: &ratelimit.RateLimitPolicy{Unlimited: true}},
		}}
	}
	configs := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	version := 0
	set := func(r types.Resource) {
		t.Helper()
		version++
		snapshot, err := cache.NewSnapshot(fmt.Sprint(version), map[resource.Type][]types.Resource{resource.RateLimitConfigType: {r}})
		if err == nil {
			err = configs.SetSnapshot(t.Context(), "default", snapshot)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	management := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(management, xds.NewServer(t.Context(), configs, nil))
	go func() { _ = management.Serve(l) }()
	t.Cleanup(management.Stop)

	s := launchEnvoy(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+l.Addr().String(), "LOG_LEVEL=info")
	s.logged(t, "no port is open before the management server has sent a configuration")
	set(limited("plan"))
	s.await(t)
	s.asks(t, "OK 4294967295", "shop", "plan=free")
	set(limited("tier"))
	s.asksUntil(t, "OK 4294967295", "shop", "tier=free")
	set(limited(""))
	s.logged(t, "rules not taken.*descriptor has empty key")
	management.Stop()
	s.logged(t, "no connection to the management server")
	s.asks(t, "OK 4294967295", "shop", "tier=free")
}

// TestEnvoyStartsWithoutXDS opens its ports although there is no management server, and stops.
func TestEnvoyStartsWithoutXDS(t *testing.T) {
	variables := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1"}
	s := asEnvoy(t, append(variables, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")...)
	if got := s.ask(t, "shop", "plan=free"); !strings.Contains(got, "no rate limit configuration loaded") {
		t.Errorf("without a configuration: %s", got)
	}
	waiting := launchEnvoy(t, variables...)
	waiting.logged(t, "no connection to the management server")
	if code := waiting.stop(); code != 0 {
		t.Errorf("exit %d while it waits:\n%s", code, waiting.log)
	}
}

// TestEnvoyStatistics has the listener of Prometheus with the names of envoyproxy/ratelimit beside
// Stint's, and /stats.
func TestEnvoyStatistics(t *testing.T) {
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	s := asEnvoy(t, append(variables, "USE_STATSD=", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "LOG_LEVEL=info")...)
	for range 3 {
		s.ask(t, "shop", "remote_address=192.0.2.1")
	}
	page := fetched(t, s.prometheus+"/metrics", "")
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="remote_address"} 3`,
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="remote_address"} 1`,
		`ratelimit_service_config_load_success 1`,
		`stint_decisions_total{`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics has no %s:\n%s", want, page)
		}
	}
	if page := fetched(t, s.debug+"/stats", ""); !strings.Contains(page, "ratelimit.service.rate_limit.shop.remote_address.over_limit: 1\n") {
		t.Errorf("/stats: %s", page)
	}
}

// TestEnvoyTLS wants a certificate with a name of callers.
func TestEnvoyTLS(t *testing.T) {
	ca, cert, key := redistest.Certificate(t)
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": shop})
	variables = append(variables, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key, "GRPC_CLIENT_TLS_CACERT="+ca)
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
	for name, c := range map[string]struct {
		san   string
		mine  []tls.Certificate
		wants string
	}{
		"any name":       {"", []tls.Certificate{pair}, "OK 1"},
		"the name":       {"localhost", []tls.Certificate{pair}, "OK 1"},
		"another name":   {"elsewhere", []tls.Certificate{pair}, "code = Unavailable"},
		"no certificate": {"", nil, "code = Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := asEnvoy(t, append(variables, "GRPC_CLIENT_TLS_SAN="+c.san)...)
			conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
				RootCAs: pemfile.Pool(cas), ServerName: "localhost", Certificates: c.mine,
			})))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			s.client = rls.NewRateLimitServiceClient(conn)
			if got := s.ask(t, "shop", "remote_address=192.0.2.1"); !strings.Contains(got, c.wants) {
				t.Errorf("%s, want %s\n%s", got, c.wants, s.log)
			}
		})
	}
}
