package browser

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// mostWeight is how much the whole page may send, with its scripts and styles and all parts that
// are loaded later, in bytes on the wire.
const mostWeight = 200_000

// The whole page with all of its parts is light. The first paint is logged, and no measure.
func TestPageWeight(t *testing.T) {
	atLength(t)
	s := serve(t, loginRule)
	b := open(t)
	var wire, files atomic.Int64
	if err := chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*network.EventLoadingFinished); ok {
			wire.Add(int64(e.EncodedDataLength))
			files.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	send(b, network.Enable, network.EnableParams{})
	b.visit(s.admin + "/")
	b.see("page-overview")
	b.settle()
	first := wire.Load()
	for _, place := range places {
		b.at(place)
	}
	size := eval[int64](b, `performance.getEntriesByType('resource').filter(e => e.name.includes('/static/')).reduce((n, e) => n + e.encodedBodySize, 0)
		+ performance.getEntriesByType('navigation')[0].encodedBodySize`)
	paint := eval[float64](b, "performance.getEntriesByName('first-contentful-paint')[0].startTime")
	t.Logf("first contentful paint %.0f ms after the navigation; %d bytes of page (%d on the wire at first, and all pages visited: %d in %d answers)", paint, size, first, wire.Load(), files.Load())
	if size > mostWeight {
		t.Errorf("the page has %d bytes, want at most %d", size, mostWeight)
	}
	for _, name := range eval[[]string](b, `performance.getEntriesByType('resource').map(e => e.name)`) {
		if !strings.HasPrefix(name, s.admin+"/") {
			t.Errorf("it loads %s from elsewhere", name)
		}
	}
	if painted := os.Getenv("STINT_FIGURES"); painted != "" && paint > 300 {
		t.Errorf("first contentful paint after %.0f ms, want at most 300", paint)
	}
}

// The stream takes at most 2 kB a second, with more busy rules than it shows.
func TestStreamWeight(t *testing.T) {
	atLength(t)
	rules := "rules:\n"
	var checks []string
	for i := range 30 {
		name := fmt.Sprintf("a-rule-with-a-rather-long-name-%d", i)
		rules += fmt.Sprintf("  - {name: %s, match: operation == %q, key: client.ip, limits: [2 per 1s fixed_window]}\n", name, name)
		checks = append(checks, fmt.Sprintf(`{"operation":%q,"client":"192.0.2.1"}`, name))
	}
	s := serve(t, rules)
	load(t, s, checks...)
	resp, err := http.Get(s.admin + "/v1/live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	size, rulesShown := 0, 0
	for events := 0; events < 8; {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		size += len(line)
		if line == "\n" {
			events++
			if events == 4 { // the rates of the first are of no whole second
				size = 0
			}
		}
		rulesShown = max(rulesShown, strings.Count(line, `"name":`))
	}
	t.Logf("%d bytes an event, one each second, with %d rules", size/4, rulesShown)
	if size/4 > 2000 || rulesShown != 12 {
		t.Errorf("%d bytes an event with %d rules, want at most 2,000 with 12", size/4, rulesShown)
	}
}

// quick makes the time of a page run faster, but for animations: an hour of timers in two minutes,
// say.
const quick = `{
	const factor = %d;
	const {setTimeout, setInterval, Date: RealDate} = window;
	const began = RealDate.now();
	const now = () => began + (RealDate.now() - began) * factor;
	window.setTimeout = (f, ms = 0, ...args) => setTimeout(f, ms / factor, ...args);
	window.setInterval = (f, ms = 0, ...args) => setInterval(f, Math.max(4, ms / factor), ...args);
	window.Date = class extends RealDate {
		constructor(...args) { super(...(args.length ? args : [now()])); }
		static now() { return now(); }
	};
}`

// hurried is a proxy before an instance that sends an hour of the stream in a moment: each event
// is sent again and again, with the time that passes.
func hurried(t testing.TB, s *instance, events <-chan int) string {
	target, err := url.Parse(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // the page has left
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/live" {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		began := time.Now()
		n := 0
		for {
			select {
			case <-r.Context().Done():
				return
			case more := <-events:
				for range more {
					fmt.Fprintf(w, "data: %s\n\n", event(began, n))
					n++
				}
				w.(http.Flusher).Flush()
			}
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// event is the event of the nth second, of a busy fleet.
func event(began time.Time, n int) string {
	rules := ""
	for i := range 12 {
		rules += fmt.Sprintf(`{"name":"rule-%d","decided":%d,"refused":%d},`, (i+n/60)%30, 100+n%7, n%5)
	}
	return fmt.Sprintf(`{"at":%q,"outcomes":{"allowed":%d,"limited":%d,"banned":%d},"decide":{"p50_us":%d,"p99_us":%d},"store":{"p50_us":300,"p99_us":900},"calls":%d,"failures":0,"fallback":0,"decides":"store","instances":3,"bans":%d,"firing":0,"rules":[%s],"version":"v%d","controls":%d}`,
		began.Add(time.Duration(n)*time.Second).UTC().Format(time.RFC3339Nano), 1000+n%100, n%50, n%9, 20+n%10, 80+n%30, 500+n%40, n%300, strings.TrimSuffix(rules, ","), n/300, n/120)
}

// The heap of a page that is open for an hour is flat: what the second half of the hour adds to it
// is noise. A page that leaks grows in every hour, and noise does not: hence three of them.
func TestHeapIsFlat(t *testing.T) {
	atLength(t)
	s := serve(t, loginRule)
	events := make(chan int)
	page := hurried(t, s, events)
	b := open(t)
	b.before(fmt.Sprintf(quick, 30))
	b.visit(page + "/")
	b.see("page-overview")
	isFlat(t, "15 minutes open, then every 5", 0.5, func() (heaps []float64) {
		const step = 60 // seconds
		for second := 0; second < 3600; second += step {
			events <- step
			b.until("the page has drawn", "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
			if second >= 900 && second%300 == 0 { // charts hold 15 minutes
				heaps = append(heaps, b.heap())
			}
		}
		return heaps
	})
	// And so is that of a page whose user goes round and round, once it has seen all pages
	// several times: the browser keeps compiled code.
	isFlat(t, "each round through all pages", 0.4, func() (heaps []float64) {
		for turn := range 12 {
			for _, place := range places {
				b.at(place)
			}
			b.at("overview")
			if turn >= 4 {
				heaps = append(heaps, b.heap())
			}
		}
		return heaps
	})
	if elements := eval[int](b, "document.querySelectorAll('*').length"); elements > 2000 {
		t.Errorf("the page has %d elements", elements)
	}
}

// isFlat fails if the heap grows by more than some MB in each of three hours.
func isFlat(t *testing.T, what string, more float64, hour func() []float64) {
	t.Helper()
	var grew []string
	for range 3 {
		heaps := hour()
		t.Logf("heap in MB after %s: %.2f", what, heaps)
		// The browser drops compiled code at times, so that single samples are low.
		half := len(heaps) / 2
		early, late := slices.Max(heaps[:half]), slices.Min(heaps[half:])
		if late <= early+more {
			return
		}
		grew = append(grew, fmt.Sprintf("from %.2f to %.2f MB", early, late))
	}
	t.Errorf("%s, the heap grew each time: %s", what, strings.Join(grew, ", "))
}

// heap is the heap of the page in MB, of scripts and of what they hold in the browser, after its
// garbage was collected.
func (b *tab) heap() float64 {
	b.t.Helper()
	return do(b, func(ctx context.Context, to *chromedp.Target) (float64, error) {
		if _, err := cdp.Call(ctx, to, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
		usage, err := cdp.Call(ctx, to, runtime.GetHeapUsage, cdp.Empty{})
		return (usage.UsedSize + usage.EmbedderHeapUsedSize + usage.BackingStorageSize) / 1e6, err
	})
}
