package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	layers "github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
)

// A rule in shadow mode may hold for a request that another rule refuses. That is given back when
// the request is refused, because it does not take place.
func TestAttackRefusedHoldsNothingInShadow(t *testing.T) {
	var m stint.Memory
	s := newServer(t, `rules:
  - {name: watched, mode: shadow, key: '"all"', cost: "10", limits: [100000 per 24h fixed_window hold]}
  - {name: rate, key: '"all"', limits: [1 per 24h fixed_window]}`, over(&m))
	g := start(t, s)
	limit := s.Rules().Rules[0].Limits[0]
	for range 5 {
		send(t, g.gateway, "GET", "/")
		wantHeld(t, s, &m, 0)
	}
	d, err := stint.NewLimiter(&m).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "all", Limit: limit, Peek: true}}}, nil)
	if err != nil || d.Remaining != 100_000-10 && d.Remaining != 100_000 {
		t.Errorf("%d left, %v", d.Remaining, err)
	}
}

// The store may answer about a rule in shadow mode when the request has ended, and the rule then
// reads the response. net/http, and handlers around Wrap, still change the header map at that time,
// for the trailers: a concurrent use would end the process.
func TestAttackTrailersAndLateShadows(t *testing.T) {
	slow := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault {
		time.Sleep(5 * time.Millisecond)
		return limittest.Fault{}
	}}
	store := layers.New(slow, layers.Options{})
	defer store.Close()
	s := newServer(t, `rules: [{name: watched, mode: shadow, key: '"all"', cost: "10", cost_after: 'int(response.headers["x-cost"])', limits: [100000 per 24h fixed_window hold]}]`, over(store),
		everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "1")
			_, _ = io.WriteString(w, "hello")
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"X-Sum", "5")
		})))
	g := start(t, s)
	http2 := &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	defer http2.CloseIdleConnections()
	const requests = 20
	for range requests {
		r, err := http.NewRequest("GET", "http://"+g.gateway, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if sum := resp.Trailer.Get("X-Sum"); err != nil || string(body) != "hello" || sum != "5" {
			t.Errorf("%q, trailer %q, %v", body, sum, err)
		}
	}
	o := operator{t, s.Admin()}
	if !await.So(func() bool {
		return strings.Contains(o.want(200, "POST", "/v1/keys/show", `{"rule":"watched","key":"all"}`), fmt.Sprintf(`"used":%d,"remaining":%d`, requests, 100000-requests))
	}) {
		t.Error(o.want(200, "POST", "/v1/keys/show", `{"rule":"watched","key":"all"}`))
	}
}
