package envoy_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/rueidis"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

const sharedCounts = `
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 10}}
  - key: tenant
    descriptors:
      - {key: path, value: /search, rate_limit: {unit: week, requests_per_unit: 4}}
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 6}}
  - {key: tokens, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: exact, rate_limit: {unit: day, requests_per_unit: 5, charge_refused: false}}
  - {key: smooth, rate_limit: {unit: day, requests_per_unit: 5, algorithm: token_bucket}}
`

// old is an instance of envoyproxy/ratelimit as far as its counts go: its keys, and INCRBY and
// EXPIRE in a pipeline. A pattern of share_threshold stands in place of the value.
type old struct {
	t      *testing.T
	client rueidis.Client
}

func (o *old) key(entries string, period time.Duration) string {
	seconds := int64(period / time.Second)
	return "pre_shop_" + strings.NewReplacer("=", "_", " ", "_").Replace(entries) + "_" + strconv.FormatInt(time.Now().Unix()/seconds*seconds, 10)
}

// take counts a call and returns what stands after it.
func (o *old) take(entries string, period time.Duration, units int64) int64 {
	o.t.Helper()
	key, b := o.key(entries, period), o.client.B()
	replies := o.client.DoMulti(o.t.Context(), b.Incrby().Key(key).Increment(units).Build(),
		b.Expire().Key(key).Seconds(int64(period/time.Second)+rand.Int64N(300)).Build())
	after, err := replies[0].AsInt64()
	if err != nil {
		o.t.Fatal(err)
	}
	return after
}

// Old and new instances that serve the same calls count together, by every kind of rule.
func TestSharedCounts(t *testing.T) {
	redis := redistest.Start(t)
	var s *server.Server
	store, err := redislimit.Connect(t.Context(), redis.URL(), redislimit.Options{Envoy: &redislimit.EnvoyKeys{
		Prefix: "pre_", JitterMax: 300 * time.Second,
		Name: func(l *stint.Limit, key string) (string, bool) { return s.Rules().EnvoyCount(l, key) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	set, err := rules.ParseFiles([]rules.File{{Name: "shop.yaml", Data: []byte(sharedCounts), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	s = serverOf(t, "rules: []", func(c *server.Config) {
		c.Rules, c.Limiter = set, stint.NewLimiter(store)
		c.Settings.DecisionTimeout = 10 * time.Second // no call is decided without Redis
	})
	service := envoy.NewService(s, &config.Envoy{}, nil)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	o := &old{t, client}
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	for time.Until(time.Now().Truncate(day).Add(day)) < 10*time.Second { // the test is one window
		time.Sleep(time.Second)
	}
	ask := func(entries string, units uint32) *rls.RateLimitResponse_DescriptorStatus {
		t.Helper()
		d := &rlcommon.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(uint64(units))}
		for _, pair := range strings.Fields(entries) {
			key, value, _ := strings.Cut(pair, "=")
			if key == "over" {
				d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: envoytype.RateLimitUnit_DAY}
			}
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		r, err := service.ShouldRateLimit(context.Background(), &rls.RateLimitRequest{Domain: "shop", Descriptors: []*rlcommon.RateLimitDescriptor{d}})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatuses()[0]
	}
	is := func(what string, got *rls.RateLimitResponse_DescriptorStatus, code rls.RateLimitResponse_Code, remaining uint32) {
		t.Helper()
		if got.GetCode() != code || got.GetLimitRemaining() != remaining {
			t.Errorf("%s: %v, want %v with %d left", what, got, code, remaining)
		}
	}
	count := func(entries string, period time.Duration, want int64) {
		t.Helper()
		n, err := client.Do(t.Context(), client.B().Get().Key(o.key(entries, period)).Build()).AsInt64()
		if err != nil || n != want {
			t.Errorf("%s is %d, %v, want %d", o.key(entries, period), n, err, want)
		}
	}
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT

	o.take("remote_address=192.0.2.1", day, 4)
	is("a value", ask("remote_address=192.0.2.1", 1), ok, 5)
	count("remote_address=192.0.2.1", day, 5)
	if after := o.take("remote_address=192.0.2.1", day, 5); after != 10 {
		t.Errorf("the old instance finds %d", after)
	}
	is("a value", ask("remote_address=192.0.2.1", 1), over, 0)
	count("remote_address=192.0.2.1", day, 10) // one unit that is refused is not charged

	is("nested", ask("tenant=t_1 path=/search", 3), ok, 1)
	if after := o.take("tenant=t_1 path=/search", week, 1); after != 4 {
		t.Errorf("the old instance finds %d", after)
	}
	is("nested", ask("tenant=t_1 path=/search", 1), over, 0)

	is("a pattern that is shared", ask("files=files/a", 2), ok, 4)
	is("a pattern that is shared", ask("files=files/b", 1), ok, 3)
	count("files=files/*", day, 3)

	is("an override", ask("over=1 b=2", 2), ok, 1)
	o.take("over=1 b=2", day, 1)
	is("an override", ask("over=1 b=2", 1), over, 0)

	// Tokens that were used are charged, as they do, though they do not fit.
	is("tokens", ask("tokens=k", 0), ok, 100)
	is("tokens", ask("tokens=k", 130), over, 0)
	count("tokens=k", day, 130)
	is("tokens", ask("tokens=k", 0), over, 0)
	is("without charge_refused", ask("exact=k", 9), over, 5)
	is("without charge_refused", ask("exact=k", 5), ok, 0)
	count("exact=k", day, 5)

	is("another algorithm", ask("smooth=k", 5), ok, 0)
	if n, err := client.Do(t.Context(), client.B().Exists().Key(o.key("smooth=k", day)).Build()).AsInt64(); err != nil || n != 0 {
		t.Errorf("it counts in their keys: %d, %v", n, err)
	}
}
