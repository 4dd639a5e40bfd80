// Package browser has the tests of the dashboard in a real browser, Chromium: the program
// stint serves, with a real Redis where a fleet is needed.
package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/stintdev/stint/internal/redistest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // most tests wait most of the time
		_ = flag.Set("test.parallel", "4")
	}
	code := m.Run()
	cleanUp()
	os.Exit(code)
}

// once is what all tests share, made by the first that needs it.
var once struct {
	sync.Mutex
	dir     string
	browser context.Context
	program string
	end     []func()
}

func cleanUp() {
	once.Lock()
	defer once.Unlock()
	for _, end := range once.end {
		end()
	}
	if once.dir != "" {
		_ = os.RemoveAll(once.dir)
	}
}

// required is the variable that turns a skip for want of a browser into a failure.
const required = "STINT_REQUIRE_BROWSER"

// missing skips t, or fails it where a browser is required.
func missing(t testing.TB, program, install string) {
	t.Helper()
	if os.Getenv(required) != "" {
		t.Fatalf("%s is not installed, and %s is set: %s", program, required, install)
	}
	redistest.Skip(t, program, install)
}

// atLength is the start of a test that is in the long form only: of what a page weighs, of many
// pages, of what hardly changes.
func atLength(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a page at length")
	}
	t.Parallel()
}

// dirLocked is a directory that is removed after the last test.
func dirLocked(t testing.TB) string {
	t.Helper()
	if once.dir == "" {
		dir, err := os.MkdirTemp("", "stint-browser-")
		if err != nil {
			t.Fatal(err)
		}
		once.dir = dir
	}
	return once.dir
}

// chromium is the browser of all tests. It uses the network of this machine only.
func chromium(t testing.TB) context.Context {
	t.Helper()
	once.Lock()
	defer once.Unlock()
	if once.browser != nil {
		return once.browser
	}
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		missing(t, "chromium", "scripts/get chromium-headless-shell")
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(dirLocked(t), "profile"))}
	for _, flag := range []string{
		"headless", "disable-gpu", "disable-quic", "no-first-run", "no-default-browser-check", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-extensions", "disable-default-apps", "disable-dev-shm-usage",
		"disable-domain-reliability", "disable-client-side-phishing-detection", "no-pings", "mute-audio", "hide-scrollbars",
		// All pages are at the front: nothing may be throttled because another test's page hides it.
		"disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	options = append(options,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
		chromedp.Flag("lang", "en-US"),
		chromedp.Flag("disable-features", "SpareRendererForSitePerProcess,Translate,OptimizationHints,MediaRouter"), // each process costs
		chromedp.Flag("no-sandbox", os.Getuid() == 0),                                                               // Chromium's sandbox does not work for root
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, closeBrowser := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	if err := chromedp.Do(browser); err != nil {
		stop()
		t.Fatalf("chromium does not start: %v", err)
	}
	once.end = append(once.end, closeBrowser, stop)
	once.browser = browser
	return browser
}

// stint is the program, built of this tree.
func stint(t testing.TB) string {
	t.Helper()
	once.Lock()
	defer once.Unlock()
	if once.program == "" {
		path := filepath.Join(dirLocked(t), "stint")
		build := exec.Command("go", "build", "-o", path, "github.com/stintdev/stint/cmd/stint")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatal(fmt.Errorf("go build: %w\n%s", err, out))
		}
		once.program = path
	}
	return once.program
}
