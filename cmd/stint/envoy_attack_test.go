package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// Under load, Redis freezes, dies and comes back, the files change and are wrong, and the process is
// told to stop amid calls, streams, connections that say nothing and halves of requests. Every call
// that it accepted is answered, none waits long, a limit is not exceeded by the freeze but for calls
// that were under way, and the process ends in time.
func TestAttackEnvoyThroughFaults(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const limited = "domain: shop\ndescriptors:\n  - {key: few, rate_limit: {unit: year, requests_per_unit: 300}}\n  - {key: k, rate_limit: {unit: second, requests_per_unit: 1000}}\n"
	variables, dir := runtimeDirectory(t, map[string]string{"shop.yaml": limited})
	s := asEnvoy(t, append(variables, "REDIS_URL="+redis.Addr, "LOG_LEVEL=info", "STINT_DECISION_TIMEOUT=1s")...)
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	var few, answered, slow atomic.Int64
	var stopped atomic.Bool
	var load sync.WaitGroup
	for worker := range 6 {
		client, key := rls.NewRateLimitServiceClient(conn), [...]string{"few", "k", "none"}[worker%3]
		load.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				began := time.Now()
				r, err := client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{
					{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}},
				}})
				cancel()
				if time.Since(began) > 5*time.Second {
					slow.Add(1)
				}
				switch {
				case err != nil && stopped.Load() && status.Code(err) == codes.Unavailable:
					return
				case err != nil:
					t.Errorf("%s: %v", key, err)
					return
				case key == "few" && r.OverallCode == rls.RateLimitResponse_OK:
					few.Add(1)
				}
				answered.Add(1)
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		before := answered.Load()
		if !await.So(func() bool { return answered.Load() >= before+500 }) {
			t.Fatalf("%s: %d calls answered\n%s", what, answered.Load()-before, s.log)
		}
	}
	progress("at first")
	thaw := redis.Freeze(t)
	progress("with a frozen Redis")
	thaw()
	progress("when it goes on")
	const workers = 2 // whose answers may have crossed when Redis froze
	if n := few.Load(); n > 300+workers {
		t.Errorf("%d calls passed a limit of 300", n)
	}
	redis.Kill()
	progress("without Redis")
	redis.Restart(t)
	for i := range 5 {
		text := limited
		if i%2 == 0 {
			text = "domain: shop\ndescriptors: [&a {key: a, descriptors: [*a]}]\n" // a cycle
		}
		if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.signal(t, syscall.SIGHUP)
		progress("while files change")
	}

	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := rlqs.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err == nil {
		err = quotas.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: &rlqs.BucketId{Bucket: map[string]string{"k": "q"}}, NumRequestsAllowed: 1},
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	urls := []string{s.debug, "http://" + s.grpc}
	if attack.Time(t, 0) > 0 { // a stop waits for this one, for as long as a body may take
		urls = append(urls, s.http)
	}
	for _, url := range urls {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	}
	stopped.Store(true)
	began := time.Now()
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.log)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	load.Wait()
	if n := slow.Load(); n > 0 {
		t.Errorf("%d of %d calls took more than 5 s", n, answered.Load())
	}
	t.Logf("%d calls, stopped in %s", answered.Load(), time.Since(began))
	if strings.Contains(s.log.String(), "panic") {
		t.Error(s.log)
	}
}
