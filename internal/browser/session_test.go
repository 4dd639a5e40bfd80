package browser

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/stintdev/stint/internal/redistest"
)

// The harness: a page of the instance is shown, and what goes wrong in it is noticed.
func TestHarness(t *testing.T) {
	s := serve(t, "rules: []")
	b := open(t)
	b.visit(s.admin + "/v1/status")
	b.until("the status", `document.body.innerText.includes('"program"')`)
	eval[bool](b, "(setTimeout(() => { throw new Error('on purpose') }), console.error('told'), true)")
	b.until("a moment later", "new Promise(done => setTimeout(() => done(true)))")
	if faults := b.forgive(); len(faults) != 2 {
		t.Errorf("%q, want two faults", faults)
	}
}

const loginRule = `
rules:
  - name: login
    match: operation == "login"
    key: client.ip
    limits: [3 per 1h fixed_window]
    penalty: {warn_after: 1, ban_after: 3, ban_for: 30m}
`

// guarded is a configuration by which the dashboard asks for a token.
const guarded = "server:" + withTokens + loginRule

// signIn opens the page and signs in with a token.
func (b *tab) signIn(s *instance, token string) {
	b.t.Helper()
	b.visit(s.admin + "/")
	b.see("page-signin")
	b.fill("input-token", token)
	b.press(kb.Enter)
	b.gone("page-signin")
	b.see("page-overview")
}

// kept is what a script of the page can find of the token: in storage, cookies, the URL, the
// history, and the page itself.
const kept = `JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state,
	document.documentElement.outerHTML, [...document.querySelectorAll('input')].map(e => e.value), performance.getEntriesByType('resource').map(e => e.name)])`

// Where the settings have tokens, the page asks for one, and keeps it nowhere. A wrong one is
// refused, and the session ends by the user's wish or with the token.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := serve(t, guarded)
	b := open(t)
	b.visit(s.admin + "/")
	b.see("page-signin")
	eval[bool](b, "(location.hash = '#/bans', location.hash = '#/overview', true)") // the user goes back and forth
	b.fill("input-token", "geheim-wrong-0123456789")
	b.press(kb.Enter)
	b.see("signin-wrong")
	b.fill("input-token", writeToken)
	b.click("btn-signin")
	b.gone("page-signin")
	b.see("page-overview")
	if found := eval[string](b, kept); strings.Contains(found, "geheim") || strings.Contains(found, "stint-session") {
		t.Errorf("a script of the page finds the token or the session: %.2000s", found)
	}
	b.visit(s.admin + "/") // the session goes on
	b.see("page-overview")
	b.see("btn-signout")
	if text := b.text(); !strings.Contains(text, "ops") {
		t.Errorf("the page does not say who is signed in:\n%s", text)
	}
	other := open(t) // another browser has no part in it
	other.visit(s.admin + "/")
	other.see("page-signin")

	b.click("btn-signout")
	b.see("page-signin")
	if log := s.text(); strings.Contains(log, "geheim") || !strings.Contains(log, `msg="signed in" who=ops`) || !strings.Contains(log, `msg="signed out" who=ops`) {
		t.Errorf("the log:\n%s", log)
	}
}

// When the token of a session is changed, the page asks for the new one, and what the user was
// doing goes on after it.
func TestExpiredToken(t *testing.T) {
	atLength(t)
	s := serve(t, guarded)
	b := open(t)
	b.signIn(s, writeToken)
	const next = "geheim-next-0123456789abcdef"
	s.write("ops.token", next)
	s.reload()
	b.see("page-signin")
	b.see("signin-ended")
	b.fill("input-token", writeToken)
	b.press(kb.Enter)
	b.see("signin-wrong")
	b.fill("input-token", next)
	b.press(kb.Enter)
	b.gone("page-signin")
	b.see("page-overview")
}

// A read token shows all that a write token shows, and has nothing to press that changes
// something.
func TestReadOnly(t *testing.T) {
	atLength(t)
	s := serve(t, "server:\n  rules: fleet"+withTokens+loginRule, "--store", redistest.Start(t).URL())
	s.fill()
	seen := map[string]map[string]bool{}
	atPlace := map[string][]string{} // by the token before
	visible := func(b *tab) []string {
		return eval[[]string](b, "[...document.querySelectorAll('[data-testid]')].filter(e => e.checkVisibility()).map(e => e.dataset.testid)")
	}
	hasAll := func(all, some []string) bool {
		return !slices.ContainsFunc(some, func(id string) bool { return !slices.Contains(all, id) })
	}
	for _, token := range []string{readToken, writeToken} {
		b := open(t)
		b.signIn(s, token)
		seen[token] = map[string]bool{}
		for _, place := range places {
			b.at(place)
			now := visible(b)
			for end := time.Now().Add(patience); token == writeToken && !hasAll(now, atPlace[place]) && time.Now().Before(end); now = visible(b) {
				time.Sleep(50 * time.Millisecond) // a busy server answers late
			}
			for _, id := range now {
				seen[token][id] = true
			}
			atPlace[place] = now
		}
		if token == readToken {
			b.see("btn-signout") // the page knows who it is
		}
	}
	var only []string
	for id := range seen[writeToken] {
		if !seen[readToken][id] {
			only = append(only, id)
		}
	}
	slices.Sort(only)
	want := []string{"btn-add-entry", "btn-add-override", "btn-ban", "btn-kill", "btn-lift", "btn-override", "btn-push", "btn-refund", "btn-remove", "btn-reset", "btn-rollback-1", "mode-login"}
	for _, id := range want {
		if !slices.Contains(only, id) {
			t.Errorf("%s is there with a read token, or not with a write token", id)
		}
	}
	for id := range seen[readToken] {
		if !seen[writeToken][id] {
			t.Errorf("%s is there with a read token alone", id)
		}
	}
	for _, id := range only {
		if !strings.HasPrefix(id, "btn-") && !strings.HasPrefix(id, "mode-") {
			t.Errorf("a read token does not show %s", id)
		}
	}
}
