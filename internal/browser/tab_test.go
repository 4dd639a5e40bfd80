package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// tab is a page in a profile of its own, without cookies. When its test ends, it must have
// thrown nothing and broken no policy.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// patience is how long a test waits for what must happen. Who waits longer hangs; it is no measure.
const patience = 3 * time.Minute

// open opens a tab with the size of a laptop's window.
func open(t testing.TB) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium(t), chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.watch); err != nil { // opens the tab
		t.Fatal(err)
	}
	b.size(1280, 800)
	b.before(countCalls)
	t.Cleanup(func() {
		if t.Failed() {
			b.keepScreenshot()
		}
		cancel()
		for _, fault := range b.forgive() {
			t.Errorf("in the page: %s", fault)
		}
	})
	return b
}

// countCalls counts the calls of the page that are under way, but for the stream of events.
const countCalls = `{
	window.underWay = 0;
	const count = (of, name) => {
		const call = of[name];
		of[name] = function (...args) {
			underWay++;
			return call.apply(this, args).finally(() => { underWay-- });
		};
	};
	count(window, 'fetch'); // until the header is there
	count(Response.prototype, 'json'); // until the body is
}`

// watch notes exceptions that nobody caught, lines of console.error and console.warn, and what a
// policy refused. Answers that are no success are the tests' business.
func (b *tab) watch(event any) {
	fault := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			fault = "console:"
			for _, arg := range e.Args {
				fault += " " + string(arg.Value) + arg.Description
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			fault = string(e.Entry.Source) + ": " + e.Entry.Text
		}
	}
	if fault != "" {
		b.mu.Lock()
		b.faults = append(b.faults, fault)
		b.mu.Unlock()
	}
}

// forgive returns the faults so far, and forgets them.
func (b *tab) forgive() (faults []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults, b.faults = b.faults, nil
	return faults
}

func (b *tab) keepScreenshot() {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	path := filepath.Join(os.TempDir(), strings.ReplaceAll(b.t.Name(), "/", "_")+".png")
	if err == nil && os.WriteFile(path, png, 0o644) == nil {
		b.t.Logf("a picture of the page is %s", path)
	}
}

// do runs an action, which must succeed.
func do[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("chromium: %v\n%s", err, strings.Join(b.forgive(), "\n"))
	}
	return value
}

// send sends a command of the protocol, which must succeed.
func send[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return do(b, func(ctx context.Context, to *chromedp.Target) (R, error) { return cdp.Call(ctx, to, command, params) })
}

// visit loads a page.
func (b *tab) visit(url string) {
	b.t.Helper()
	do(b, chromedp.Navigate(url))
}

// size makes the window so large, in CSS pixels.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	do(b, chromedp.EmulateViewport(width, height))
}

// phone makes it the screen of a small phone.
func (b *tab) phone() {
	b.t.Helper()
	do(b, chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch))
}

// theme makes the browser prefer dark or light.
func (b *tab) theme(name string) {
	b.t.Helper()
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// language makes the browser ask for a language.
func (b *tab) language(tag string) {
	b.t.Helper()
	send(b, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: tag})
	send(b, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: "stint-test", AcceptLanguage: tag})
}

// before runs a script in each document before its own.
func (b *tab) before(script string) {
	b.t.Helper()
	send(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
}

// eval returns what an expression of JavaScript is, after its promise is fulfilled.
func eval[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	raw := do(b, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err := json.Unmarshal(raw, &value); err != nil {
		b.t.Fatalf("%s is %s: %v", expression, raw, err)
	}
	return value
}

// is evaluates an expression, or its promise, which is not true while it throws, or if the page
// is left meanwhile.
func (b *tab) is(expression string) bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	expression = "(async () => !!(await (" + expression + ")))().catch(() => false)"
	raw, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err != nil && !strings.Contains(err.Error(), "navigated or closed") {
		b.t.Fatalf("chromium: %v\n%s", err, strings.Join(b.forgive(), "\n"))
	}
	return string(raw) == "true"
}

// until waits until an expression, or its promise, is true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		if b.is(expression) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: it does not happen. The page says:\n%s\n%s", what, eval[string](b, "document.body.innerText.slice(0, 3000)"), strings.Join(b.forgive(), "\n"))
		}
	}
}

// of is the expression of the visible element with a data-testid.
func of(id string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('[data-testid=%q]')].find(e => e.checkVisibility())`, id)
}

// see waits for the element with a data-testid and the texts in it.
func (b *tab) see(id string, texts ...string) {
	b.t.Helper()
	b.until("see "+id, of(id))
	for _, text := range texts {
		b.until(fmt.Sprintf("see %q in %s", text, id), fmt.Sprintf(`(%s?.textContent || "").includes(%q)`, of(id), text))
	}
}

// gone waits until no such element is visible.
func (b *tab) gone(id string) {
	b.t.Helper()
	b.until(id+" is gone", "!"+of(id))
}

// click clicks at the middle of the element with a data-testid, as a person does: what lies on
// top of it gets the click.
func (b *tab) click(id string) {
	b.t.Helper()
	b.clickAt(id, of(id))
}

// clickAt clicks at the middle of the element that an expression is.
func (b *tab) clickAt(what, expression string) {
	b.t.Helper()
	b.until("click "+what, fmt.Sprintf("(%s) && !(%s).disabled", expression, expression))
	type place struct{ X, Y float64 }
	at := eval[place](b, fmt.Sprintf(`(() => { const e = %s; e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2} })()`, expression))
	do(b, chromedp.MouseClickXY(at.X, at.Y))
}

// fill replaces what is in a field, by the keyboard.
func (b *tab) fill(id, text string) {
	b.t.Helper()
	b.see(id)
	eval[bool](b, fmt.Sprintf(`(() => { const e = %s; e.focus(); e.select(); return document.activeElement === e })()`, of(id)))
	if text == "" {
		b.press(kb.Delete)
		return
	}
	if strings.Contains(text, "\n") || len(text) > 200 {
		send(b, input.InsertText, input.InsertTextParams{Text: text})
		return
	}
	b.press(text)
}

// press presses keys.
func (b *tab) press(keys string) {
	b.t.Helper()
	do(b, chromedp.KeyEvent(keys))
}

// choose selects an option of a select element.
func (b *tab) choose(id, value string) {
	b.t.Helper()
	b.see(id)
	if !eval[bool](b, fmt.Sprintf(`(() => { const e = %s; e.value = %q; const has = e.value === %q; e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})); return has })()`, of(id), value, value)) {
		b.t.Fatalf("%s has no option %s", id, value)
	}
}

// text is what the page says.
func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, "document.body.innerText")
}
