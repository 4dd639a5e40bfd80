package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const chatRule = `
rules:
  - name: chat
    key: client.ip
    unit: tokens
    cost: 300
    limits: [1000 per month in Europe/Berlin hold, 4 in_flight]
`

// An operator sees what requests hold of a key, apart from what is used, and releases it.
func TestHolds(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	t.Cleanup(upstream.Close)
	s := serve(t, "server:"+withTokens+chatRule, "--upstream", upstream.URL)
	ended := make(chan error, 1)
	t.Cleanup(func() { <-ended })
	t.Cleanup(func() { close(done) })
	go func() {
		resp, err := http.Get(s.gateway + "/")
		if err == nil {
			err = resp.Body.Close()
		}
		ended <- err
	}()
	b := open(t)
	b.signIn(s, readToken)
	b.at("keys?rule=chat&key=127.0.0.1")
	b.see("holds", "300", "in_flight", "per month")
	b.gone("btn-release")
	b.gone("btn-release-all")

	if got := s.answers(map[string]any{"client": "127.0.0.1", "hold": "60s"}); got != "200" {
		t.Fatalf("a check that holds: %s", got)
	}
	b.until("both", of("holds-count")+"?.textContent === '2'")
	gauges := strings.Join(eval[[]string](b, `[...document.querySelectorAll('[data-testid=gauge]')].map(g => g.innerText)`), "\n")
	for _, want := range []string{"0 of 1,000 used + 600 held", "400 left", "2 of 4 in flight", "2 free", "Europe/Berlin", "from 20", " to 20"} {
		if !strings.Contains(gauges, want) {
			t.Errorf("want %q in\n%s", want, gauges)
		}
	}
	if n := eval[int](b, `document.querySelectorAll('.gauge .cell.held').length`); n != 2 {
		t.Errorf("%d places are drawn as held, want 2", n)
	}
	b.accessible("a key with holds")
	b.at("overview")
	b.until("the overview says how many", fmt.Sprintf("%s.textContent.includes('1 in flight')", of("page-overview")))
	b.at("rules?rule=chat")
	b.see("page-rules", "tokens", "300")
	b.until("the rule, too", of("rule-holds")+".textContent === '1'")

	ops := open(t)
	ops.language("zh")
	ops.phone()
	ops.signIn(s, writeToken)
	ops.at("keys?rule=chat&key=127.0.0.1")
	ops.until("both", of("holds-count")+"?.textContent === '2'")
	ops.fits("a key with holds")
	ops.accessible("a key with holds, in Chinese")
	ops.click("btn-release") // of the first
	ops.see("dialog")
	ops.fill("input-reason", "is stuck")
	ops.click("btn-confirm")
	ops.until("one is left", of("holds-count")+"?.textContent === '1'")
	ops.click("btn-release-all")
	ops.see("dialog")
	ops.click("btn-confirm")
	ops.gone("holds")
	if text := s.text(); !strings.Contains(text, "is stuck") {
		t.Errorf("the audit log does not say why:\n%s", text)
	}
}
