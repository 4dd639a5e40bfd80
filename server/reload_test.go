package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// While rules are swapped a hundred times, every request is answered, by the rules
// of before or by those of after, and what was counted stays counted.
func TestReloadUnderLoad(t *testing.T) {
	text := func(amount int) string {
		return fmt.Sprintf("rules: [{name: a, key: client.ip, limits: [%d per 24h sliding_log]}]", amount)
	}
	s := newServer(t, text(1_000_000))
	h := checkAPI(s)
	const callers, each = 4, 500
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, checkRequest(`{"client":"192.0.2.1"}`))
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
	for i := range 100 {
		set, err := rules.Parse("rules.yaml", []byte(text(1_000_001+i)))
		if err != nil {
			t.Fatal(err)
		}
		s.SetRules(set)
	}
	wg.Wait()
	if w := check(s, `{"client":"192.0.2.1","cost":0}`); !strings.Contains(w.Body.String(), fmt.Sprintf(`"remaining":%d,`, 1_000_100-callers*each)) {
		t.Errorf("after %d requests: %s", callers*each, w.Body)
	}
}

// Over real connections, no request is lost while rules come and go a hundred
// times, and switches with them: what clients saw, what the upstream got, what the
// limits counted and what the metrics say is the same number.
func TestReloadLosesNothing(t *testing.T) {
	const callers, few = 8, 100
	text := func(version int) string {
		return fmt.Sprintf(`
rules:
  - {name: all, match: request.path == "/", key: '"all"', limits: [1000000 per 24h fixed_window]}
  - {name: few, match: request.path == "/few", key: '"all"', limits: [%d per 24h fixed_window]}
  - {name: other%d, key: client.ip, limits: [%d per 24h]}
`, few, version, 1_000_000+version)
	}
	var arrived atomic.Int64
	s := newServer(t, text(0), everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })))
	g := start(t, s)
	var sent, passed, passedFew, asked atomic.Int64
	var reloaded atomic.Bool
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			c := dial(t, g.gateway)
			defer c.Close()
			for i := 0; i < 2*few || !reloaded.Load(); i++ {
				path := "/"
				if i%10 == 0 {
					path = "/few"
				}
				got := c.send(t, "GET", path)
				sent.Add(1)
				switch {
				case path == "/few" && got.StatusCode == 200:
					passedFew.Add(1)
				case got.StatusCode == 200:
					passed.Add(1)
				case path != "/few" || got.StatusCode != 429:
					t.Errorf("%s: %s", path, got.Status)
				default:
					asked.Add(1)
				}
			}
		})
	}
	o := operator{t, s.Admin()}
	for i := range 100 {
		set, err := rules.Parse("rules.yaml", []byte(text(i%3)))
		if err != nil {
			t.Fatal(err)
		}
		s.SetRules(set)
		o.want(200, "PATCH", "/v1/switches", fmt.Sprintf(`{"rules":{"other%d":"%s"}}`, i%3, []string{"shadow", "off", "enforce"}[i%3]))
	}
	reloaded.Store(true)
	all.Wait()
	if passedFew.Load() != few || arrived.Load() != passed.Load()+few || sent.Load() != arrived.Load()+asked.Load() {
		t.Errorf("%d sent; %d and %d passed, %d were refused; %d arrived", sent.Load(), passed.Load(), passedFew.Load(), asked.Load(), arrived.Load())
	}
	o.want(200, "POST", "/v1/keys/show", `{"rule":"all","key":"all"}`, fmt.Sprintf(`"used":%d,`, passed.Load()))
	metrics := send(t, g.check, "GET", "/metrics").body
	for _, line := range []string{
		fmt.Sprintf(`stint_decisions_total{outcome="allowed",rule="few"} %d`, few),
		fmt.Sprintf(`stint_decisions_total{outcome="limited",rule="few"} %d`, asked.Load()),
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("metrics lack %s:\n%s", line, metrics)
		}
	}
}
