package chaos

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

const listRules = `
rules:
  - {name: listed, match: 'operation == "list"', key: attrs.user, limits: [1000 per 1m, 10000 per 1h sliding_window, 5000 per 1h sliding_log]}
  - {name: other, match: 'operation == "other"', key: attrs.user, limits: [1000000 per 1h], on_store_error: deny}
`

// Lists of many checks are slow by their size, and no sign that the store is: they do
// not open the breaker, and others are decided by the store beside them. The way to the store is
// long, and a decision may take long, so that lists take longer than a decision may on each machine,
// and no other call does on a busy one.
func TestLists(t *testing.T) {
	const lists, checks = 3, 400
	const wayTakes, decisionMayTake = 25 * time.Millisecond, 400 * time.Millisecond
	lasts := time.Second
	if long() {
		lasts = 10 * time.Second
	}
	way := redistest.StartProxy(t, redistest.Start(t).Addr)
	way.Set(redistest.Toxic{Latency: wayTakes})
	store, err := redislimit.Connect(t.Context(), way.URL(), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	set, err := rules.Parse("rules.yaml", []byte(listRules))
	if err != nil {
		t.Fatal(err)
	}
	settings := config.Default()
	settings.DecisionTimeout = decisionMayTake
	s := server.New(server.Config{Settings: settings, Rules: set, Limiter: stint.NewLimiter(store), Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	api := httptest.NewServer(s.Check())
	defer api.Close()
	ask := func(body string, answer any) error {
		r, err := http.Post(api.URL+"/v1/check", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		return json.NewDecoder(r.Body).Decode(answer)
	}
	type reply struct {
		Status int
		By     string
	}
	var took []time.Duration
	alone := func(until func() bool) (decided, other int) {
		took = took[:0]
		for until() {
			var one reply
			asked := time.Now()
			if err := ask(fmt.Sprintf(`{"operation":"other","attrs":{"user":"u%d"}}`, rand.IntN(1000)), &one); err != nil {
				t.Error(err)
				return
			}
			took = append(took, time.Since(asked))
			if one.Status >= 500 || one.By != "" {
				other++
			} else {
				decided++
			}
			time.Sleep(time.Millisecond)
		}
		slices.Sort(took)
		return decided, other
	}
	for range 2 {
		began := time.Now()
		alone(func() bool { return time.Since(began) < lasts/4 })
	}
	half := took[len(took)/2]
	var over atomic.Bool
	var listed, local, shortest atomic.Int64
	shortest.Store(math.MaxInt64)
	var asking sync.WaitGroup
	for range lists {
		asking.Go(func() {
			for !over.Load() {
				var body []string
				for range checks {
					body = append(body, fmt.Sprintf(`{"operation":"list","attrs":{"user":"v%d"}}`, rand.IntN(100_000)))
				}
				var all []reply
				asked := time.Now()
				if err := ask("["+strings.Join(body, ",")+"]", &all); err != nil {
					t.Error(err)
					return
				}
				if took := int64(time.Since(asked)); took < shortest.Load() {
					shortest.Store(took)
				}
				for _, one := range all {
					listed.Add(1)
					if one.By != "" {
						local.Add(1)
					}
				}
			}
		})
	}
	began := time.Now()
	decided, other := alone(func() bool { return time.Since(began) < lasts })
	over.Store(true)
	asking.Wait()
	var metrics strings.Builder
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "stint_breaker_opened_total") {
			metrics.WriteString(line)
		}
	}
	t.Logf("alone %s; beside lists half within %s, 99 %% within %s; %d of %d not by the store; of the lists' %d checks %d; %s",
		half, took[len(took)/2], took[len(took)*99/100], other, decided+other, listed.Load(), local.Load(), &metrics)
	if took := time.Duration(shortest.Load()); took < decisionMayTake {
		t.Errorf("a list took %s: no longer than a decision may", took)
	}
	if !strings.Contains(metrics.String(), " 0\n") {
		t.Errorf("lists opened the breaker: %s", &metrics)
	}
}
