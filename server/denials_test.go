package server_test

import (
	"context"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	layers "github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// telling is a store in memory that tells an instance that nothing is undone beside
// it, and counts its calls.
type telling struct{ *limittest.Faulty }

func newTelling() telling { return telling{&limittest.Faulty{Store: new(stint.Memory)}} }

func (telling) Notify(ctx context.Context, e layers.Listener) error {
	e.Connected(true)
	<-ctx.Done()
	return nil
}

const api = `{"operation":"api","attrs":{"user":"u"}}`

// metric is the value of a series without labels.
func metric(t testing.TB, s *server.Server, name string) float64 {
	t.Helper()
	w := httptest.NewRecorder()
	checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no series %s", name)
	return 0
}

// What was refused is refused again without the store; what operators change is in
// force at once all the same.
func TestRememberedDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTelling()
		s := newServer(t, adminRules, over(store))
		a := operator{t, s.Admin()}
		expect(t, outcome(t, s, api), "allowed")
		synctest.Wait() // it hears
		refused := func() {
			t.Helper()
			for range 10 {
				outcome(t, s, api)
			}
			before := store.Calls()
			expect(t, outcomes(t, s, api, 100), strings.TrimSpace(strings.Repeat("limited ", 100)))
			if n := store.Calls() - before; n > 1 {
				t.Errorf("%d calls for 100 refusals", n)
			}
		}
		refused()
		if n := metric(t, s, "stint_denials_remembered_total"); n < 99 {
			t.Errorf("stint_denials_remembered_total %v", n)
		}
		if n := metric(t, s, "stint_denials_listening"); n != 1 {
			t.Errorf("stint_denials_listening %v", n)
		}
		key := `{"rule":"api","key":["u","x"]}`
		a.want(200, "POST", "/v1/keys/reset", key)
		expect(t, outcome(t, s, api), "allowed")
		refused()
		a.want(200, "POST", "/v1/keys/refund", `{"rule":"api","key":["u","x"],"cost":1}`)
		expect(t, outcome(t, s, api), "allowed")
		refused()
		a.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["u","x"],"limits":["20 per 1m"]}`)
		expect(t, outcome(t, s, api), "allowed")
		a.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
		expect(t, outcome(t, s, api), "allowed")
		s.Close()
	})
}

// A ban is remembered, and lifted at once.
func TestRememberedBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTelling()
		s := newServer(t, adminRules, over(store))
		a := operator{t, s.Admin()}
		expect(t, outcome(t, s, login), "allowed")
		synctest.Wait()
		expect(t, outcomes(t, s, login, 5), "allowed limited limited banned banned")
		before := store.Calls()
		expect(t, outcomes(t, s, login, 50), strings.TrimSpace(strings.Repeat("banned ", 50)))
		if n := store.Calls() - before; n > 0 {
			t.Errorf("%d calls while banned", n)
		}
		a.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`)
		expect(t, outcome(t, s, login), "limited")
		time.Sleep(time.Minute)
		expect(t, outcome(t, s, login), "allowed")
		s.Close()
	})
}

// 0 turns it off.
func TestNoRememberedDenials(t *testing.T) {
	store := newTelling()
	s := newServer(t, adminRules, over(store), func(c *server.Config) { c.Settings.RememberedDenials = 0 })
	for range 20 {
		outcome(t, s, api)
	}
	if n := store.Calls(); n != 20 {
		t.Errorf("%d calls", n)
	}
}
