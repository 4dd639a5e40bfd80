package dry

import (
	"strings"
	"testing"
)

// A line of YAML may be another one of an editor. A number there must not be taken for that of the rule.
func TestPlacesAreOfTheEditorsLines(t *testing.T) {
	const text = `
  - {name: a, key: '"all"', limits: [5 per 1m]} # *
  - {name: b, key: '"all"', limits: [5 per 1m]}
  - {name: c, key: '"all"', limits: [5 per 1m]}
`
	for _, c := range []struct {
		instead string
		line    int // of b; 0: nowhere
	}{{"x", 3}, {"🙂", 3}, {"\r\n#", 4}, {"\u2028#", 0}, {"\u2029#", 0}, {"\u0085#", 0}, {"\r#", 0}} {
		text := "rules:" + strings.Replace(text, "*", c.instead, 1)
		p, set, _ := asked(t, text)
		all := p.result(set, PreviewWindow, func(key string) string { return key })
		locate(all, text)
		line := 0
		if all[1].Place != nil {
			line = all[1].Place.Line
		}
		if len(all) != 3 || all[1].Rule != "b" || line != c.line {
			t.Errorf("with %q, b is on line %d, want %d", c.instead, line, c.line)
		}
	}
}
