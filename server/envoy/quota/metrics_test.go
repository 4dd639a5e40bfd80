package quota_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/stintdev/stint/server/envoy/quota"
)

// docs/metrics.md has a row for each metric, and speaks of none that is not.
func TestMetricsAreDocumented(t *testing.T) {
	const page = "../../../docs/metrics.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	s, err := quota.New(newDecider("1 per 1s"), quota.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
		row := regexp.MustCompile(`(?m)^\| ` + "`" + f.GetName() + `(?:{(\w+)})?` + "`" + ` \| (.*)`).FindStringSubmatch(string(text))
		if row == nil {
			t.Errorf("%s: no row for %s", page, f.GetName())
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if row[1] != l.GetName() || !strings.Contains(row[2], "`"+l.GetValue()+"`") {
					t.Errorf("%s: the row of %s does not have %s %q", page, f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	for _, name := range regexp.MustCompile(`\bstint_quota_[a-z_]*[a-z]`).FindAllString(string(text), -1) {
		if !known[name] {
			t.Errorf("%s speaks of %s, which is not there", page, name)
		}
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// Once an assignment has expired and its units are given back, it covers no more requests: what a
// proxy lets through after that is charged.
func TestExpiredAssignmentCoversNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDecider("100 per 1h fixed_window")
		s, err := quota.New(d, quota.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		w := dial(s, func() time.Duration { return 0 })
		defer w.cut()
		report := func(allowed uint64) {
			_ = w.send(&rlqs.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
				{BucketId: bucketID("k", "v"), NumRequestsAllowed: allowed},
			}})
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		report(0)
		first := d.taken
		d.fail(errAway)
		time.Sleep(30 * time.Second)
		d.fail(nil)
		report(0)
		if d.back != first {
			t.Fatalf("%d of %d given back", d.back, first)
		}
		second := d.taken - first
		report(200)
		if d.charged != 200-second {
			t.Errorf("%d charged of 200, of which an assignment covers %d", d.charged, second)
		}
	})
}
