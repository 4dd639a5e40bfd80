package redislimit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// Whatever stands in a count that others write, a request is refused or cannot be decided. Nothing
// shows more left than the limit has, and what is given back raises it no further.
func TestAttackEnvoyCounts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, old := openEnvoy(t, "redis://"+server.Addr, redislimit.EnvoyKeys{}), newOldInstance(t, "", server.Addr)
	limiter, limit := stint.NewLimiter(s), stint.MustLimit("envoy: 10 per 24h fixed_window")
	key := old.key("domain_k_", 24*time.Hour, time.Now())
	do := func(args ...string) {
		t.Helper()
		if err := old.client.Do(t.Context(), old.client.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for _, write := range [][]string{
		{"SET", key, "11"}, {"SET", key, "9007199254740993"}, {"SET", key, "9223372036854775807"}, {"SET", key, "9223372036854775808"},
		{"SET", key, "18446744073709551616"}, {"SET", key, strings.Repeat("9", 30)}, {"SET", key, strings.Repeat("9", 400)},
		{"SET", key, "1e3"}, {"SET", key, "-1"}, {"SET", key, ""}, {"SET", key, " 1"}, {"SET", key, "0x1"}, {"SET", key, "inf"}, {"SET", key, "nan"},
		{"HSET", key, "a", "1"}, {"SADD", key, "1"}, {"ZADD", key, "1", "1"}, {"LPUSH", key, "1"},
	} {
		do("DEL", key)
		do(write...)
		what := strings.Join(write, " ")
		d, err := limiter.Allow(t.Context(), "k", limit)
		if err == nil && (d.Allowed || d.Remaining != 0) || err != nil && !errors.Is(err, fleet.ErrBroken) {
			t.Errorf("%.60s: %+v, %v", what, d, err)
		}
		calls := []stint.HoldCall{{Action: stint.HoldCharge, Key: "k", Limit: limit, Cost: 5}}
		s.Holds(t.Context(), time.Time{}, calls)
		if c := &calls[0]; c.Err == nil && (c.Charged != 0 && write[2] != "11" || c.Remaining != 0) {
			t.Errorf("%.60s: charged %+v", what, c)
		}
		if err := s.Refund(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}}); err != nil {
			t.Errorf("%.60s: refund: %v", what, err)
		}
	}
}
