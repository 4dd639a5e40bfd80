package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// answers reports the statuses of checks as a text such as "200 429".
func (s *instance) answers(checks ...map[string]any) string {
	s.t.Helper()
	return strings.Trim(fmt.Sprint(s.ask(checks...)), "[]")
}

// A rule is switched to shadow mode and back. The server obeys, the audit log knows who and why,
// and a second page shows it by itself.
func TestSwitchRule(t *testing.T) {
	t.Parallel()
	s := serve(t, guarded)
	b, other := open(t), open(t)
	for _, page := range []*tab{b, other} {
		page.signIn(s, writeToken)
		page.at("rules")
		page.see("mode-login")
	}
	four := []map[string]any{login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1")}
	if got := s.answers(four...); got != "200 200 200 429" {
		t.Fatalf("at first: %s", got)
	}
	b.choose("mode-login", "shadow")
	b.see("dialog")
	b.fill("input-reason", "refuses the new app")
	b.click("btn-confirm")
	b.see("toast")
	b.gone("dialog")
	b.until("shadow", of("mode-login")+".value === 'shadow'")
	if got := s.answers(four...); got != "200 200 200 200" {
		t.Errorf("in shadow mode: %s", got)
	}
	other.until("the other page shows it", of("mode-login")+".value === 'shadow'")
	b.at("audit")
	b.until("the audit log has it", fmt.Sprintf("%s.textContent.includes('refuses the new app') && %s.textContent.includes('ops')", of("page-audit"), of("page-audit")))

	b.at("rules")
	b.choose("mode-login", "file")
	b.see("dialog")
	b.press(kb.Escape) // not after all
	b.gone("dialog")
	if got := s.answers(four...); got != "200 200 200 200" {
		t.Errorf("after a dialog that was closed: %s", got)
	}
	b.choose("mode-login", "file")
	b.click("btn-confirm")
	b.until("enforce", of("mode-login")+".value === 'enforce'")
	if got := s.answers(four[0]); got != "429" {
		t.Errorf("as the file says: %s", got)
	}
	b.click("btn-kill")
	b.see("dialog")
	b.click("btn-confirm")
	b.see("btn-unkill")
	if got := s.answers(four[0]); got != "200" {
		t.Errorf("with the kill switch: %s", got)
	}
	b.at("overview")
	b.see("health")
	b.until("the overview says so", of("health")+".querySelector('.good') === null")
}

// A key is banned and lifted, by hand, from the list of bans.
func TestBanAndLift(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.visit(s.admin + "/#/bans")
	b.see("btn-ban")
	b.click("btn-ban")
	b.see("dialog")
	b.choose("input-rule", "login")
	b.fill("input-key", "192.0.2.7")
	b.fill("input-for", "never")
	b.fill("input-reason", "tries passwords")
	b.click("btn-confirm")
	b.see("problem", "for") // the server's words about the field
	b.fill("input-for", "2h")
	b.click("btn-confirm")
	b.gone("dialog")
	b.see("row-0", "192.0.2.7", "login", "tries passwords")
	if got := s.answers(login("192.0.2.7"), login("192.0.2.8")); got != "429 200" {
		t.Errorf("banned: %s", got)
	}
	b.click("btn-lift")
	b.see("dialog")
	b.fill("input-reason", "a mistake")
	b.press(kb.Enter)
	b.gone("dialog")
	b.gone("row-0")
	if got := s.answers(login("192.0.2.7")); got != "200" {
		t.Errorf("lifted: %s", got)
	}
	for range 6 { // a penalty bans it
		s.ask(login("192.0.2.7"))
	}
	b.see("row-0", "192.0.2.7", "login")
	b.click("btn-lift")
	b.click("btn-confirm")
	b.gone("row-0")
	if answer := s.must(200, "GET", "/v1/bans", nil); !strings.Contains(answer, `"by_penalty":[]`) && !strings.Contains(answer, `"by_penalty":null`) {
		t.Errorf("lifted: %s", answer)
	}
}

// Keys are found by a part of them, over all rules, and lead to their pages.
func TestSearchKeys(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	s.answers(login("192.0.2.17"), login("192.0.2.18"), login("198.51.100.1"))
	b := open(t)
	b.visit(s.admin + "/#/keys")
	b.see("input-key")
	b.fill("input-key", "2.0.2.1")
	b.click("btn-find")
	b.see("key", "192.0.2.17", "192.0.2.18", "login")
	b.until("nothing else", "!"+of("key")+".textContent.includes('198.51')")
	b.settle()
	b.accessible("keys that were found")
	b.clickAt("a key", of("key")+".querySelector('a.mono')")
	b.see("btn-reset")
	b.see("key", "Refusals by the hour")
	b.visit(s.admin + "/#/keys?key=nobody")
	b.see("key", "No key found")
}

// A key is found, its limit drains while the page is open, and it is reset, refunded and
// overridden from there.
func TestKey(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.visit(s.admin + "/#/keys")
	b.see("input-key")
	b.choose("input-rule", "login")
	b.fill("input-key", "192.0.2.1")
	b.click("btn-find")
	b.see("key", "192.0.2.1")
	b.see("btn-reset")
	before := eval[string](b, of("key")+".innerText")
	if got := s.answers(login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1")); got != "200 200 200 429" {
		t.Fatal(got)
	}
	b.until("it shows what was used", fmt.Sprintf("%s.innerText !== %q", of("key"), before))
	b.click("btn-refund")
	b.fill("input-cost", "2")
	b.fill("input-reason", "an export failed")
	b.click("btn-confirm")
	b.gone("dialog")
	if got := s.answers(login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1")); got != "200 200 429" {
		t.Errorf("after 2 were refunded: %s", got)
	}
	b.click("btn-reset")
	b.click("btn-confirm")
	b.gone("dialog")
	if got := s.answers(login("192.0.2.1")); got != "200" {
		t.Errorf("after the reset: %s", got)
	}
	b.click("btn-override")
	b.fill("input-times", "2")
	b.click("btn-confirm")
	b.gone("dialog")
	if got := s.answers(login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1"), login("192.0.2.1")); got != "200 200 200 200 200 429" {
		t.Errorf("with twice the limit: %s", got)
	}
}

// Rules with a mistake are not pushed: the page names the line and leads there. When they are
// right, they are pushed, in force, and can be rolled back.
func TestEdit(t *testing.T) {
	t.Parallel()
	s, _ := busy(t)
	b := open(t)
	b.visit(s.admin + "/#/rules/edit")
	b.see("editor")
	b.see("check")
	first := eval[string](b, of("editor")+".value")
	wrong := strings.Replace(first, "3 per 1h fixed_window", "3 per 1h fixed_windo", 1)
	if wrong == first {
		t.Fatalf("the editor has %s", first)
	}
	b.fill("editor", wrong)
	b.see("mistakes", "fixed_windo")
	b.until("it cannot be pushed", of("btn-push")+".disabled")
	b.accessible("the editor with a mistake")
	b.click("btn-mistake-0")
	line := eval[string](b, `(() => { const e = document.activeElement; return e.value.slice(0, e.selectionStart).split('\n').length + ': ' + e.value.split('\n')[e.value.slice(0, e.selectionStart).split('\n').length - 1] })()`)
	if !strings.Contains(line, "fixed_windo") {
		t.Errorf("the mistake is said to be at line %s", line)
	}
	b.fill("editor", strings.Replace(first, "3 per 1h fixed_window", "1 per 1h fixed_window", 1))
	b.gone("mistakes")
	b.click("btn-diff")
	b.see("diff", "1 per 1h fixed_window")
	b.at("bans")       // what was typed is not lost
	b.at("rules/edit") //
	b.see("editor")
	b.until("the draft is there", fmt.Sprintf("%s.value.includes('1 per 1h')", of("editor")))
	b.click("btn-push")
	b.see("dialog")
	b.fill("input-note", "one is enough")
	b.click("btn-confirm")
	b.gone("dialog")
	if got := s.answers(login("192.0.2.77"), login("192.0.2.77")); got != "200 429" {
		t.Errorf("under the new rules: %s", got)
	}
	b.at("rules/versions")
	b.see("row-0", "one is enough")
	b.click("btn-rollback-2")
	b.see("dialog")
	b.click("btn-confirm")
	b.gone("dialog")
	if got := s.answers(login("192.0.2.78"), login("192.0.2.78"), login("192.0.2.78"), login("192.0.2.78")); got != "200 200 200 429" {
		t.Errorf("rolled back: %s", got)
	}
}

// Rules that somebody else has pushed meanwhile are not overwritten.
func TestEditRace(t *testing.T) {
	t.Parallel()
	s, _ := busy(t)
	b := open(t)
	b.visit(s.admin + "/#/rules/edit")
	b.see("editor")
	text := eval[string](b, of("editor")+".value")
	b.fill("editor", text+"\n# mine\n")
	s.must(200, "PUT", "/v1/rules", map[string]any{"text": text + "\n# theirs\n", "after": 2, "note": "theirs"})
	b.click("btn-push")
	b.click("btn-confirm")
	b.see("problem")
	if newest := s.must(200, "GET", "/v1/rules/versions/3", nil); !strings.Contains(newest, "theirs") {
		t.Errorf("version 3 is %s", newest)
	}
	b.press(kb.Escape)
	b.until("what was typed is there", fmt.Sprintf("%s.value.includes('# mine')", of("editor")))
}

// A request that is pasted, as a command of curl, is explained without being charged.
func TestTryIt(t *testing.T) {
	t.Parallel()
	s := serve(t, `
rules:
  - name: login
    match: request.method == "POST" && request.path.is("/login")
    key: client.ip
    limits: [1 per 1h fixed_window]
`)
	b := open(t)
	b.visit(s.admin + "/#/try")
	b.fill("input-paste", "curl -X POST http://shop.example/login -H 'User-Agent: test'\n")
	b.until("it is read", of("input-method")+".value === 'POST' && "+of("input-path")+".value === '/login'")
	b.click("btn-explain")
	b.see("outcome", "cannot tell", "client.ip")
	b.fill("input-paste", "curl --frobnicate http://shop.example/other\n")
	b.see("parsed", "--frobnicate")
	b.until("what was read stays", of("input-path")+".value === '/login'")
	b.fill("input-client", "192.0.2.1")
	for range 2 { // it is not charged
		b.click("btn-explain")
		b.see("outcome")
		b.see("explanation", "login")
		b.see("outcome", "llowed")
	}
	check := map[string]any{"client": "192.0.2.1", "request": map[string]any{"method": "POST", "path": "/login", "host": "shop.example"}}
	if got := s.answers(check, check); got != "200 429" {
		t.Fatal(got)
	}
	b.click("btn-explain")
	b.see("outcome", "imited")
	b.fill("input-client", "nobody")
	b.click("btn-explain")
	b.see("problem", "client")
	b.accessible("an explanation that failed")
}

// The worst key is named with what it was refused, and banned from there.
func TestOffenders(t *testing.T) {
	t.Parallel()
	s := serve(t, strings.Replace(loginRule, "ban_after: 3", "ban_after: 30", 1))
	for range 20 {
		s.ask(login("192.0.2.66"))
	}
	s.ask(login("192.0.2.67"))
	b := open(t)
	b.visit(s.admin + "/#/offenders")
	b.see("row-0", "192.0.2.66", "login", "17")
	b.gone("row-1")             // the other was not refused
	choose := func(id string) { // the page is made anew with what was chosen
		t.Helper()
		b.click(id)
		b.until(id+" is chosen", of(id)+".getAttribute('aria-pressed') === 'true'")
		b.settle()
	}
	choose("btn-by-use")
	b.until("both have used something", of("row-0")+".textContent.includes('192.0.2.66') && "+of("row-1")+".textContent.includes('192.0.2.67')")
	choose("btn-of-clients")
	b.see("row-0", "192.0.2.66")
	choose("btn-of-keys")
	choose("btn-by-refusals")
	b.see("row-0", "17")
	b.clickAt("ban the worst", of("row-0")+".querySelector('[data-testid=btn-ban]')")
	b.fill("input-for", "1h")
	b.fill("input-reason", "tries passwords")
	b.click("btn-confirm")
	b.gone("dialog")
	s.must(200, "POST", "/v1/keys/reset", map[string]any{"rule": "login", "key": "192.0.2.66"})
	if got := s.answers(login("192.0.2.66"), login("192.0.2.67")); got != "429 200" {
		t.Errorf("banned: %s", got)
	}
	b.see("row-0", "192.0.2.66", "banned")
	b.clickAt("lift the ban", of("row-0")+".querySelector('[data-testid=btn-lift]')")
	b.click("btn-confirm")
	b.gone("dialog")
	b.until("nobody is banned", "!"+of("row-0")+".textContent.includes('banned') && !!"+of("row-0")+".querySelector('[data-testid=btn-ban]')")
	if got := s.answers(login("192.0.2.66")); got != "200" {
		t.Errorf("lifted: %s", got)
	}
}

// An alert that fires is shown on its page and at the navigation, and is silenced and heard again
// from there.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule+`
alerts:
  - {name: refusals, when: 'rate("login", "refused") > 0.1', window: 10s, severity: critical, message: "<b>look</b>"}
  - {name: quota, when: usage > 50% of login}
`)
	b := open(t)
	b.visit(s.admin + "/#/alerts")
	b.see("page-alerts", "refusals", "quota")
	load(t, s)
	b.until("it fires", fmt.Sprintf("%s.querySelector('.badge')?.textContent === '1'", of("nav-alerts")))
	b.until("the key that used most of its limit is named", fmt.Sprintf("%s.textContent.includes('192.0.2.99')", of("page-alerts")))
	b.see("page-alerts", "Last firings", "<b>look</b>", `rate("login", "refused")`)
	b.settle()
	b.accessible("an alert that fires")
	b.clickAt("silence refusals", `[...document.querySelectorAll('tr')].find(e => e.textContent.includes('critical')).querySelector('[data-testid=btn-silence]')`)
	b.see("dialog")
	b.fill("input-for", "1h")
	b.fill("input-reason", "known")
	b.click("btn-confirm")
	b.gone("dialog")
	b.see("silence-0", "refusals", "known")
	if answer := s.must(200, "GET", "/v1/silences", nil); !strings.Contains(answer, `"alert":"refusals"`) {
		t.Errorf("silences: %s", answer)
	}
	b.click("btn-unsilence")
	b.click("btn-confirm")
	b.gone("dialog")
	b.gone("silence-0")
}
