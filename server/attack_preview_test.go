package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
)

// The holder of a read token previews thousands of expensive rules on requests that make each of
// them expensive, in shadow mode, so that none ends the others. The preview ends when its time is
// up, also within one request, and requests are decided meanwhile.
func TestAttackPreviewBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes for seconds; TestPreviewIsBounded is its short form")
	}
	s := newServer(t, `rules: [{name: r, match: 'size(attrs.l) > 0', key: attrs.u, limits: [1000 per 1h]}]`, func(c *server.Config) { c.Settings.RecentRequests = 16 << 20 })
	in := `{"client":"192.0.2.1","attrs":{"u":"u","l":[` + strings.Repeat("1,", 1000) + `1]}}`
	for range 20 {
		outcome(t, s, in)
	}
	var rules strings.Builder
	rules.WriteString("rules:\n")
	for i := range 150 {
		fmt.Fprintf(&rules, "  - {name: r%d, match: 'attrs.l.all(a, attrs.l.exists(b, b == a + 1))', key: attrs.u, mode: shadow, limits: [5 per 1h]}\n", i)
	}
	done := make(chan string, 1)
	go func() {
		done <- operator{t, s.Admin()}.want(200, "POST", "/v1/rules/preview", checkText(rules.String()))
	}()
	const watchdog = time.Minute
	for began, decided := time.Now(), 0; ; decided++ {
		select {
		case answer := <-done:
			var p adminapi.Preview
			if err := json.Unmarshal([]byte(answer), &p); err != nil || !p.Partial && p.Requests < 20 { // those below are tried, too
				t.Errorf("%v %.300s", err, answer)
			}
			t.Logf("%d requests decided in %v, %d tried", decided, time.Since(began), p.Requests)
			return
		default:
		}
		if time.Since(began) > watchdog {
			t.Fatal("the preview does not end")
		}
		if got := outcome(t, s, `{"client":"192.0.2.1","attrs":{"u":"v","l":[1]}}`); got != "allowed" && got != "limited" {
			t.Fatal(got)
		}
	}
}
