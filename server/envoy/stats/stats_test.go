package stats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/envoy/stats"
	"github.com/stintdev/stint/server/rules"
)

var quiet = slog.New(slog.DiscardHandler)

// envoyOf is a service by a file of Envoy's form, as stint envoy composes it, and its statistics.
func envoyOf(t testing.TB, file string, settings *config.Envoy, limiter *stint.Limiter) (*envoy.Service, *stats.Stats) {
	t.Helper()
	set, err := rules.ParseFiles([]rules.File{{Name: "config.yaml", Data: []byte(file), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	of := config.Default()
	of.DecisionTimeout = 10 * time.Second // no call is decided without the store
	s := server.New(server.Config{Settings: of, Rules: set, Limiter: limiter, Log: quiet})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	where := settings.Stats
	where.NearLimitRatio = 0.8
	kept, err := stats.New(stats.Config{
		Stats: where, Log: quiet, More: s.Gatherer(),
		Known: func(domain string) bool { return s.Rules().HasDomain(domain) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return envoy.NewService(s, settings, kept), kept
}

// ask calls the service with a descriptor for each text, such as "user=ann path=/x".
func ask(t testing.TB, s *envoy.Service, hits uint32, domain string, texts ...string) *rls.RateLimitResponse {
	t.Helper()
	out, err := s.ShouldRateLimit(t.Context(), request(hits, domain, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func request(hits uint32, domain string, texts ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, text := range texts {
		d := new(ratelimit.RateLimitDescriptor)
		for entry := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// page is the page /stats, without Go's runtime and times; without what is 0.
func page(t testing.TB, s *stats.Stats) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Page().ServeHTTP(w, httptest.NewRequest("GET", "/stats", nil))
	var kept []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "ratelimit.go.") && !strings.HasSuffix(line, ": 0\n") && !strings.Contains(line, "response_time") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

const shop = `
domain: shop
descriptors:
- key: path
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: user
  value: ann
  descriptors:
  - key: path
    descriptors:
    - key: method
      rate_limit: {unit: hour, requests_per_unit: 5}
- key: address
  detailed_metric: true
  rate_limit: {unit: hour, requests_per_unit: 2}
- key: dark
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: open
  rate_limit: {unlimited: true}
- key: shut
  rate_limit: {unit: second, requests_per_unit: 0}
- key: file
  value: a*
  rate_limit: {unit: hour, requests_per_unit: 3, name: files}
- key: one
  rate_limit: {unit: hour, requests_per_unit: 3, replaces: [{name: files}]}
`

// What a user sees on the page for calls of each kind, with names as envoyproxy/ratelimit has them.
func TestStory(t *testing.T) {
	s, kept := envoyOf(t, shop, &config.Envoy{Shadow: true}, nil)
	kept.Loaded(nil)
	kept.Loaded(errors.New("no"))
	for range 12 {
		ask(t, s, 1, "shop", "path=/a")
	}
	ask(t, s, 4, "shop", "user=ann path=/b method=GET")
	ask(t, s, 4, "shop", "user=ann path=/b method=GET")
	ask(t, s, 0, "shop", "address=192.0.2.7:80")
	ask(t, s, 2, "shop", "dark=x")
	ask(t, s, 9, "shop", "open=x")
	ask(t, s, 1, "shop", "shut=x")
	ask(t, s, 1, "shop", "file=abc", "one=x")
	ask(t, s, 1, "shop", "file=abc")
	ask(t, s, 1, "shop", "nothing=x")
	ask(t, s, 1, "elsewhere", "a=b", "c=d")
	back := request(1, "shop", "path=/a")
	back.Descriptors[0].IsNegativeHits = true
	if _, err := s.ShouldRateLimit(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	given := request(1, "shop", "mine=192.0.2.7")
	given.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 3}
	peek := request(1, "shop", "path=/a")
	peek.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	for _, r := range []*rls.RateLimitRequest{given, peek} {
		if _, err := s.ShouldRateLimit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ShouldRateLimit(t.Context(), request(1, "")); err == nil {
		t.Fatal("a call without a domain")
	}
	want := `ratelimit.service.call.should_rate_limit.service_error: 1
ratelimit.service.config_load_error: 1
ratelimit.service.config_load_success: 1
ratelimit.service.global_shadow_mode: 4
ratelimit.service.rate_limit.elsewhere.domain_not_found: 2
ratelimit.service.rate_limit.shop.address_192_0_2_7_80.total_hits: 1
ratelimit.service.rate_limit.shop.address_192_0_2_7_80.within_limit: 1
ratelimit.service.rate_limit.shop.dark.near_limit: 1
ratelimit.service.rate_limit.shop.dark.over_limit: 1
ratelimit.service.rate_limit.shop.dark.shadow_mode: 1
ratelimit.service.rate_limit.shop.dark.total_hits: 2
ratelimit.service.rate_limit.shop.file_a*.total_hits: 1
ratelimit.service.rate_limit.shop.file_a*.within_limit: 1
ratelimit.service.rate_limit.shop.mine_192_0_2_7.near_limit: 1
ratelimit.service.rate_limit.shop.mine_192_0_2_7.total_hits: 1
ratelimit.service.rate_limit.shop.mine_192_0_2_7.within_limit: 1
ratelimit.service.rate_limit.shop.one.total_hits: 1
ratelimit.service.rate_limit.shop.one.within_limit: 1
ratelimit.service.rate_limit.shop.path.near_limit: 2
ratelimit.service.rate_limit.shop.path.over_limit: 2
ratelimit.service.rate_limit.shop.path.total_hits: 12
ratelimit.service.rate_limit.shop.path.within_limit: 10
ratelimit.service.rate_limit.shop.shut.over_limit: 1
ratelimit.service.rate_limit.shop.shut.total_hits: 1
ratelimit.service.rate_limit.shop.user_ann.path.method.near_limit: 1
ratelimit.service.rate_limit.shop.user_ann.path.method.over_limit: 3
ratelimit.service.rate_limit.shop.user_ann.path.method.total_hits: 8
ratelimit.service.rate_limit.shop.user_ann.path.method.within_limit: 4
ratelimit_server.ShouldRateLimit.total_requests: 26
`
	if got := page(t, kept); got != want {
		t.Errorf("%s", difference(got, want))
	}
}

func difference(got, want string) string {
	var b strings.Builder
	have, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range have {
		if !slices.Contains(wanted, line) {
			b.WriteString("+" + line + "\n")
		}
	}
	for _, line := range wanted {
		if !slices.Contains(have, line) {
			b.WriteString("-" + line + "\n")
		}
	}
	return b.String()
}

// Refusals that the instance remembers are those of envoyproxy/ratelimit's local cache.
func TestRememberedRefusals(t *testing.T) {
	redis := redistest.Start(t)
	store, err := redislimit.Connect(t.Context(), redis.URL(), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	plain, uncounted := envoyOf(t, shop, new(config.Envoy), stint.NewLimiter(store))
	s, kept := envoyOf(t, shop, &config.Envoy{Stats: config.EnvoyStats{LocalCache: true}}, stint.NewLimiter(store))
	const path = "ratelimit.service.rate_limit.shop.path."
	counts := counters(t, kept)
	for began := time.Now(); counts[path+"over_limit_with_local_cache"] == 0; counts = counters(t, kept) {
		if ask(t, s, 1, "shop", "path=/a"); time.Since(began) > 20*time.Second {
			t.Fatal("no refusal is remembered")
		}
	}
	over, cached := counts[path+"over_limit"], counts[path+"over_limit_with_local_cache"]
	if cached != 1 || over < 2 || counts[path+"total_hits"] != over+counts[path+"within_limit"] {
		t.Errorf("%v", counts)
	}
	const cache = "ratelimit.localcache."
	if all := counts[path+"total_hits"]; counts[cache+"hitCount"] != 1 || counts[cache+"missCount"] != all-1 || counts[cache+"lookupCount"] != all {
		t.Errorf("of the cache: %v", counts)
	}
	for range 100 { // where there is no cache, its refusals are as others
		ask(t, plain, 1, "shop", "path=/a")
	}
	counts = counters(t, uncounted)
	if _, ok := counts[cache+"hitCount"]; ok || counts[path+"over_limit"] < 90 || counts[path+"over_limit_with_local_cache"] != 0 {
		t.Errorf("without a cache: %v", counts)
	}
}

func counters(t testing.TB, s *stats.Stats) map[string]uint64 {
	counts := map[string]uint64{}
	for line := range strings.Lines(page(t, s)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		counts[name] = n
	}
	return counts
}

// The sums over all names are right whatever callers send: nothing is lost where names are folded.
func TestNamesOfRequestsAreBounded(t *testing.T) {
	s, kept := envoyOf(t, strings.ReplaceAll(shop, "hour", "day"), new(config.Envoy), nil)
	const calls = 12_000
	long := strings.Repeat("x", 2000)
	for i := range calls {
		r := request(1, "shop", fmt.Sprintf("address=%d", i))
		switch i % 4 {
		case 1:
			r.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: 3}
		case 2:
			r.Descriptors[0].Entries[0].Value += long
		}
		if _, err := s.ShouldRateLimit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ask(t, s, 1, fmt.Sprintf("domain%d", i), "a=b")
	}
	names, hits, notFound := 0, uint64(0), uint64(0)
	counts := counters(t, kept)
	for name, n := range counts {
		switch {
		case strings.HasSuffix(name, ".total_hits"):
			hits += n
			names++
		case strings.HasSuffix(name, ".domain_not_found"):
			notFound += n
			names++
		}
	}
	if hits != calls || notFound != calls || names > 20_003 {
		t.Errorf("%d hits and %d in unknown domains under %d names", hits, notFound, names)
	}
	if folded := counts["ratelimit.service.stats_folded"]; folded != calls/4+2000 {
		t.Errorf("%d calls were folded", folded) // 3,000 long names, and 2,000 domains too many
	}
	if counts["ratelimit.service.rate_limit.shop.address.total_hits"] != calls/4 || counts["ratelimit.service.rate_limit._other.domain_not_found"] != 2000 {
		t.Errorf("%d of address, %d of other domains", counts["ratelimit.service.rate_limit.shop.address.total_hits"], counts["ratelimit.service.rate_limit._other.domain_not_found"])
	}
}

func TestPageFilter(t *testing.T) {
	s, kept := envoyOf(t, shop, new(config.Envoy), nil)
	ask(t, s, 1, "shop", "path=/a")
	for query, want := range map[string]string{
		"?filter=path.total":   "200 ratelimit.service.rate_limit.shop.path.total_hits: 1\n",
		"?filter=nothing":      "200 ",
		"?filter=[":            "400 filter: error parsing regexp: missing closing ]: `[`\n",
		"?filter=numGoroutine": "200 ratelimit.go.numGoroutine: ",
		"?filter=_time":        "200 ratelimit_server.ShouldRateLimit.response_time: mean ",
	} {
		w := httptest.NewRecorder()
		kept.Page().ServeHTTP(w, httptest.NewRequest("GET", "/stats"+query, nil))
		got := fmt.Sprintf("%d %s", w.Code, w.Body)
		if got != want && (strings.HasSuffix(want, "\n") || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestWrongConfigs(t *testing.T) {
	for want, c := range map[string]config.EnvoyStats{
		"missing port":           {Statsd: "localhost"},
		"mogrifier 1 has no pat": {DogStatsd: "a:1", Mogrifiers: []config.Mogrifier{{Name: "a"}}},
		"mogrifier 1 has no nam": {DogStatsd: "a:1", Mogrifiers: []config.Mogrifier{{Pattern: "a"}}},
		"mogrifier 1: error par": {DogStatsd: "a:1", Mogrifiers: []config.Mogrifier{{Pattern: "(", Name: "a"}}},
		"needs a key and a valu": {DogStatsd: "a:1", Mogrifiers: []config.Mogrifier{{Pattern: "a", Name: "a", Tags: map[string]string{"a": ""}}}},
		"is a directory":         {PrometheusListen: ":0", PrometheusMapper: "."},
		`tag "a|b"`:              {Tags: map[string]string{"a|b": "c"}},
	} {
		if _, err := stats.New(stats.Config{Stats: c}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What is decided allocates nothing for the statistics, and takes no time to speak of.
func TestDecidedDoesNotAllocate(t *testing.T) {
	kept, calls, v := decided(t)
	if n := testing.AllocsPerRun(1000, func() {
		kept.Decided(calls, v, false)
		kept.Called("ShouldRateLimit", time.Millisecond)
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func decided(t testing.TB) (*stats.Stats, *rules.Descriptors, *server.Verdict) {
	kept, err := stats.New(stats.Config{Stats: config.EnvoyStats{NearLimitRatio: 0.8, PrometheusListen: ":9090", LocalCache: true}})
	if err != nil {
		t.Fatal(err)
	}
	limit := stint.MustLimit("10 per 1m fixed_window")
	rule := &rules.Rule{Name: "r", Descriptor: &rules.DescriptorRule{Stat: "shop.path", DescriptorLimit: rules.DescriptorLimit{Amount: 10, Unit: rules.Minute}}}
	v := &server.Verdict{
		Decision:    stint.Decision{Allowed: true},
		Descriptors: []rules.DescriptorMatch{{Rule: rule, Limit: &rule.Descriptor.DescriptorLimit, Stat: "shop.path_/a"}, {Ask: -1}},
		Each:        []stint.Decision{{Allowed: true, Outcome: stint.Allowed, Limit: limit, Remaining: 1}},
	}
	return kept, &rules.Descriptors{Domain: "shop", List: []rules.Descriptor{{Cost: 1}, {Cost: 1}}}, v
}

func BenchmarkDecided(b *testing.B) {
	kept, calls, v := decided(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			kept.Decided(calls, v, false)
			kept.Called("ShouldRateLimit", time.Millisecond)
		}
	})
}

// Methods have counters of their own, as far as there is room.
func TestMethodsAreBounded(t *testing.T) {
	kept, err := stats.New(stats.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		kept.Called(fmt.Sprint("M", i), time.Duration(rand.Int64N(1e9)))
	}
	counts := counters(t, kept)
	if len(counts) != 65 || counts["ratelimit_server.unknown.total_requests"] != 36 {
		t.Errorf("%d methods, %d unknown", len(counts), counts["ratelimit_server.unknown.total_requests"])
	}
}

// Run ends with its context.
func TestRunEnds(t *testing.T) {
	kept, err := stats.New(stats.Config{Stats: config.EnvoyStats{Statsd: "127.0.0.1:1", FlushInterval: time.Millisecond}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		kept.Run(ctx)
		close(ended)
	}()
	cancel()
	<-ended
}
