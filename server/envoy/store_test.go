package envoy_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// While Redis does not answer, a rule decides by its on_store_error: only a rule that denies is an
// error, and it makes the service unhealthy. No call waits for Redis longer than a decision may take.
func TestStoreAway(t *testing.T) {
	redis := redistest.Start(t)
	serve := func(file string) *envoy.Server {
		set, err := rules.ParseFiles([]rules.File{{Name: "shop.yaml", Data: []byte(file), Envoy: true}})
		if err != nil {
			t.Fatal(err)
		}
		store, err := redislimit.Connect(t.Context(), redis.URL(), redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		decides := server.New(server.Config{Settings: config.Default(), Rules: set, Limiter: stint.NewLimiter(store), Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(decides.Close)
		decides.Follow(t.Context())
		s, _ := start(t, envoy.Config{Decider: decides, Ready: decides.Ready})
		return s
	}
	lenient := serve(`
domain: shop
descriptors:
  - {key: local, rate_limit: {unit: hour, requests_per_unit: 100, name: local}}
  - {key: open, on_store_error: allow, rate_limit: {unit: hour, requests_per_unit: 100}}
`)
	strict := serve(`
domain: shop
descriptors:
  - {key: strict, on_store_error: deny, rate_limit: {unit: hour, requests_per_unit: 100}}
`)
	ask := func(s *envoy.Server, key string) (*rls.RateLimitResponse, error) {
		return rls.NewRateLimitServiceClient(dial(t, s)).ShouldRateLimit(t.Context(), request("shop", key, "a"))
	}
	for s, key := range map[*envoy.Server]string{lenient: "local", strict: "strict"} {
		await.Until(t, "a call is decided in time, though the machine is busy", func() bool {
			_, err := ask(s, key)
			return err == nil
		})
	}
	thaw := redis.Freeze(t)
	defer thaw()
	// Nothing is said of numbers that this instance does not know, until its share is used up and after.
	told := map[rls.RateLimitResponse_Code]int{}
	for range 120 {
		r, err := ask(lenient, "local")
		if err != nil || r.Statuses[0].Code != r.OverallCode || r.Statuses[0].CurrentLimit != nil || r.Statuses[0].LimitRemaining != 0 || r.Statuses[0].DurationUntilReset != nil {
			t.Fatalf("local: %v, %v", r, err)
		}
		told[r.OverallCode]++
	}
	if told[rls.RateLimitResponse_OK] == 0 || told[rls.RateLimitResponse_OVER_LIMIT] < 20 {
		t.Errorf("local: %v", told)
	}
	if r, err := ask(lenient, "open"); err != nil || r.OverallCode != rls.RateLimitResponse_OK || r.Statuses[0].CurrentLimit != nil {
		t.Errorf("allow: %v, %v", r, err)
	}
	if _, err := ask(strict, "strict"); status.Code(err) != codes.Unavailable {
		t.Errorf("deny: %v", err)
	}
	answer, err := http.Post("http://"+strict.Addr("HTTP").String()+"/json", "application/json",
		strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"strict","value":"a"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/json: %d %s", answer.StatusCode, text)
	}
	healthy := func(s *envoy.Server) bool {
		r, err := grpc_health_v1.NewHealthClient(dial(t, s)).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status == grpc_health_v1.HealthCheckResponse_SERVING
	}
	await.Until(t, "the server has noticed", func() bool { return !healthy(strict) })
	if !healthy(lenient) {
		t.Error("an instance that decides without Redis is not healthy")
	}
}
