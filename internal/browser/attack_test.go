package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"github.com/stintdev/stint/internal/redistest"
)

// hostile are texts that a page which takes data for HTML, a script, a URL or a property runs.
var hostile = []string{
	`<img src=x onerror="window.pwned=1">`,
	`"><script>window.pwned=2</script>`,
	`'><svg/onload=window.pwned=3>`,
	`javascript:window.pwned=4`,
	`</textarea></title><iframe srcdoc="<script>parent.pwned=5</script>">`,
	`{{constructor.constructor('window.pwned=6')()}}`,
	`${window.pwned=7}`,
	`__proto__`,
	"\u202egnp.exe\u001b[2J",
	strings.Repeat("W", 300),
}

// hostileRules have every name, message and text that a rules file lets somebody choose.
func hostileRules() string {
	rules := "rules:\n"
	for _, name := range []string{"__proto__", "constructor", "javascript:window.pwned/8", strings.Repeat("n", 64)} {
		rules += fmt.Sprintf("  - {name: %q, match: operation == %q, key: attrs.user, limits: [1 per 1h fixed_window], message: %q, penalty: {warn_after: 1, ban_after: 2, ban_for: 30m}}\n", name, name, hostile[0])
	}
	return rules + "# " + hostile[1] + "\n"
}

// Keys, names of rules, messages, reasons, notes and what is typed are shown as texts, whatever
// they are.
func TestAttackScripts(t *testing.T) {
	atLength(t)
	s := serve(t, "server: {rules: fleet}\nrules: []", "--store", redistest.Start(t).URL())
	s.must(200, "PUT", "/v1/rules", map[string]any{"text": hostileRules(), "after": 0, "note": hostile[0]})
	for _, text := range hostile {
		clean := strings.Map(func(r rune) rune {
			if r < ' ' {
				return -1
			}
			return r
		}, text)
		for range 4 { // until it is banned
			s.ask(map[string]any{"operation": "__proto__", "attrs": map[string]any{"user": text}, "client": "192.0.2.1"})
		}
		s.must(201, "POST", "/v1/bans", map[string]any{"rule": "constructor", "key": text, "reason": clean})
		s.must(201, "POST", "/v1/overrides", map[string]any{"rule": "constructor", "key": text, "times": 2, "for": "1h", "reason": clean})
	}
	s.must(201, "POST", "/v1/lists/blocklist", map[string]any{"match": `operation == "<img src=x onerror='window.pwned=9'>"`, "reason": hostile[0]})
	b := open(t)
	b.visit(s.admin + "/")
	harmless := func(where string) {
		t.Helper()
		if found := eval[string](b, `String(window.pwned ?? '') + [...document.querySelectorAll('img, iframe, object, embed, base, meta[http-equiv], form[action], script:not([src]), a[href^="javascript:" i], [onerror], [onload]')]
			.map(e => e.outerHTML.slice(0, 200)).join('\n')`); found != "" {
			t.Errorf("%s: %s", where, found)
		}
	}
	all := append([]string{}, places...)
	for i, text := range append(hostile[:len(hostile):len(hostile)], "__proto__", "javascript:window.pwned/8") {
		escaped := eval[string](b, fmt.Sprintf("encodeURIComponent(%q)", text))
		all = append(all, "keys?rule=constructor&key="+escaped)
		if i < 2 || i == len(hostile) {
			all = append(all, "rules?rule="+escaped, "offenders?of=keys&rule="+escaped, "keys?rule="+escaped+"&key=x", escaped)
		}
	}
	for _, place := range all {
		eval[bool](b, fmt.Sprintf("(location.hash = %q, true)", "#/"+place))
		b.settle()
		harmless(place)
	}
	b.at("bans")
	for _, text := range hostile[:8] {
		b.until("the list of bans shows "+text, fmt.Sprintf("%s.innerText.includes(%q)", of("page-bans"), text))
	}
	b.at("rules/versions")
	b.click("btn-show-1")
	b.settle()
	harmless("a version")
	b.until("it is shown as it is", fmt.Sprintf("%s.textContent.includes(%q)", of("page-rules"), hostile[1]))
	b.at("rules/edit")
	b.fill("editor", hostileRules()+"  - {name: \"<img src=x onerror='window.pwned=10'>\", key: nothing}\n")
	b.see("mistakes", "<img src=x")
	harmless("a mistake")
	b.at("bans")
	b.click("btn-ban")
	b.choose("input-rule", "constructor")
	b.fill("input-key", hostile[0])
	b.fill("input-for", hostile[1])
	b.click("btn-confirm")
	b.see("problem", "<script>")
	harmless("an error of the server")
}

// What a page of another origin embeds, sends or opens does not reach the dashboard.
func TestAttackFromAnotherPage(t *testing.T) {
	t.Parallel()
	s := serve(t, guarded)
	victim := open(t)
	victim.signIn(s, writeToken)
	evil := serveEvil(t, s.admin)
	victim.visit(evil)
	victim.until("it has tried", "window.tried === true")
	got := eval[map[string]string](victim, "window.results")
	for what, result := range got {
		if result != "refused" {
			t.Errorf("%s: %s", what, result)
		}
	}
	if len(got) != 5 {
		t.Errorf("it tried %v", got)
	}
	frames := send(victim, page.GetFrameTree, cdp.Empty{}).FrameTree.ChildFrames
	if len(frames) != 1 || frames[0].Frame.UnreachableURL == "" {
		t.Errorf("the dashboard is shown in a frame: %+v", frames)
	}
	victim.forgive() // the browser reports each
	if answer := s.must(200, "GET", "/v1/switches", nil); !strings.Contains(answer, `"enabled":{"file":true,"set":null,"now":true}`) {
		t.Errorf("it switched: %s", answer)
	}
	victim.visit(s.admin + "/")
	victim.see("page-overview") // and it has not signed the user out
}
