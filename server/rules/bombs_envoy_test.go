package rules_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// A file of Envoy's form that is a bomb is refused, or is a set, soon and with bounded memory.
func TestAttackEnvoyFiles(t *testing.T) {
	const mayAllocate, watchdog = 512 << 20, 5 * time.Minute
	var laughs strings.Builder
	laughs.WriteString("domain: d\ndescriptors:\n  - key: k\n    metadata:\n      a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		fmt.Fprintf(&laughs, "      a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	var doubling strings.Builder
	doubling.WriteString("domain: d\ndescriptors:\n  - &d0 {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	for i := range 30 {
		fmt.Fprintf(&doubling, "  - &d%d {key: k%d, descriptors: [*d%d, {key: o, descriptors: [*d%d]}]}\n", i+1, i+1, i, i)
	}
	deep := func(n int) string {
		return "domain: d\ndescriptors: " + strings.Repeat("[{key: k, descriptors: ", n) + "[]" + strings.Repeat("}]", n)
	}
	for name, text := range map[string]string{
		"laughs": laughs.String(), "doubling": doubling.String(), "deep": deep(100), "deeper": deep(100_000), "brackets": "domain: d\ndescriptors: " + strings.Repeat("[", 1_000_000),
		"cycle": "domain: d\ndescriptors: &a [{key: k, descriptors: *a}]\n", "merge": "domain: d\ndescriptors: [&a {key: k, <<: *a}]\n",
		"cycle of metadata": "domain: d\ndescriptors: [{key: k, metadata: &m {a: *m}}]\n",
		"wide":              "domain: d\ndescriptors:\n" + strings.Repeat("  - {key: k, value: v}\n", 100_000),
		"asterisks":         "domain: d\ndescriptors:\n  - {key: k, value: '" + strings.Repeat("*a", 100_000) + "', rate_limit: {unit: day, requests_per_unit: 1}}\n",
		"replaces":          "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [" + strings.Repeat("{name: x},", 200_000) + "]}}\n",
		"long":              "domain: " + strings.Repeat("d", 1<<20) + "\ndescriptors:\n  - {key: " + strings.Repeat("k", 1<<20) + ", rate_limit: {unit: day, requests_per_unit: 1}}\n",
		"line feeds":        "domain: \"d\\n\\0\"\ndescriptors:\n  - {key: \"k\\n:1|c\", rate_limit: {unit: day, requests_per_unit: 1}}\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		type result struct {
			set *rules.Set
			err error
		}
		done := make(chan result, 1)
		go func() {
			set, err := rules.ParseFiles([]rules.File{{Name: "d.yaml", Data: []byte(text), Envoy: true}})
			done <- result{set, err}
		}()
		select {
		case r := <-done:
			if r.err != nil {
				if text := r.err.Error(); len(text) > 20_000 {
					t.Errorf("%s: an error of %d bytes", name, len(text))
				}
				break
			}
			var out rules.Plan
			_ = r.set.Asks(&rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{
				{Cost: 1, Entries: []rules.Entry{{Key: "k", Value: strings.Repeat("a", 1<<20)}}},
			}}}, &out)
		case <-time.After(watchdog):
			t.Fatalf("%s: it does not end", name)
		}
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > mayAllocate {
			t.Errorf("%s: %d MB allocated", name, made>>20)
		}
	}
}
