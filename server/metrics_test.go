package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/lists"
	"github.com/stintdev/stint/server/rules"
)

// counted is a Server in whose metrics a test takes an interest.
type counted struct {
	*Server
	t      testing.TB
	before map[string]float64
}

func newCounted(t testing.TB, file string, store stint.Store) *counted {
	t.Helper()
	settings := config.Default()
	settings.Breaker.Failures = -1                 // every request is to ask the store
	settings.Check.Hosts = []string{"example.com"} // which httptest sends
	s := New(Config{
		Settings: settings,
		Rules:    parsed(t, file),
		Limiter:  stint.NewLimiter(store),
		Log:      slog.New(slog.DiscardHandler),
	})
	t.Cleanup(s.Close)
	c := &counted{Server: s, t: t}
	c.before = c.series()
	return c
}

func parsed(t testing.TB, file string) *rules.Set {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// page is what Prometheus reads.
func (c *counted) page() string {
	c.t.Helper()
	w := httptest.NewRecorder()
	c.Check().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		c.t.Fatal(w.Code, w.Header(), w.Body)
	}
	return w.Body.String()
}

// series is ours of the page, without "stint_" and without buckets and sums of
// time.
func (c *counted) series() map[string]float64 {
	c.t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(c.page()) {
		line, ours := strings.CutPrefix(strings.TrimSpace(line), "stint_")
		if !ours || strings.Contains(line, "_seconds_bucket") || strings.Contains(line, "_seconds_sum") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		var v float64
		if _, err := fmt.Sscan(line[i+1:], &v); err != nil {
			c.t.Fatal(line, err)
		}
		all[line[:i]] = v
	}
	return all
}

// moved compares what changed since it was last called: series that stand there
// without a number have grown by 1.
func (c *counted) moved(want ...string) {
	c.t.Helper()
	var got []string
	now := c.series()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch d := now[name] - c.before[name]; {
		case d == 1:
			got = append(got, name)
		case d != 0:
			got = append(got, fmt.Sprintf("%s %+g", name, d))
		}
	}
	c.before = now
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Errorf("moved:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (c *counted) decides(in *rules.Input) error {
	_, err := c.Decide(c.t.Context(), in, time.Time{})
	return err
}

func doing(operation string) *rules.Input { return &rules.Input{Operation: operation, Cost: 1} }

const countedRules = `
safelist:  ['operation == "safe"']
blocklist: ['operation == "blocked"']
rules:
  - {name: login, match: 'operation in ["login", "both"]', key: '"x"', limits: [1 per 1m fixed_window, 9 per 1h], penalty: {warn_after: 2, ban_after: 3, ban_for: 10m}}
  - {name: try, match: 'operation in ["try", "both"]', key: '"x"', limits: [1 per 1m fixed_window, 1 per 1h fixed_window], mode: shadow}
  - {name: no, match: 'operation == "login"', key: '"x"', limits: [1 per 1h], mode: "off"}
`

func TestMetricsOfOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounted(t, countedRules, new(stint.Memory))
		for _, step := range []struct {
			operation string
			want      []string
		}{
			{"login", []string{`decisions_total{outcome="allowed",rule="login"}`, "store_seconds_count"}},
			{"login", []string{`decisions_total{outcome="limited",rule="login"}`, "store_seconds_count"}},
			{"login", []string{`decisions_total{outcome="warned",rule="login"}`, "store_seconds_count"}},
			{"login", []string{`decisions_total{outcome="banned",rule="login"}`, "store_seconds_count", `bans{rule="login"}`}},
			{"login", []string{`decisions_total{outcome="banned",rule="login"}`, "store_seconds_count"}}, // it runs
			{"safe", []string{`decisions_total{outcome="safe",rule=""}`}},
			{"blocked", []string{`decisions_total{outcome="blocked",rule=""}`}},
			{"other", []string{`decisions_total{outcome="unmatched",rule=""}`}},
			// Nothing that is enforced applied, but something did:
			{"try", []string{`decisions_total{outcome="allowed",rule=""}`}},
			{"try", []string{`decisions_total{outcome="allowed",rule=""}`, `shadow_refusals_total{rule="try"}`}},
			// A ban hides what shadows say from the verdict, not from the count.
			{"both", []string{`decisions_total{outcome="banned",rule="login"}`, "store_seconds_count", `shadow_refusals_total{rule="try"}`}},
		} {
			if err := c.decides(doing(step.operation)); err != nil {
				t.Fatal(err)
			}
			c.moved(append(step.want, "decision_seconds_count")...)
		}
	})
}

func TestMetricsOfFallback(t *testing.T) {
	const file = `
rules:
  - {name: local, match: 'operation in ["local", "both", "all", "try"]', key: '"x"', limits: [1 per 1m fixed_window, 3 per 1h fixed_window]}
  - {name: allow, match: 'operation in ["both", "all"]', key: '"x"', limits: [1 per 1m], on_store_error: allow}
  - {name: deny, match: 'operation in ["all"]', key: '"x"', limits: [9 per 1m], on_store_error: deny}
  - {name: try, match: 'operation == "try"', key: '"x"', limits: [1 per 1m], mode: shadow}
`
	synctest.Test(t, func(t *testing.T) {
		fault := limittest.Fault{Err: limittest.ErrFault}
		c := newCounted(t, file, &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return fault }})
		always := []string{"decision_seconds_count", "store_seconds_count", `store_errors_total{kind="error"}`}
		step := func(operation string, fails bool, want ...string) {
			t.Helper()
			if err := c.decides(doing(operation)); (err != nil) != fails {
				t.Error(err)
			}
			c.moved(append(want, always...)...)
		}
		step("local", false, `fallback_decisions_total{policy="local",rule="local"}`, `decisions_total{outcome="allowed",rule="local"}`)
		step("both", false, `fallback_decisions_total{policy="local",rule="local"}`, `fallback_decisions_total{policy="allow",rule="allow"}`, `decisions_by_others_total{rule="allow"}`,
			`decisions_total{outcome="limited",rule="local"}`)
		step("all", true, `fallback_decisions_total{policy="deny",rule="deny"}`, `decisions_total{outcome="undecided",rule=""}`)
		step("try", false, `shadow_skipped_total{rule="try"}`, `fallback_decisions_total{policy="local",rule="local"}`, `decisions_total{outcome="limited",rule="local"}`)

		fault = limittest.Fault{Hang: true}
		always[2] = `store_errors_total{kind="timeout"}`
		step("all", true, `fallback_decisions_total{policy="deny",rule="deny"}`, `decisions_total{outcome="undecided",rule=""}`)

		// Whoever leaves is neither refused nor the store's fault.
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if _, err := c.Decide(ctx, doing("all"), time.Time{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		c.moved("decision_seconds_count")
	})
}

func TestMetricsOfBadRequests(t *testing.T) {
	c := newCounted(t, countedRules, new(stint.Memory))
	ask := func(body string, status int) {
		t.Helper()
		w := httptest.NewRecorder()
		c.Check().ServeHTTP(w, localCheck(body))
		if w.Code != status {
			t.Error(w.Code, w.Body)
		}
	}
	ask(`{`, 400)
	c.moved("bad_requests_total")
	ask(`{"t_us":1}`, 400)
	c.moved("bad_requests_total")
	ask(strings.Repeat(" ", check.MaxBody+1), 413)
	c.moved("bad_requests_total")
	if err := c.decides(&rules.Input{Cost: -1}); !errors.Is(err, stint.ErrRequest) {
		t.Error(err)
	}
	c.moved("bad_requests_total", "decision_seconds_count")
	ask(`{}`, 200)
	c.moved(`decisions_total{outcome="unmatched",rule=""}`, "decision_seconds_count")
	ask(`[{"cost":-1},{"kost":1},{},{"operation":"login"},{"operation":"try"}]`, 200)
	c.moved("bad_requests_total +2", "decision_seconds_count +4", `decisions_total{outcome="unmatched",rule=""}`,
		`decisions_total{outcome="allowed",rule="login"}`, `decisions_total{outcome="allowed",rule=""}`, "store_seconds_count")
	ask("["+strings.Repeat("{},", 1000)+"{}]", 413)
	c.moved("bad_requests_total")
}

// What a store says is malformed is no failure of it.
func TestMetricsOfErrRequest(t *testing.T) {
	c := newCounted(t, countedRules, &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: stint.ErrRequest} }})
	for operation, more := range map[string][]string{"login": nil, "both": {`shadow_skipped_total{rule="try"}`}} {
		if err := c.decides(doing(operation)); !errors.Is(err, stint.ErrRequest) {
			t.Error(err)
		}
		c.moved(append(more, "bad_requests_total", "decision_seconds_count")...)
	}
}

// A reload keeps the counts of the rules that stay, in whatever mode, and drops
// the series of those that go; the version's series is always one.
func TestMetricsOfReload(t *testing.T) {
	const a = "rules: [{name: stays, key: operation, limits: [9 per 1h]}, {name: goes, key: operation, limits: [1 per 1h], on_store_error: deny}]"
	const b = "rules: [{name: stays, key: operation, limits: [8 per 1h], mode: shadow}, {name: comes, key: operation, limits: [7 per 1h]}, {name: more, key: operation, limits: [7 per 1h]}]"
	c := newCounted(t, a, new(stint.Memory))
	info := func(file string) string {
		return fmt.Sprintf("rules_info{version=%q}", parsed(t, file).Version)
	}
	if got := c.series(); got["rules"] != 2 || got[info(a)] != 1 || got[`rules_reloads_total{result="taken"}`] != 0 {
		t.Error(got)
	}
	for range 2 {
		if err := c.decides(doing("x")); err != nil {
			t.Fatal(err)
		}
	}
	c.moved("decision_seconds_count +2", "store_seconds_count +2", `decisions_by_others_total{rule="stays"} +2`, `decisions_total{outcome="allowed",rule="goes"}`, `decisions_total{outcome="limited",rule="goes"}`)

	c.RulesRefused(errors.New("wrong"))
	c.moved(`rules_reloads_total{result="refused"}`)
	c.SetRules(parsed(t, b))
	c.moved(`rules_reloads_total{result="taken"}`, "rules", info(b))
	page := c.page()
	if strings.Contains(page, `"goes"`) || strings.Count(page, "\nstint_rules_info{") != 1 {
		t.Error(page)
	}
	for _, want := range []string{`stint_decisions_total{outcome="allowed",rule="comes"} 0`, `stint_decisions_total{outcome="limited",rule="stays"} 0`, `stint_shadow_refusals_total{rule="stays"} 0`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	c.SetRules(c.Rules())
	c.moved(`rules_reloads_total{result="taken"}`)
	c.SetRules(parsed(t, "rules: []"))
	for name := range c.series() {
		if strings.Contains(name, `rule="`) && !strings.Contains(name, `rule=""`) {
			t.Errorf("left: %s", name)
		}
	}
}

// Requests that come while rules are swapped and metrics read are all counted, for
// each set has the rule.
func TestMetricsConcurrently(t *testing.T) {
	file := func(i int) string {
		return fmt.Sprintf("rules: [{name: a, key: operation, limits: [%d per 24h]}, {name: try%d, key: '\"x\"', limits: [1 per 24h], mode: shadow}]", 1_000_000+i, i%3)
	}
	c := newCounted(t, file(0), new(stint.Memory))
	const callers, each = 4, 300
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if err := c.decides(doing("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 2 {
		wg.Go(func() {
			for i := range 50 {
				c.SetRules(parsed(t, file(n+i)))
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if n := strings.Count(c.page(), "\nstint_rules_info{"); n != 1 {
				t.Errorf("%d versions", n)
			}
		}
	})
	wg.Wait()
	got := c.series()
	for name, want := range map[string]float64{
		`decisions_total{outcome="allowed",rule="a"}`: callers * each,
		"decision_seconds_count":                      callers * each,
		`rules_reloads_total{result="taken"}`:         100,
	} {
		if got[name] != want {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
}

// Nothing that clients choose makes a series, or is shown.
func TestMetricsOfHostileKeys(t *testing.T) {
	const file = `
rules:
  - {name: op, match: operation != "", key: operation, limits: [1 per 1h], penalty: {ban_after: 2, ban_for: 1h}}
  - {name: path, match: request.path != "", key: request.path + request.host, limits: [1 per 1h], mode: shadow}
`
	for _, fails := range []bool{false, true} {
		var store stint.Store = new(stint.Memory)
		if fails {
			store = &limittest.Faulty{Store: store, Fault: func(int) limittest.Fault { return limittest.Fault{Err: limittest.ErrFault} }}
		}
		c := newCounted(t, file, store)
		before := len(c.before)
		for i := range 200 {
			evil := fmt.Sprintf("evil%d\"} 1\nstint_evil{rule=\"\\\x7f\u2028'", i/4)
			in := doing(evil)
			in.Request = &rules.Request{Method: evil, Path: "/" + evil, Host: evil, Header: http.Header{"X-Evil": {evil}}, RawQuery: evil}
			if i%2 == 0 {
				in = doing(strings.Repeat(evil, 1000)) // too long to be a key
			}
			_ = c.decides(in) // whatever comes of it
			body := fmt.Sprintf(`{"operation":%q,"evil%d":1}`, evil, i)
			c.Check().ServeHTTP(httptest.NewRecorder(), localCheck(body))
		}
		if page := c.page(); strings.Contains(page, "evil") {
			t.Error(page)
		}
		if after := c.series(); len(after) != before {
			t.Errorf("%d series became %d", before, len(after))
		}
	}
}

func TestMetricsLint(t *testing.T) {
	c := newCounted(t, countedRules, new(stint.Memory))
	families, err := c.watch.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// docs/metrics.md has a row for each metric, and speaks of none that is not. Package quota has a test
// of its own metrics.
func TestMetricsAreDocumented(t *testing.T) {
	const page = "../docs/metrics.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	c := newCounted(t, countedRules+"  - {name: guess, key: client.ip, penalty: {on_status: [401], ban_after: 9, ban_for: 1h}}\n  - {name: busy, key: client.ip, limits: [4 in_flight]}\n", &limittest.Faulty{Store: new(stint.Memory)})
	c.watch.Metrics.CertificateExpiry.WithLabelValues(gatewayListener).Set(1) // it has no series without TLS
	c.watch.Metrics.AlertMessages.WithLabelValues("ops", "accepted")          // nor without webhooks
	c.watch.Metrics.Registry.Unregister(c.files.lists)                        // nor without lists
	c.RegisterMetrics(lists.New([]config.List{{Name: "bad"}}, nil, nil, rules.NewLists("bad")))
	c.dropped = func() int64 { return 0 }
	families, err := c.watch.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "stint_") {
			continue
		}
		known[name] = true
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		row := name
		if labels != nil {
			row += "{" + strings.Join(labels, ",") + "}"
		}
		if !strings.Contains(string(text), "\n| `"+row+"` |") {
			t.Errorf("%s: no row for %s", page, row)
		}
	}
	for _, name := range regexp.MustCompile(`\bstint_[a-z_]+`).FindAllString(string(text), -1) {
		if family := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"); !known[name] && !known[family] && !strings.HasPrefix(name, "stint_quota_") {
			t.Errorf("%s speaks of %s, which is not there", page, name)
		}
	}
}

// BenchmarkScrape is a reading of the metrics of many rules.
func BenchmarkScrape(b *testing.B) {
	var file strings.Builder
	file.WriteString("rules:\n")
	for i := range 1000 {
		fmt.Fprintf(&file, "  - {name: rule%d, key: operation, limits: [1 per 1s]}\n", i)
	}
	c := newCounted(b, file.String(), new(stint.Memory))
	set, h := c.Rules(), c.Check()
	b.Run("scrape", func(b *testing.B) {
		for b.Loop() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			n, _ := io.Copy(io.Discard, w.Body)
			b.ReportMetric(float64(n), "B/page")
		}
	})
	b.Run("reload", func(b *testing.B) {
		for b.Loop() {
			c.SetRules(set)
		}
	})
}
