package stats_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy/stats"
)

// scrape is what Prometheus gets under names of envoyproxy/ratelimit, without Go's runtime, help and
// buckets.
func scrape(t testing.TB, s *stats.Stats) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(exposition(t, s)) {
		if strings.HasPrefix(line, "ratelimit") && !strings.HasPrefix(line, "ratelimit_go_") && !strings.Contains(line, "_bucket{") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func exposition(t testing.TB, s *stats.Stats) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

var withPrometheus = config.Envoy{Stats: config.EnvoyStats{PrometheusListen: ":9090"}}

// The names and labels are those of the default mapping of envoyproxy/ratelimit.
func TestPrometheusStory(t *testing.T) {
	s, kept := envoyOf(t, shop, &withPrometheus, nil)
	kept.Loaded(nil)
	kept.Failed(true)
	for range 11 {
		ask(t, s, 1, "shop", "path=/a")
	}
	ask(t, s, 1, "shop", "user=ann path=/b method=GET")
	ask(t, s, 1, "elsewhere", "a=b")
	kept.Called("Check", 30*time.Millisecond)
	want := `ratelimit_service_config_load_success 1
ratelimit_service_rate_limit_domain_not_found{domain="elsewhere"} 1
ratelimit_service_rate_limit_near_limit{domain="shop",key1="path"} 2
ratelimit_service_rate_limit_over_limit{domain="shop",key1="path"} 1
ratelimit_service_rate_limit_total_hits{domain="shop",key1="path"} 11
ratelimit_service_rate_limit_total_hits{domain="shop",key1="user_ann",key2="path"} 1
ratelimit_service_rate_limit_within_limit{domain="shop",key1="path"} 10
ratelimit_service_rate_limit_within_limit{domain="shop",key1="user_ann",key2="path"} 1
ratelimit_service_response_time_seconds_sum{grpc_method="Check"} 0.03
ratelimit_service_response_time_seconds_count{grpc_method="Check"} 1
ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 13
ratelimit_service_should_rate_limit_error{err_type="redis_error"} 1
ratelimit_service_total_requests{grpc_method="Check"} 1
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 13
`
	for range 2 { // a second look does not count again
		got := scrape(t, kept)
		var lines []string
		for line := range strings.Lines(got) {
			if !strings.HasPrefix(line, `ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"}`) {
				lines = append(lines, line)
			}
		}
		if got := strings.Join(lines, ""); got != want {
			t.Fatalf("%s", difference(got, want))
		}
	}
	all := exposition(t, kept)
	for _, line := range []string{
		`ratelimit_service_response_time_seconds_bucket{grpc_method="Check",le="0.025"} 0`,
		`ratelimit_service_response_time_seconds_bucket{grpc_method="Check",le="0.05"} 1`,
		"# TYPE ratelimit_go_numGoroutine gauge",
		"# TYPE ratelimit_service_rate_limit_over_limit counter",
		"stint_rules ", // of the server
		"go_goroutines ",
	} {
		if !strings.Contains(all, "\n"+line) {
			t.Errorf("%s is missing", line)
		}
	}
}

// What promtool says of names is envoyproxy/ratelimit's fault; it must be able to read all.
func TestPromtoolReadsThem(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool")
	}
	s, kept := envoyOf(t, shop, &withPrometheus, nil)
	ask(t, s, 1, "shop", "address=\xff\"\\\n{}", "user=ann path=/b method=GET", "path=x")
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(exposition(t, kept))
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "ratelimit_go_") && !strings.HasPrefix(line, "ratelimit_service_") {
			t.Errorf("promtool: %s", line)
		}
	}
}

// over_limit_with_local_cache of a rule with two keys is not a second over_limit.
func TestPrometheusCountsLocalCacheOnce(t *testing.T) {
	kept, calls, v := decided(t)
	v.Descriptors[0].Stat, v.Descriptors[0].Rule.Descriptor.Stat = "shop.user.path", "shop.user.path"
	v.Each[0].Allowed, v.Each[0].Outcome, v.Each[0].Remembered = false, 2, true
	kept.Decided(calls, v, false)
	want := `ratelimit_localcache_hitCount 1
ratelimit_localcache_lookupCount 1
ratelimit_localcache_missCount 0
ratelimit_service_rate_limit_over_limit{domain="shop",key1="user",key2="path"} 1
ratelimit_service_rate_limit_over_limit_with_local_cache{domain="shop",key1="user",key2="path"} 1
ratelimit_service_rate_limit_total_hits{domain="shop",key1="user",key2="path"} 1
`
	if got := scrape(t, kept); got != want {
		t.Errorf("%s", difference(got, want))
	}
}

func TestPrometheusMilliseconds(t *testing.T) {
	kept, err := stats.New(stats.Config{Stats: config.EnvoyStats{PrometheusListen: ":9090", PrometheusMilliseconds: true}})
	if err != nil {
		t.Fatal(err)
	}
	kept.Called("Check", 30*time.Millisecond)
	if got := scrape(t, kept); !strings.Contains(got, `response_time_seconds_sum{grpc_method="Check"} 30`) {
		t.Error(got)
	}
}

// mapped is a Stats with a mapping from a file.
func mapped(t testing.TB, mapping string, tags map[string]string) (*stats.Stats, error) {
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte(mapping), 0o600); err != nil {
		t.Fatal(err)
	}
	return stats.New(stats.Config{Log: quiet, Stats: config.EnvoyStats{NearLimitRatio: 0.8, PrometheusListen: ":9090", PrometheusMapper: file, Tags: tags}})
}

// A mapping may have all that statsd_exporter knows, also what it calls deprecated, and tags are
// labels.
func TestPrometheusOwnMapping(t *testing.T) {
	kept, err := mapped(t, `
defaults:
  timer_type: histogram
  histogram_options: {buckets: [1, 2]}
mappings:
- {match: ratelimit.service.rate_limit.*.*.total_hits, name: hits, labels: {domain: $1, key1: $2, version: "of $1"}, honor_labels: true, help: Hits.}
- {match: '.*within_limit', match_type: regex, action: drop, name: dropped}
- {match: ratelimit_server.*.total_requests, name: "calls_$1", scale: 10}
- {match: ratelimit_server.Twice.response_time, name: ratelimit_times, timer_type: summary, quantiles: [{quantile: 0.5, error: 0.05}]}
- {match: ratelimit_server.*.response_time, name: ratelimit_buckets}
`, map[string]string{"version": "1.2"})
	if err != nil {
		t.Fatal(err)
	}
	_, calls, v := decided(t)
	v.Descriptors[0].Stat = "shop.path"
	kept.Decided(calls, v, false)
	kept.Called("Twice", time.Millisecond)
	kept.Called("Once", 1500*time.Microsecond)
	kept.Loaded(nil)
	all := exposition(t, kept)
	for _, line := range []string{
		"# HELP hits Hits.",
		`hits{domain="shop",key1="path",version="1.2"} 1`,
		`calls_Twice{version="1.2"} 10`,
		`ratelimit_times{version="1.2",quantile="0.5"} 1`,
		`ratelimit_buckets_bucket{version="1.2",le="2"} 1`,
		`ratelimit_service_config_load_success{version="1.2"} 1`,
		`ratelimit_service_rate_limit_shop_path_near_limit{version="1.2"} 1`,
	} {
		if !strings.Contains(all, line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	if strings.Contains(all, "dropped") || strings.Contains(all, "within_limit") || t.Failed() {
		t.Error(all)
	}
}

func TestPrometheusWrongMappings(t *testing.T) {
	for mapping, want := range map[string]string{
		"mappings: [{match: a.*}]":                             "metric name",
		"mappings: [{match: 'a..', name: b}]":                  "invalid match",
		"mappings: [{match: '(', match_type: regex, name: b}]": "invalid regex",
		"mappings: [{match: a, name: b, action: x}]":           "invalid action",
		"mappings: 3":                      "cannot unmarshal",
		"{}":                               "no mappings",
		"mapings: [{match: a.*, name: b}]": "no mappings",
		"mappings: [{match: a, name: b, labels: {'a-b': c}}]":      "invalid label",
		"mappings: [{match: a, name: b, observer_type: histgram}]": "invalid observer",
	} {
		if _, err := mapped(t, mapping, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mapping.yaml") {
			t.Errorf("%s: %v, want %s", mapping, err, want)
		}
	}
}

// Statistics that a mapping gives one name, but that are of different types, do not spoil the others.
func TestPrometheusConflicts(t *testing.T) {
	for _, mapping := range []string{`
- {match: ratelimit_server.*.total_requests, name: ratelimit_x}
- {match: ratelimit_server.*.response_time, name: ratelimit_x}
`, `
- {match: ratelimit_server.*.total_requests, name: ratelimit_x_count}
- {match: ratelimit_server.*.response_time, name: ratelimit_x, observer_type: histogram}
`} {
		kept, err := mapped(t, "mappings:"+mapping, nil)
		if err != nil {
			t.Fatal(err)
		}
		kept.Called("M", time.Millisecond)
		kept.Loaded(nil)
		got := scrape(t, kept)
		if !strings.Contains(got, "ratelimit_service_config_load_success 1") || !strings.Contains(got, "ratelimit_x_count 1\n") {
			t.Errorf("%s", got)
		}
	}
}

// Metrics stay fast and complete with many names.
func BenchmarkScrape(b *testing.B) {
	kept, calls, v := decided(b)
	for i := range 10_000 {
		v.Descriptors[0].Stat = fmt.Sprintf("shop.path_%d", i)
		kept.Decided(calls, v, false)
	}
	exposition(b, kept) // which maps the names
	for b.Loop() {
		exposition(b, kept)
	}
}
