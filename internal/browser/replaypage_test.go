package browser

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	replayedNow = `
rules:
  - {name: address, key: client.ip, limits: [100 per 1m]}
  - {name: login, match: request.path == "/login", key: client.ip, limits: [5 per 1m, 30 per 1h], penalty: {ban_after: 20, ban_for: 10m}}
`
	replayedOld = `
rules:
  - {name: address, key: client.ip, limits: [100 per 1m]}
  - {name: login, match: request.path == "/login", key: client.ip, limits: [10 per 1m]}
`
)

// shopLog is the access log of a shop for a week: customers, an office behind one address, and somebody who tries
// passwords at night.
func shopLog() string {
	random := rand.New(rand.NewPCG(1, 1))
	monday := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	type request struct {
		at   time.Time
		line string
	}
	var all []request
	add := func(client string, at time.Time, path string, status int) {
		line := fmt.Sprintf("%s - - [%s] \"POST %s HTTP/1.1\" %d 12 \"-\" \"-\"\n", client, at.Format("02/Jan/2006:15:04:05 -0700"), path, status)
		all = append(all, request{at, line})
	}
	seconds := func(n int) time.Duration { return time.Duration(random.IntN(n)) * time.Second }
	for d := range 7 {
		day := monday.AddDate(0, 0, d)
		for c := range 1100 {
			at := day.Add(time.Duration((14 + 3.5*random.NormFloat64()) * float64(time.Hour)))
			client := fmt.Sprintf("10.0.%d.%d", (c*3+d*700)%3600/250, (c*3+d*700)%3600%250)
			for random.IntN(5) == 0 { // a wrong password
				add(client, at, "/login", 401)
				at = at.Add(5*time.Second + seconds(10))
			}
			add(client, at, "/login", 200)
			for range random.IntN(6) {
				at = at.Add(2*time.Second + seconds(60))
				add(client, at, "/cart", 200)
			}
		}
		for range 60 {
			if d < 5 {
				add("203.0.113.40", day.Add(7*time.Hour+50*time.Minute+seconds(1500)), "/login", 200)
			}
		}
		for n := range 1500 {
			add("198.51.100.66", day.Add(time.Duration(1+d%3)*time.Hour+time.Duration(n*4)*time.Second+seconds(3)), "/login", 401)
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var log strings.Builder
	for _, r := range all {
		log.WriteString(r.line)
	}
	return log.String()
}

// replayed serves the page of a replay of shopLog. asked counts the requests.
func replayed(t *testing.T) (url string, asked *atomic.Int64) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"new.yaml": replayedNow, "old.yaml": replayedOld, "access.log": shopLog()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(stint(t), "replay", "--rules", "new.yaml", "--against", "old.yaml", "--html", "report.html", "access.log")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write(page)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// The page of a replay is accessible and fits in both languages, light and dark, on a phone and a laptop. It loads
// nothing, and needs no script: what its policy refuses would fail the test.
func TestReplayPage(t *testing.T) {
	t.Parallel()
	url, asked := replayed(t)
	b := open(t)
	themes := []string{"light", "dark"}
	for i, width := range []int64{1280, 360} {
		b.size(width, 800)
		b.visit(url)
		b.clickAt("the numbers of a curve", "document.querySelector('figure summary')")
		for j, language := range []string{"en", "zh"} {
			b.clickAt(language, "document.getElementById('"+language+"')")
			if other := eval[int](b, fmt.Sprintf(`[...document.querySelectorAll('span[lang]')].filter(e => e.checkVisibility() !== e.lang.startsWith(%q) && e.closest('details')?.open !== false).length`, language)); other > 0 {
				t.Errorf("%d texts are in the other language than %s, or hidden", other, language)
			}
			theme := themes[(i+j)%2] // so that each language is seen in each
			b.theme(theme)
			where := fmt.Sprint("the page of a replay, ", width, " wide, ", language, ", ", theme)
			b.accessible(where)
			b.fits(where)
		}
		if n := asked.Load(); n != int64(i+1) || eval[int](b, "performance.getEntriesByType('resource').length") > 0 {
			t.Errorf("%d requests for %d visits", n, i+1)
		}
	}
}

// TestReplayPicture takes the picture of docs/replay.md into the directory in STINT_SCREENSHOTS, as TestScreenshots
// does. It is of the same traffic each time.
func TestReplayPicture(t *testing.T) {
	to := os.Getenv("STINT_SCREENSHOTS")
	if to == "" {
		t.Skip("STINT_SCREENSHOTS is not set")
	}
	url, _ := replayed(t)
	b := open(t)
	b.theme("light")
	b.size(1280, 860)
	b.visit(url)
	do(b, chromedp.Evaluate[chromedp.Void]("document.getElementById('rule-2').scrollIntoView({behavior: 'instant'})"))
	b.picture(filepath.Join(to, "replay.png"))
}
