package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/stintdev/stint/internal/redistest"
)

// places are all pages and their parts, by the fragment of the URL.
var places = []string{
	"overview", "rules", "rules?rule=login", "rules/edit", "rules/versions", "keys", "keys?rule=login&key=192.0.2.1",
	"offenders", "offenders?of=clients&by=violations", "bans", "bans/blocklist", "bans/safelist", "bans/overrides", "alerts", "audit", "try",
}

// at goes to a place of the page that is loaded already, and waits until it has its data.
func (b *tab) at(place string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf("(location.hash = %q, true)", "#/"+place))
	name, _, _ := strings.Cut(strings.ReplaceAll(place, "/", "?"), "?")
	b.see("page-" + name)
	b.settle()
}

// settle waits until the page has a heading, and no call of it is under way for a moment.
func (b *tab) settle() {
	b.t.Helper()
	b.until("the page has its data", `!!document.querySelector('main h1') && new Promise(done => {
		let quiet = 0;
		const look = () => {
			quiet = underWay ? 0 : quiet + 1;
			if (quiet === 4) done(true);
			else setTimeout(look, 25);
		};
		look();
	})`)
}

// fleetRules is a configuration of a fleet that takes its rules from the store.
const fleetRules = "server: {rules: fleet}" + loginRule

// busy is an instance of a fleet with a Redis, on which every page has something to show.
func busy(t *testing.T) (*instance, *redistest.Server) {
	redis := redistest.Start(t)
	s := serve(t, fleetRules, "--store", redis.URL())
	s.fill()
	return s, redis
}

// fill makes something for every page to show.
func (s *instance) fill() {
	s.t.Helper()
	s.must(200, "PUT", "/v1/rules", map[string]any{"text": strings.TrimSpace(loginRule), "after": 0, "note": "first"})
	s.must(200, "PUT", "/v1/rules", map[string]any{"text": strings.TrimSpace(loginRule) + "\n# second\n", "after": 1, "note": "second"})
	for i := range 6 {
		for range 3 + i {
			s.ask(login(fmt.Sprintf("192.0.2.%d", i)))
		}
	}
	s.must(201, "POST", "/v1/bans", map[string]any{"network": "203.0.113.0/24", "for": "1h", "reason": "flood"})
	s.must(201, "POST", "/v1/bans", map[string]any{"rule": "login", "key": "198.51.100.7", "reason": "tries passwords"})
	s.must(201, "POST", "/v1/overrides", map[string]any{"rule": "login", "key": "192.0.2.1", "times": 2, "for": "1h", "reason": "customer"})
	s.must(201, "POST", "/v1/lists/blocklist", map[string]any{"network": "198.51.100.0/28", "reason": "scanner"})
	s.must(201, "POST", "/v1/lists/safelist", map[string]any{"match": `client.ip == "192.0.2.200"`, "reason": "probe"})
}

// Every page has a heading and its data, in English on a laptop and in Chinese on a phone, in
// light and in dark. axe-core finds nothing, and nothing is wider than the screen.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	s, _ := busy(t)
	for _, c := range []struct {
		name, theme, language string
		phone                 bool
	}{
		{"laptop", "light", "en", false},
		{"phone", "dark", "zh", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.theme(c.theme)
			b.language(c.language)
			if c.phone {
				b.phone()
			}
			b.visit(s.admin + "/")
			b.see("page-overview")
			for _, place := range places {
				b.at(place)
				if eval[int](b, "document.querySelectorAll('h1').length") != 1 {
					t.Errorf("%s: it has not one heading", place)
				}
				if problem := eval[string](b, of("problem")+"?.textContent ?? ''"); problem != "" {
					t.Errorf("%s: a problem: %s", place, problem)
				}
				if lang := eval[string](b, "document.documentElement.lang"); !strings.HasPrefix(lang, c.language) {
					t.Errorf("%s: it is in %s, want %s", place, lang, c.language)
				}
				if title := eval[string](b, "document.title"); !strings.HasSuffix(title, "Stint") {
					t.Errorf("%s: title %s", place, title)
				}
				b.fits(place)
				b.accessible(place)
			}
		})
	}
}

// fits reports what is wider than the screen.
func (b *tab) fits(where string) {
	b.t.Helper()
	for _, wide := range eval[[]string](b, `(() => {
		const wide = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= wide) return [];
		return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > wide + 1).slice(0, 5)
			.map(e => e.tagName + '.' + e.className + ' ends at ' + Math.round(e.getBoundingClientRect().right) + ' of ' + wide);
	})()`) {
		b.t.Errorf("%s: wider than the screen: %s", where, wide)
	}
}

// On a phone the menu opens and closes, and leads to the pages.
func TestPhone(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.phone()
	b.visit(s.admin + "/")
	b.see("page-overview")
	b.gone("nav-rules")
	b.click("btn-menu")
	b.accessible("the open menu")
	b.click("nav-rules")
	b.see("page-rules")
	b.gone("nav-bans")
}

// Where there is nothing yet, each page says what would be there, and how.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules: []")
	b := open(t)
	b.visit(s.admin + "/")
	b.see("page-overview")
	for _, place := range places {
		if strings.Contains(place, "?rule=") {
			continue
		}
		b.at(place)
		if place != "try" && place != "overview" && place != "rules/edit" {
			b.until(place+" says that it is empty", "!!"+of("empty"))
		}
		if problem := eval[string](b, of("problem")+"?.textContent ?? ''"); problem != "" {
			t.Errorf("%s: a problem: %s", place, problem)
		}
		if !testing.Short() {
			b.accessible(place)
		}
	}
}

// The whole page can be used by keyboard: the first link skips the navigation, a page that is
// opened has the focus at its heading, and a dialog gives the focus back.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.visit(s.admin + "/")
	b.see("page-overview")
	b.press(kb.Tab)
	b.until("the first stop is the link", "document.activeElement.className === 'skip'")
	b.press(kb.Enter)
	b.until("the link skips to the page", "document.activeElement.id === 'main'")
	eval[bool](b, of("nav-bans")+".focus() ?? true")
	b.press(kb.Enter)
	b.see("page-bans")
	b.until("the heading has the focus", "document.activeElement.tagName === 'H1'")
	eval[bool](b, of("btn-ban")+".focus() ?? true")
	b.press(kb.Enter)
	b.see("dialog")
	b.accessible("a dialog")
	for range 12 { // the focus stays in the dialog, or goes to the browser's own buttons
		b.press(kb.Tab)
		if !eval[bool](b, "document.activeElement === document.body || !!document.activeElement.closest('dialog')") {
			t.Fatalf("the focus left the dialog for %s", eval[string](b, "document.activeElement.outerHTML"))
		}
	}
	b.press(kb.Escape)
	b.gone("dialog")
	b.until("the button has the focus again", "document.activeElement.dataset.testid === 'btn-ban'")
}

// The language and the theme that the user chooses stay, and a change needs no reload.
func TestChoices(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.visit(s.admin + "/")
	b.see("page-overview")
	english := eval[string](b, of("nav-rules")+".textContent")
	b.choose("select-language", "zh")
	b.until("Chinese", fmt.Sprintf("%s?.textContent !== %q && document.documentElement.lang.startsWith('zh')", of("nav-rules"), english))
	b.choose("select-theme", "dark")
	dark := eval[string](b, "getComputedStyle(document.documentElement).backgroundColor")
	b.visit(s.admin + "/#/rules")
	b.see("page-rules")
	if got := eval[string](b, "getComputedStyle(document.documentElement).backgroundColor + document.documentElement.lang.slice(0, 2)"); got != dark+"zh" {
		t.Errorf("loaded again: %s, want %szh", got, dark)
	}
	b.choose("select-theme", "light")
	if light := eval[string](b, "getComputedStyle(document.documentElement).backgroundColor"); light == dark {
		t.Errorf("light is %s, and so is dark", light)
	}
	stored := eval[string](b, "Object.keys(localStorage).join()")
	if parsed, err := url.PathUnescape(stored); err != nil || len(parsed) > 100 {
		t.Errorf("localStorage has %s", stored)
	}
}

// A key with characters that turn the text around it is shown with escapes, and an address that is no
// page leads to the first.
func TestHiddenCharacters(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules: [{name: login, key: attrs.user, limits: [5 per 1m], penalty: {ban_after: 5, ban_for: 1h}}]")
	s.must(201, "POST", "/v1/bans", map[string]any{"rule": "login", "key": "an\u202en\u200b", "for": "1h"})
	b := open(t)
	b.visit(s.admin + "/#/%")
	b.see("page-overview")
	b.at("bans")
	b.until("the key is shown", `document.body.innerText.includes('an\\u202en\\u200b')`)
	if turned := eval[bool](b, `/[\u202e\u200b]/.test(document.body.innerText)`); turned {
		t.Errorf("the text is turned:\n%s", b.text())
	}
}
