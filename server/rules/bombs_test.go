package rules_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// The expressions of TestAttackExpressionBombs that look up headers and parameters, in a
// Set, with the largest request: each ends, and takes a bounded amount of memory.
func TestAttackLookups(t *testing.T) {
	const mayAllocate, watchdog = 192 << 20, 5 * time.Minute
	text := strings.Repeat("a", 1<<20)
	list, texts, m := make([]any, 20_000), make([]any, 200), map[string]any{}
	for i := range list {
		list[i] = fmt.Sprint("x", i)
		m[fmt.Sprint(i)] = int64(i)
	}
	for i := range texts {
		texts[i] = text[:len(text)-1-i]
	}
	in := &rules.Input{
		Request: &rules.Request{Method: "GET", Host: "example.com", Path: "/" + text[:64<<10],
			Header: http.Header{"X-A": {text[:60<<10]}}, RawQuery: strings.Repeat("a=b&", 16<<10)},
		Operation: "op", Attrs: map[string]any{"t": text, "l": list, "m": m, "texts": texts},
	}
	for _, match := range []string{
		`attrs.l.all(a, !(attrs.t in request.query))`,
		`attrs.l.all(a, request.query[a] == "" || true)`, `attrs.l.all(a, a in request.query)`, `attrs.l.all(a, !(a in request.query))`,
		`attrs.l.all(a, !(a in request.headers))`, `attrs.texts.all(a, !(a in request.headers))`, `attrs.m.all(k, !(k in request.query))`,
		`attrs.l.all(a, request.headers == request.headers)`, `request.query.all(k, request.query.all(l, k == l))`,
		`attrs.l.all(a, request.query != request.headers || true)`, `size(request.query) == 1`,
	} {
		s := one(t, `key: '"k"'`, "match: "+quoted(match))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		done := make(chan error, 1)
		go func() {
			var out rules.Plan
			done <- s.Asks(in, &out)
		}()
		select {
		case err := <-done:
			if err != nil && !strings.Contains(err.Error(), "cost limit exceeded") && !strings.Contains(err.Error(), "several times in its query") {
				t.Errorf("%s: %v", match, err)
			}
		case <-time.After(watchdog):
			t.Fatalf("%s: it does not end", match)
		}
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > mayAllocate {
			t.Errorf("%s: %d MB allocated", match, made>>20)
		}
	}
}
