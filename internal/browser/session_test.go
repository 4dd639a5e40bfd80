package browser

import "testing"

// The harness itself: a page of the instance is shown, and what it breaks is noticed.
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
