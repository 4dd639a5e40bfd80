package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// faulty is a store that others share, with faults.
type faulty struct {
	stint.Store
	began time.Time
	fault func(ctx context.Context, since time.Duration) error
}

func (f *faulty) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if err := f.fault(ctx, time.Since(f.began)); err != nil {
		return stint.Decision{}, err
	}
	return f.Store.Take(ctx, r, out)
}

var errAway = errors.New("connection refused")

// During an outage of outageAt to outageEnd, a store has one of these faults.
var outages = map[string]func(ctx context.Context, since time.Duration) error{
	"dead": func(context.Context, time.Duration) error { return errAway },
	"frozen": func(ctx context.Context, _ time.Duration) error {
		<-ctx.Done()
		return ctx.Err()
	},
	"flapping": func(_ context.Context, since time.Duration) error {
		if since%(40*time.Second) < 20*time.Second {
			return errAway
		}
		return nil
	},
	"slow": func(ctx context.Context, _ time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
			return nil
		}
	},
}

const (
	outageAt  = 4 * time.Minute
	outageEnd = 12 * time.Minute
	observed  = 20 * time.Minute
	scraped   = 15 * time.Second
)

const outageRules = `
rules: [{name: login, key: client.ip, limits: [1000 per 1s]}]
alerts:
  - {name: down, when: store_down() > 10}
  - {name: share, when: store_error_rate() > 0.01}
`

// An alert about the store burns as long as the store is away, whatever it does, whether anybody calls or
// not, and also if it was never there: the server's own alerts, and those that are generated for Prometheus.
func TestOutages(t *testing.T) {
	for name, fault := range outages {
		for _, busy := range [...]bool{true, false} {
			if name == "slow" && !busy { // only calls find out
				continue
			}
			t.Run(fmt.Sprintf("%s, busy %t", name, busy), func(t *testing.T) {
				outage(t, outageAt, busy, func(ctx context.Context, since time.Duration) error {
					if since < outageAt || since >= outageEnd {
						return nil
					}
					return fault(ctx, since)
				})
			})
		}
	}
	t.Run("never reached", func(t *testing.T) {
		outage(t, 0, false, func(_ context.Context, since time.Duration) error {
			if since < outageEnd {
				return errAway
			}
			return nil
		})
	})
}

func outage(t *testing.T, from time.Duration, busy bool, fault func(context.Context, time.Duration) error) {
	set, err := rules.Parse("rules.yaml", []byte(outageRules))
	if err != nil {
		t.Fatal(err)
	}
	series := map[string][]string{}
	synctest.Test(t, func(t *testing.T) {
		c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
		c.Limiter = stint.NewLimiter(&faulty{Store: new(stint.Memory), began: time.Now(), fault: fault})
		s := server.New(c)
		defer s.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s.Follow(ctx)
		in := &rules.Input{Client: netip.MustParseAddr("192.0.2.1"), Cost: 1}
		for at := time.Duration(0); at <= observed; at += scraped {
			scrape(t, s, series, int(at/scraped))
			states(t, s, at, from)
			for range int(scraped / (250 * time.Millisecond)) {
				if busy {
					if v, err := s.Decide(ctx, in, time.Time{}); err != nil || !v.Allowed {
						t.Fatal(v, err)
					}
				}
				time.Sleep(250*time.Millisecond - time.Since(time.Now().Truncate(250*time.Millisecond)))
			}
		}
	})
	if all := series[`stint_fallback_decisions_total{policy="local",rule="login"}`]; busy == (all[len(all)-1] == "0") {
		t.Errorf("requests that the instance decided by its share: %v", all)
	}
	promtool(t, set, from, series)
}

// settles is how long an alert may take to fire, and to resolve.
const settles = 3 * time.Minute

// states checks the states of the server's own alerts at an instant.
func states(t *testing.T, s *server.Server, at, from time.Duration) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://localhost/v1/alerts", nil)
	r.RemoteAddr = "127.0.0.1:1"
	s.Admin().ServeHTTP(w, r)
	var all adminapi.Alerts
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	for _, a := range all.Alerts {
		switch {
		case at > time.Minute && at < from, at >= outageEnd+settles:
			if a.State != "ok" {
				t.Errorf("%s at %s: %s", a.Name, at, a.State)
			}
		case at >= from+time.Minute && at <= outageEnd:
			if a.State != "firing" {
				t.Errorf("%s at %s: %s, %v", a.Name, at, a.State, a.Value)
			}
		}
	}
}

var sample = regexp.MustCompile(`(?m)^(stint_(?:store|decision|fallback)\w*(?:\{[^}]*\})?) (\S+)$`)

// scrape adds the n-th sample of each series.
func scrape(t *testing.T, s *server.Server, series map[string][]string, n int) {
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
	for _, m := range sample.FindAllStringSubmatch(w.Body.String(), -1) {
		for len(series[m[1]]) < n {
			series[m[1]] = append(series[m[1]], "_")
		}
		series[m[1]] = append(series[m[1]], m[2])
	}
	if n == 0 && len(series["stint_store_down_seconds"]) == 0 {
		t.Fatal("no stint_store_down_seconds")
	}
}

// promtool has Prometheus evaluate what is generated, with the series.
func promtool(t *testing.T, set *rules.Set, from time.Duration, series map[string][]string) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte(Prometheus(set, Options{Interval: scraped})), 0o600); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [alerts.yml]\nevaluation_interval: 15s\ntests:\n  - interval: %s\n    input_series:\n", scraped)
	for _, name := range slices.Sorted(maps.Keys(series)) {
		fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", quoted(name), quoted(strings.Join(series[name], " ")))
	}
	b.WriteString("    promql_expr_test:\n")
	for at := scraped; at <= observed; at += scraped {
		for _, alert := range [...]struct {
			name  string
			after time.Duration // the outage begins or ends
		}{{"StintStoreFails", settles}, {"down", time.Minute}, {"share", time.Minute}} {
			fires := at >= from+alert.after && at <= outageEnd
			if !fires && (at >= from && at < from+alert.after || at > outageEnd && at < outageEnd+2*settles) {
				continue
			}
			want := 0
			if fires {
				want = 1
			}
			fmt.Fprintf(&b, "      - {expr: %s, eval_time: %s, exp_samples: [{labels: '{}', value: %d}]}\n",
				quoted(fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"}) or vector(0)`, alert.name)), at, want)
		}
	}
	file := filepath.Join(dir, "test.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	accepted(t, "promtool", "test", "rules", file)
}
