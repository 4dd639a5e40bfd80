package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
)

// Over Redis, each refusal of a flood says its own number and warns when it should, and
// where Redis goes away, the count goes on.
func TestViolationsOverRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := openRedis(t, redis.URL())
	s := newServer(t, `
rules:
  - name: login
    key: client.ip
    limits: [1 per 24h]
    penalty: {warn_after: 300, ban_after: 5000, ban_for: 30m}
    messages: {limited: 'number {violations}', warned: 'warning {violations} of {ban_after}'}
`, over(store), func(c *server.Config) { c.Settings.DecisionTimeout = 2 * time.Second })
	ask := apis(t, s)["check"]
	await.Until(t, "it hears what others undo", func() bool { return metric(t, s, "stint_denials_listening") != 0 })
	ask("/login", "192.0.2.1", "")
	for n := int64(1); n <= 600; n++ {
		_, _, got := ask("/login", "192.0.2.1", "")
		want := refusalBody{Outcome: "limited", Message: fmt.Sprint("number ", n)}
		if n >= 300 {
			want = refusalBody{Outcome: "warned", Message: fmt.Sprint("warning ", n, " of 5000")}
		}
		if got.Outcome != want.Outcome || got.Message != want.Message || got.Violations != n || got.Used != 1 {
			t.Fatalf("refusal %d: %+v", n, got)
		}
	}
	o := operator{t, s.Admin()}
	if state := o.want(200, "POST", "/v1/keys/show", `{"rule":"login","key":"192.0.2.1"}`, `"used":1`, `"expires_in_us":86`); strings.Contains(state, `"charged_ago_us":0,`) {
		t.Errorf("charged by what was refused: %s", state)
	}
	_, _, first := ask("/login", "192.0.2.2", "")
	_, _, second := ask("/login", "192.0.2.2", "")
	if first.Outcome != "allowed" || second.Violations != 1 {
		t.Fatalf("%+v, %+v", first, second)
	}
	redis.Kill()
	for n := int64(2); n <= 3; n++ {
		if _, _, got := ask("/login", "192.0.2.2", ""); got.Violations != n || got.Outcome != "limited" {
			t.Errorf("without Redis, refusal %d: %+v", n, got)
		}
	}
}
