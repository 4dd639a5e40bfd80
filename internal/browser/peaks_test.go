package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// 25 clients come 1 to 25 times. A slider over their peaks shows who is above an amount, and writes the amount into
// the text, also for a user who may not push it.
func TestSliderOfAmounts(t *testing.T) {
	t.Parallel()
	s := serve(t, guarded)
	var checks []map[string]any
	for i := 1; i <= 25; i++ {
		for range i {
			checks = append(checks, login(fmt.Sprintf("192.0.2.%d", i)))
		}
	}
	s.askAtOnce(checks)
	const edited = "rules:\n  - {name: 'login', match: operation == \"login\", key: client.ip, limits: [10 per 1m, 500 per 100ms]}\n  - {name: all, key: client.ip, limits: [9 per 1m burst 3]}\n"
	b := open(t)
	b.theme("dark")
	b.signIn(s, readToken)
	b.at("rules/edit")
	b.fill("editor", edited)
	b.click("btn-preview")
	b.see("peaks", "10 per 1m", "Only the last", "the period is 1 m")
	above := func(text, share, highest string) {
		t.Helper()
		b.see("above", share)
		if said := eval[string](b, of("slider")+".getAttribute('aria-valuetext')"); !strings.HasPrefix(said, text+": "+share) {
			t.Errorf("the slider says %q, want %s: %s", said, text, share)
		}
		if highest == "" {
			b.gone("peak-0")
		} else {
			b.see("peak-0", highest)
		}
	}
	above("10 per 1m", "15 of 25 keys above it (60 %)", "192.0.2.25")
	b.until("its own number is no change", of("btn-use")+".disabled")
	b.settle()
	b.accessible("the slider")
	eval[bool](b, "("+of("slider")+".focus(), true)")
	b.press(kb.ArrowRight + kb.ArrowRight + kb.ArrowUp)
	above("13 per 1m", "12 of 25 keys above it (48 %)", "192.0.2.25")
	b.press(kb.End)
	above("25 per 1m", "0 of 25 keys above it (0 %)", "")
	b.press(kb.ArrowLeft)
	above("24 per 1m", "1 of 25 keys above it (4.0 %)", "192.0.2.25")

	// What was typed since is not overwritten.
	b.fill("editor", "# a line\n"+edited)
	b.until("the number may stand elsewhere", of("btn-use")+".disabled")
	b.see("peaks", "The text has changed since")
	b.fill("editor", edited)
	b.click("btn-use")
	changed := strings.Replace(edited, "10 per 1m", "24 per 1m", 1)
	b.until("the text has the number", fmt.Sprintf("%s.value === %q", of("editor"), changed))
	b.see("peaks", "In the text: 24")
	above("24 per 1m", "1 of 25 keys above it (4.0 %)", "192.0.2.25")
	b.until("the slider has the focus", "document.activeElement === "+of("slider"))
	b.until("it was checked", of("check")+".textContent.includes('valid')")

	b.choose("select-limit", `["login",null,1]`)
	b.see("peaks", "500 per 100ms")
	b.click("btn-suggested")
	b.until("the slider is where the button says", fmt.Sprintf("%s.textContent.endsWith(': ' + /^\\d+/.exec(%s.getAttribute('aria-valuetext'))[0])", of("btn-suggested"), of("slider")))
	b.choose("select-limit", `["all",null,0]`)
	b.see("unmeasured", "burst")
	b.accessible("a limit that is not measured")

	b = open(t)
	b.language("zh")
	b.theme("light")
	b.phone()
	b.signIn(s, writeToken)
	b.at("rules/edit")
	b.fill("editor", edited)
	b.click("btn-preview")
	b.see("above", "25 个键中有 15 个超过")
	b.settle()
	b.fits("the slider on a phone")
	b.accessible("the slider on a phone")
}
