package algo

import (
	"strings"
	"testing"
)

// Every section of every twin is taken into a script, and nothing is left of the
// directives.
func TestScripts(t *testing.T) {
	every := TakeScript + RefundScript + ResetScript + ViolateScript + RecordScript + InspectScript + HoldsScript
	for _, left := range []string{"-->", "--@", "\n\n"} {
		if strings.Contains(every, left) {
			t.Errorf("a script contains %q", left)
		}
	}
	files, err := twins.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := twins.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "--") {
				continue
			}
			if !strings.Contains(every, line) {
				t.Errorf("%s: %q is in no script", f.Name(), line)
			}
		}
	}
}

func TestProtocol(t *testing.T) {
	for _, c := range []string{"", "x", strings.Repeat("\x00", headSize), strings.Repeat("\xff", headSize)} {
		if _, _, err := ReadHead(c); err == nil {
			t.Errorf("head %q was read", c)
		}
	}
	if _, _, err := ReadVerdict(strings.Repeat("\x00", verdictSize-1)); err == nil {
		t.Error("a short verdict was read")
	}
	p := Plan{Kind: SlidingWindow, Capacity: 1, Unit: 1, Width: 1<<55 - 1}
	if n := len(AppendAsk(nil, &p, 1, 1<<62)); n != askSize {
		t.Errorf("an ask of %d bytes, take.lua skips %d", n, askSize)
	}
	if got := read56(string(append56(nil, 1<<55-1))); got != 1<<55-1 {
		t.Errorf("2^55-1 came back as %d", got)
	}
}
