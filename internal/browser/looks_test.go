package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stintdev/stint/internal/redistest"
)

// look is a way in which people see the pages.
type look struct {
	theme, language string
	width, height   int64
}

func (l look) String() string { return fmt.Sprintf("%s-%s-%d", l.language, l.theme, l.width) }

// looks are both languages at the widths of a phone and a laptop, once light and once dark each.
var looks = []look{
	{"light", "en", 390, 844}, {"dark", "zh", 390, 844}, {"dark", "en", 1280, 900}, {"light", "zh", 1280, 900},
}

// open opens the overview as l.
func (l look) open(t testing.TB, s *instance) *tab {
	t.Helper()
	b := open(t)
	b.theme(l.theme)
	b.language(l.language)
	b.size(l.width, l.height)
	b.visit(s.admin + "/")
	b.see("page-overview")
	return b
}

// alertRules has an alert about a rate and one about keys, with a long condition.
const alertRules = loginRule + `
  - {name: search, match: operation == "search", key: client.ip, limits: [50 per 1s leaky_bucket, 100 per 1h fixed_window], mode: shadow}
alerts:
  - {name: login-refusals, when: 'block_rate("login") > 0.1 && rate("login", "refused") > 0.5', for: 5m, severity: critical, message: somebody tries passwords}
  - {name: login-quota, when: usage > 30% of login, severity: info}
`

// shown is an instance with something on every page, also an alert about keys that has fired.
func shown(t *testing.T) *instance {
	t.Helper()
	s := serve(t, "server: {rules: fleet}"+alertRules, "--store", redistest.Start(t).URL())
	s.must(200, "PUT", "/v1/rules", map[string]any{"text": strings.TrimSpace(alertRules), "after": 0, "note": "first"})
	s.watched()
	for i := range 6 {
		for range 3 + i {
			s.ask(login(fmt.Sprintf("192.0.2.%d", i)), map[string]any{"operation": "search", "client": fmt.Sprintf("198.51.100.%d", i)})
		}
	}
	s.must(201, "POST", "/v1/bans", map[string]any{"network": "203.0.113.0/24", "for": "1h", "reason": "flood"})
	s.must(201, "POST", "/v1/bans", map[string]any{"rule": "login", "key": "192.0.2.5", "reason": "tries passwords"})
	s.must(201, "POST", "/v1/overrides", map[string]any{"rule": "login", "key": "192.0.2.1", "times": 2, "for": "1h", "reason": "customer"})
	s.must(201, "POST", "/v1/lists/blocklist", map[string]any{"network": "198.51.100.128/28", "reason": "scanner"})
	s.must(201, "POST", "/v1/silences", map[string]any{"alert": "login-refusals", "for": "1h", "reason": "known"})
	s.waitFor("the alert about keys has fired", "/v1/alerts", `"keys":[`)
	return s
}

// watched waits until an instance evaluates the alerts.
func (s *instance) watched() {
	s.t.Helper()
	s.waitFor("an instance evaluates the alerts", "/v1/alerts", `"evaluator":`)
}

// waitFor waits until an answer of the API has a text.
func (s *instance) waitFor(what, path, text string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		answer := s.must(200, "GET", path, nil)
		if strings.Contains(answer, text) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: it does not happen: %s", what, answer)
		}
	}
}

// In every look, nothing of any page is wider than the screen or its place, and Chinese has its glyphs.
func TestLooks(t *testing.T) {
	t.Parallel()
	s := shown(t)
	for _, l := range looks {
		b := l.open(t, s)
		if l.language == "zh" && !eval[bool](b, glyphs) {
			missing(t, "a font with Chinese characters", "scripts/get fonts-wqy-zenhei")
		}
		for _, place := range append(places, bannedKey) {
			b.at(place)
			b.fits(l.String() + ": " + place)
			for _, wide := range eval[[]string](b, sideways) {
				t.Errorf("%s: %s: scrolls sideways: %s", l, place, wide)
			}
		}
	}
}

// bannedKey is the place of a key of shown that is banned.
const bannedKey = "keys?rule=login&key=192.0.2.5"

// sideways are the places with more to their right; a text as somebody wrote it may have long lines.
const sideways = `[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
	&& !e.matches('pre, textarea, .diff') && e.scrollWidth > e.clientWidth).map(e => e.className + ' ' + e.scrollWidth + ' of ' + e.clientWidth)`

// glyphs reports whether two Chinese characters look different, and not both like a missing one.
const glyphs = `(() => {
	const drawn = (text) => {
		const pen = Object.assign(document.createElement('canvas'), {width: 40, height: 40}).getContext('2d');
		pen.font = '30px ' + getComputedStyle(document.body).fontFamily;
		pen.fillText(text, 0, 32);
		return pen.getImageData(0, 0, 40, 40).data.join();
	};
	return drawn('规') !== drawn('则');
})()`

// TestPictures writes a picture of every page in every look into the directory in STINT_PICTURES, for
// people who change the pages.
func TestPictures(t *testing.T) {
	to := os.Getenv("STINT_PICTURES")
	if to == "" {
		t.Skip("STINT_PICTURES is not set")
	}
	s := shown(t)
	for _, l := range looks {
		b := l.open(t, s)
		for _, place := range append(places, bannedKey, "keys?rule=search&key=198.51.100.5") {
			b.at(place)
			b.whole(filepath.Join(to, l.String()+"-"+strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(place)+".png"))
		}
	}
}

// whole writes a picture of the whole page, not only of what the window shows.
func (b *tab) whole(path string) {
	b.t.Helper()
	if err := os.WriteFile(path, do(b, chromedp.FullScreenshot(100)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}
