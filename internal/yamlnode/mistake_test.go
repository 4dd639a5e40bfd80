package yamlnode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/yamlnode"
)

// What is no YAML is reported where the mistake is, and not where the block around it begins.
func TestMistakes(t *testing.T) {
	const before = "rules:\n  - name: a\n    limits: [5 per 1m,\n      6 per 1h]\n    message: \"long\n      text\"\n  - {name: b,\n     limits: [1 per 1s]}\n"
	const after = "  - name: z\n    limits: [5 per 1m]\n"
	long := strings.Repeat("  - {name: x, limits: [1 per 1m]}\n", 100)
	for what, c := range map[string]struct {
		mistake string
		line    int // of the mistake
		column  int
	}{
		"a mapping that does not end": {"  - {name: c, limits: [5 per 1m]\n", 1, 3},
		"a list that does not end":    {"  - name: c\n    limits: [5 per 1m\n", 2, 5},
		"a text that does not end":    {"  - name: \"c\n    limits: [5 per 1m]\n", 1, 3},
		"less indented":               {"  - name: c\n   key: x\n", 2, 4},
		"a tab":                       {"  - name: c\n\tkey: x\n", 2, 2},
		"a colon":                     {"  - name: c\n    key: a: b\n", 2, 5},
		"an at sign":                  {"  - name: c\n    key: @x\n", 2, 5},
		"an alias":                    {"  - name: c\n    key: *x\n", 2, 5},
	} {
		for where, around := range map[string][2]string{"alone": {"rules:\n", ""}, "within": {before, after}, "far within": {before + long, long + after}, "last": {before, ""}, "first": {"rules:\n", before[7:]}} {
			r, _ := yamlnode.Open("f", []byte(around[0]+c.mistake+around[1]))
			want := fmt.Sprintf("f:%d:%d: not YAML", strings.Count(around[0], "\n")+c.line, c.column)
			if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %s", what, where, err, want)
			}
		}
	}
}
