package browser

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stintdev/stint/internal/redistest"
)

// screenshotRules are those of a shop.
const screenshotRules = `
rules:
  - name: login
    match: operation == "login"
    key: client.ip
    limits: [5 per 1m sliding_log, 100 per 1h]
    penalty: {warn_after: 3, ban_after: 20, ban_for: 30m}
  - name: search
    match: operation == "search"
    key: client.ip
    limits: [50 per 1s]
  - name: checkout
    match: operation == "checkout"
    key: attrs.user
    limits: [30 per 1m]
  - name: export
    match: operation == "export"
    key: attrs.user
    limits: [20 per 1m leaky_bucket]
    mode: shadow
`

// TestScreenshots takes the pictures of docs/dashboard.md into the directory in
// STINT_SCREENSHOTS ("make screenshots"). It shows a fleet under load, so no two are the same.
func TestScreenshots(t *testing.T) {
	to := os.Getenv("STINT_SCREENSHOTS")
	if to == "" {
		t.Skip("STINT_SCREENSHOTS is not set")
	}
	redis := redistest.Start(t)
	s := serve(t, "server: {rules: fleet}"+screenshotRules, "--store", redis.URL())
	second := serve(t, "server: {rules: fleet}"+screenshotRules, "--store", redis.URL())
	s.must(200, "PUT", "/v1/rules", map[string]any{"text": strings.TrimSpace(screenshotRules), "after": 0, "note": "shop"})
	s.must(201, "POST", "/v1/bans", map[string]any{"network": "203.0.113.0/24", "for": "12h", "reason": "flood"})
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	for i, one := range []*instance{s, second} {
		go shop(one, i, done)
	}
	overview := open(t)
	overview.theme("light")
	overview.visit(s.admin + "/")
	wait := 15 * time.Minute // what the charts show
	if text := os.Getenv("STINT_SCREENSHOTS_AFTER"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(wait)
	overview.settle()
	overview.picture(filepath.Join(to, "dashboard-overview.png"))
	overview.theme("dark")
	overview.settle()
	overview.picture(filepath.Join(to, "dashboard-overview-dark.png"))
	key := open(t)
	key.theme("dark")
	key.visit(s.admin + "/#/keys?rule=login&key=192.0.2.30")
	key.see("key", "192.0.2.30")
	key.until("it uses its limit", of("key")+".innerText.match(/[2-5] of 5/)")
	key.settle()
	key.picture(filepath.Join(to, "dashboard-key.png"))
}

// picture writes what the tab shows into a file, of less than 300 kB.
func (b *tab) picture(path string) {
	b.t.Helper()
	png := do(b, chromedp.CaptureScreenshot())
	if len(png) > 300_000 {
		b.t.Errorf("%s has %d bytes, want at most 300,000", path, len(png))
	}
	if err := os.WriteFile(path, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.t.Logf("%s: %d bytes", path, len(png))
}

// shop sends what the customers of a shop do, more and less by the minute, and one who tries
// passwords, until done.
func shop(s *instance, seed int, done <-chan struct{}) {
	for i := seed * 7919; ; i++ {
		wave := 1 + 0.5*math.Sin(float64(time.Now().Unix())/70) + 0.2*math.Sin(float64(time.Now().Unix())/11)
		select {
		case <-done:
			return
		case <-time.After(time.Duration(10 / wave * float64(time.Millisecond))):
		}
		check := fmt.Sprintf(`{"operation":"search","client":"198.51.100.%d"}`, i*i%200)
		switch {
		case i%30 == 0 && (i/3000)%3 == 1: // now and then
			check = `{"operation":"login","client":"192.0.2.7"}`
		case i%12 == 0:
			check = fmt.Sprintf(`{"operation":"login","client":"192.0.2.%d"}`, 20+(i/12)%200)
		case i%6 == 0:
			check = fmt.Sprintf(`{"operation":"checkout","attrs":{"user":"u-%d"}}`, i*i%53)
		case i%25 == 0:
			check = fmt.Sprintf(`{"operation":"export","attrs":{"user":"u-%d"}}`, i%9)
		}
		resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader(check))
		if err != nil {
			return
		}
		_ = resp.Body.Close()
	}
}
