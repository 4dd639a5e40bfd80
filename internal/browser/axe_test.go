package browser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe is the script of axe-core, which scripts/axe installs.
var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("testdata/node_modules/axe-core/axe.min.js")
	return string(text), err
})

// accessible checks the page with axe-core, which must find nothing.
func (b *tab) accessible(where string) {
	b.t.Helper()
	script, err := axe()
	if errors.Is(err, fs.ErrNotExist) {
		missing(b.t, "axe-core", "scripts/axe")
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if !eval[bool](b, "'axe' in window") {
		do(b, chromedp.Evaluate[chromedp.Void](script))
	}
	// Nothing may fade in while colours are compared.
	found := eval[[]string](b, `Promise.all(document.getAnimations().filter(a => a.effect?.getComputedTiming().endTime !== Infinity).map(a => a.finished.catch(() => {})))
		.then(() => axe.run(document, {resultTypes: ['violations']}))
		.then(r => r.violations.map(v => v.id + ': ' + v.help + '\n' + v.nodes.slice(0, 5).map(n => '  ' + n.html.slice(0, 300) + '\n  ' + n.failureSummary).join('\n')))`)
	for _, violation := range found {
		b.t.Errorf("%s: axe-core finds %s", where, violation)
	}
}

// TestAxeFinds: what axe-core should find, it finds, under the page's policy.
func TestAxeFinds(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules: []")
	b := open(t)
	b.visit(s.admin + "/")
	b.see("page-overview")
	found := &recorder{TB: t}
	b.t = found
	eval[bool](b, `(() => { const e = document.createElement('button'); document.getElementById('main').append(e); return true })()`)
	b.accessible("a button without a name")
	b.t = t
	if !strings.Contains(strings.Join(found.errors, "\n"), "button-name") {
		t.Errorf("axe-core finds no button without a name: %q", found.errors)
	}
}

// recorder keeps the errors of a test, which it expects.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
