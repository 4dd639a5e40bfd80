package server_test

import (
	"testing"

	"github.com/stintdev/stint"
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
