package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// serveEvil serves a page at another port of the same machine. It does what it can with the
// cookies of whoever opens it, and leaves in window.results how each attempt ended.
func serveEvil(t testing.TB, target string) string {
	script := fmt.Sprintf(`
const target = %q;
window.results = {};
const refused = (response) => (response.status === 403 || response.status === 415 || response.type === 'opaque' ? 'refused' : 'status ' + response.status);
const attempts = {
  async read() { return refused(await fetch(target + '/v1/status', {credentials: 'include'})); },
  async change() { return refused(await fetch(target + '/v1/switches', {method: 'PATCH', credentials: 'include', headers: {'Content-Type': 'application/json'}, body: '{"enabled":false}'})); },
  async blind() { await fetch(target + '/v1/rules/rollback', {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"to":1,"after":1}'}); return 'refused'; },
  async logout() { return refused(await fetch(target + '/v1/session', {method: 'DELETE', credentials: 'include'})); },
  stream() {
    return new Promise((done) => {
      const source = new EventSource(target + '/v1/live', {withCredentials: true});
      source.onmessage = () => done('it receives events');
      source.onerror = () => { source.close(); done('refused'); };
    });
  },
};
(async () => {
  for (const [name, attempt] of Object.entries(attempts)) {
    results[name] = await attempt().catch(() => 'refused');
  }
  const frame = document.createElement('iframe'); // the test looks at it
  frame.src = target + '/';
  await new Promise((done) => { frame.onload = done; document.body.append(frame); });
  window.tried = true;
})();
`, target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/evil.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, script)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>evil</title><body><script src="/evil.js"></script>`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
