package golden

import (
	"strings"
	"testing"
)

// What differs is shown with the lines around it, and not all that is equal before.
func TestApart(t *testing.T) {
	lines := strings.Repeat("equal\n", 30)
	got := apart(lines+"one\ntail\n", lines+"two\ntail\n")
	around := strings.Repeat("equal\n", around)
	if want := "from line 19 on, got:\n" + around + "one\ntail\nwant:\n" + around + "two\ntail\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := apart("a\n", "a\nb\n"), "from line 1 on, got:\na\nwant:\na\nb\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
