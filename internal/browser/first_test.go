package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// slowCalls delays the answers of all calls but of the session, so that a page is seen before it
// has its data.
const slowCalls = `{
	const fetch = window.fetch;
	window.fetch = async (path, ...rest) => {
		const answer = await fetch(path, ...rest);
		if (!String(path).includes('session')) await new Promise((done) => setTimeout(done, 2500));
		return answer;
	};
}`

// What is empty is said after the server has said so, not before: while a page waits for its
// answers it must not tell that there is nothing.
func TestEmptyAfterAnswer(t *testing.T) {
	atLength(t)
	s := serve(t, loginRule)
	for _, page := range []string{"rules", "offenders", "bans", "alerts", "audit"} {
		b := open(t)
		b.before(slowCalls)
		b.before(`window.empties = 0; new MutationObserver(() => { if (!window.answered && document.querySelector('[data-testid=empty]')?.checkVisibility()) empties++ }).observe(document, {childList: true, subtree: true}); setTimeout(() => { window.answered = true }, 2400)`)
		b.visit(s.admin + "/#/" + page)
		b.see("page-" + page)
		b.until("the stream has told something", of("connection")+".dataset.state === 'live'")
		time.Sleep(1200 * time.Millisecond) // an event each second, which must not show it either
		if n := eval[int](b, "empties"); n != 0 {
			t.Errorf("%s: said to be empty before there was an answer: %s", page, b.text())
		}
	}
}

// A browser keeps pages that were left, to come back to them. They must not keep their streams,
// of which a browser allows six: the seventh page would never load.
func TestPagesThatWereLeft(t *testing.T) {
	atLength(t)
	s := serve(t, loginRule)
	b := open(t)
	for i := range 9 {
		b.visit(s.admin + "/")
		b.until(fmt.Sprintf("visit %d is live", i+1), of("connection")+".dataset.state === 'live'")
		b.visit("about:blank")
	}
	eval[bool](b, "(setTimeout(() => history.back()), true)")
	b.until("the page is live when the user comes back", `document.querySelector('[data-testid=connection]')?.dataset.state === 'live'`)
	at := eval[string](b, of("health")+".textContent")
	stop := load(t, s)
	defer stop()
	b.until("it goes on", fmt.Sprintf("%s.textContent !== %q", of("health"), at))
}

// The top of the overview names the rule that refuses, the key that is refused, and since when,
// and the ban is one click away.
func TestWhomItRefuses(t *testing.T) {
	atLength(t)
	// Without the penalty: who is banned already cannot be banned by the click.
	s := serve(t, strings.Replace(loginRule, "    penalty: {warn_after: 1, ban_after: 3, ban_for: 30m}\n", "", 1))
	b := open(t)
	b.visit(s.admin + "/")
	stop := load(t, s)
	defer stop()
	b.see("health", "Refusals began at", "Rule that refuses most: login", "Key that is refused most: 192.0.2.99", "100 %")
	b.click("btn-ban")
	b.see("dialog", "192.0.2.99", "under the rule login")
	b.fill("input-reason", "floods")
	b.click("btn-confirm")
	b.gone("dialog")
	b.click("nav-audit")
	b.see("row-0", "ban", "rule login, key 192.0.2.99", "floods")
	b.click("nav-overview")
	b.click("health-key")
	b.see("key", "192.0.2.99")
}
