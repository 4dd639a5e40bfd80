package browser

import (
	"fmt"
	"strings"
	"testing"
)

// What an alert is about, and its value, can be read on a phone, and one about keys that has fired does
// not say that all is well.
func TestAlertsOnPhone(t *testing.T) {
	t.Parallel()
	s := shown(t)
	b := looks[0].open(t, s)
	b.at("alerts")
	b.see("row-0", "login-quota", "usage > 30% of login", "fired (6)", "33 %")
	b.see("row-1", "login-refusals", `block_rate("login") > 0.1 && rate("login", "refused") > 0.5`)
	if text := eval[string](b, of("row-0")+".cells[0].innerText"); strings.Contains(text, "ok") {
		t.Errorf("it has fired, and is %s", text)
	}
	for _, cut := range eval[[]string](b, `[...document.querySelectorAll('[data-testid=row-0] *, [data-testid=row-1] *')].filter(e => e.checkVisibility()
		&& (e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth && e.clientWidth > 0)).map(e => e.outerHTML)`) {
		t.Errorf("it is cut off: %s", cut)
	}
}

// The overview offers to lift the ban of a key that is banned, by hand or by penalty, and to ban others.
func TestLiftOnOverview(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	for i, n := range []int{4, 6, 4} { // of which the second is banned by penalty
		for range n {
			s.ask(login(fmt.Sprintf("192.0.2.%d", i)))
		}
	}
	s.must(201, "POST", "/v1/bans", map[string]any{"rule": "login", "key": "192.0.2.2", "for": "1h"})
	b := open(t)
	b.visit(s.admin + "/")
	row := func(key string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('tr')].find(e => e.innerText.includes(%q))`, key)
	}
	for key, banned := range map[string]bool{"192.0.2.0": false, "192.0.2.1": true, "192.0.2.2": true} {
		b.until(fmt.Sprintf("%s banned: %t", key, banned), fmt.Sprintf(`%[1]s.innerText.includes('banned') === %[2]t && !!%[1]s.querySelector('[data-testid=btn-%[3]s]')`,
			row(key), banned, map[bool]string{true: "lift", false: "ban"}[banned]))
	}
	b.accessible("with banned keys")
	b.clickAt("lift", row("192.0.2.2")+".querySelector('[data-testid=btn-lift]')")
	b.click("btn-confirm")
	b.gone("dialog")
	b.until("it can be banned again", "!!"+row("192.0.2.2")+".querySelector('[data-testid=btn-ban]')")
}

// The sentence at the top and the tiles have the same numbers, of the same seconds, which both say.
func TestOneWindow(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	load(t, s)
	b := open(t)
	b.visit(s.admin + "/")
	b.until("both say of how many seconds they are", of("health")+`.innerText.includes('in the last 10 s') && `+of("tile-decisions")+`.parentNode.innerText.includes('last 10 s')`)
	for range 5 {
		at := eval[[]string](b, fmt.Sprintf(`[%s.innerText, %s.innerText, %s.innerText]`, of("health"), of("tile-decisions"), of("tile-refused")))
		if !strings.Contains(at[0], " "+at[1]+" requests per second") || !strings.Contains(at[0], " "+at[2]+" refused") {
			t.Errorf("%q, and the tiles say %q and %q", at[0], at[1], at[2])
		}
		b.until("another second", fmt.Sprintf(`%s.innerText !== %q`, of("tile-decisions"), at[1]))
	}
}

// Each outcome that refuses looks different without its colour, in light and in dark: the lines in it
// can be told from what is between them.
func TestOutcomesDifferWithoutColour(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	for _, theme := range []string{"light", "dark"} {
		b := open(t)
		b.theme(theme)
		b.visit(s.admin + "/")
		b.see("outcomes")
		patterns := eval[map[string]string](b, `Object.fromEntries(['limited', 'warned', 'banned', 'blocked', 'undecided'].map(name => {
			const e = document.createElement('i');
			e.className = 'swatch ' + name;
			document.querySelector('[data-testid=outcomes]').append(e);
			return [name, getComputedStyle(e).backgroundImage.replace(/rgba?\([^)]*\)/g, 'C')];
		}))`)
		seen := map[string]string{}
		for name, pattern := range patterns {
			if other := seen[pattern]; other != "" {
				t.Errorf("%s: %s looks like %s: %s", theme, name, other, pattern)
			}
			seen[pattern] = name
		}
		for name, contrast := range eval[map[string]float64](b, `Object.fromEntries(['warned', 'banned', 'blocked', 'undecided'].map(name => {
			const light = (of) => {
				const n = parseInt(getComputedStyle(document.documentElement).getPropertyValue('--' + of + '-' + name).trim().slice(1), 16);
				return [n >> 16, n >> 8 & 255, n & 255].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
					.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0) + 0.05;
			};
			return [name, Math.max(light('o') / light('f'), light('f') / light('o'))];
		}))`) {
			if contrast < 2 {
				t.Errorf("%s: the lines of %s have a contrast of %.1f", theme, name, contrast)
			}
		}
	}
}

// The button that lets everything pass has the colour of danger and not that of other buttons.
func TestKillSwitchLooksDangerous(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.visit(s.admin + "/#/rules")
	b.see("btn-kill")
	b.until("it looks dangerous", `getComputedStyle(`+of("btn-kill")+`).color === getComputedStyle(Object.assign(document.body.appendChild(document.createElement('p')), {className: 'bad'})).color`)
}

// A limit of any algorithm is drawn empty when nothing of it is used, and full when nothing is left.
func TestDrawings(t *testing.T) {
	t.Parallel()
	s := serve(t, `rules: [{name: all, key: client.ip, limits: [
		2 per 1d, 2 per 2d leaky_bucket, 2 per 1d fixed_window, 2 per day, 2 per 1d sliding_log, 2 per 1d sliding_window]}]`)
	b := open(t)
	b.visit(s.admin + "/#/keys?rule=all&key=192.0.2.1")
	b.until("all are there", "document.querySelectorAll('[data-testid=gauge]').length === 6")
	filled := func(want float64) {
		t.Helper()
		b.until(fmt.Sprintf("each is drawn with %g", want), fmt.Sprintf(`[...document.querySelectorAll('[data-testid=gauge]')].every(g => {
			const walls = g.querySelector('.walls'), level = g.querySelector('.level:not(.held)'), cells = g.querySelectorAll('.cell').length;
			const is = level ? level.getBoundingClientRect().height / 48 * Math.min(1, level.getBoundingClientRect().width / (walls.getBoundingClientRect().width - 8)) : g.querySelectorAll('.cell.used').length / cells;
			return Math.abs(is - %g) < 0.02;
		})`, want))
	}
	filled(0)
	for range 2 {
		s.ask(map[string]any{"client": "192.0.2.1"})
	}
	b.until("all is used", "document.querySelectorAll('.gauge.full').length === 6")
	filled(1)
}

// Of a key that is banned, the page says so before anything else.
func TestBannedFirst(t *testing.T) {
	t.Parallel()
	s := serve(t, strings.Replace(loginRule, "    key:", "    mode: shadow\n    key:", 1))
	s.must(201, "POST", "/v1/bans", map[string]any{"rule": "login", "key": "192.0.2.1", "for": "1h"})
	b := open(t)
	b.visit(s.admin + "/#/keys?rule=login&key=192.0.2.1")
	b.see("key-facts", "mode shadow")
	if text := eval[string](b, of("key-facts")+".innerText"); !strings.HasPrefix(text, "banned") {
		t.Errorf("it begins with %q", text)
	}
}

// A push waits for a change, and the editor of a fleet without rules shows how rules look.
func TestPushWaitsForChange(t *testing.T) {
	t.Parallel()
	s, _ := busy(t)
	b := open(t)
	b.visit(s.admin + "/#/rules/edit")
	b.see("check", "valid")
	for range 2 {
		b.until("nothing is to push", of("btn-push")+".disabled")
		b.fill("editor", strings.TrimSpace(loginRule)+"\n# third\n")
		b.until("a change can be pushed", "!"+of("btn-push")+".disabled")
		b.click("btn-revert")
	}
	b.until("nothing is to push again", of("btn-push")+".disabled")
	fresh := open(t)
	fresh.visit(serve(t, "rules: []").admin + "/#/rules/edit")
	fresh.see("editor")
	fresh.until("an example", of("editor")+".placeholder.startsWith('rules:')")
}

// twoWeeks answers for the history as an instance does after 14 days.
const twoWeeks = `{
	const real = window.fetch;
	window.fetch = (url, ...args) => String(url).includes('offenders/history') ? Promise.resolve(Response.json({
		hours: Array.from({length: 336}, (_, i) => ({from: new Date(Date.UTC(2026, 0, 1, i)).toISOString(), count: 1 + i % 7, error: 0})),
		weekdays: Array.from({length: 7}, (_, day) => Array.from({length: 24}, (_, hour) => 100 * day + hour)),
	})) : real(url, ...args);
}`

// The heat map shows its first and last hour in the panel, names its zone, and each cell says its number,
// day and hours.
func TestHeatMap(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	for _, width := range []int64{390, 760, 1280} {
		b := open(t)
		b.size(width, 900)
		b.before(twoWeeks)
		b.visit(s.admin + "/#/rules?rule=login") // where it has half of the width
		b.until("there are maps", "document.querySelectorAll('.heat').length === 2")
		if seen := eval[string](b, `[...document.querySelectorAll('.heat')].map(e => [...e.tHead.rows[0].cells].filter(c => c.firstChild?.nodeType === 3).map(c => c.innerText.trim())).join(' ')`); seen != "0,6,12,18,23 0,6,12,18,23" {
			t.Errorf("%d: the hours are %s", width, seen)
		}
		if wide := eval[bool](b, `[...document.querySelectorAll('.heat')].some(e => e.getBoundingClientRect().right > e.closest('.panel').getBoundingClientRect().right - 8 || getComputedStyle(e.tHead.rows[0].cells[24]).overflowX !== 'visible' && e.tHead.rows[0].cells[24].scrollWidth > e.tHead.rows[0].cells[24].clientWidth)`); wide {
			t.Errorf("%d: hour 23 is cut off", width)
		}
		if cell := eval[string](b, `document.querySelector('.heat').tBodies[0].rows[1].cells[24].title + ' ' + document.querySelector('.heat').tBodies[0].rows[1].cells[24].innerText.trim()`); cell != "Tue 23:00–24:00 UTC: 123 123" {
			t.Errorf("%d: a cell says %q", width, cell)
		}
		b.see("history", "hour of UTC")
	}
}

// An instance that has run for an hour draws no chart of two weeks.
func TestNoChartOfOneBar(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	for range 5 {
		s.ask(login("192.0.2.1"))
	}
	s.waitFor("the refusals are counted", "/v1/offenders/history?of=rules&by=refusals", `"count":`)
	b := open(t)
	for _, place := range []string{"overview", "rules?rule=login"} {
		b.visit(s.admin + "/#/" + place)
		b.see("history-begun", "The chart begins after three hours")
		if eval[bool](b, "!!document.querySelector('.hours svg, .heat')") {
			t.Errorf("%s has a chart", place)
		}
	}
}
