package spelling_test

import (
	"testing"

	"github.com/stintdev/stint/internal/spelling"
)

func TestSeveral(t *testing.T) {
	for _, c := range []struct {
		n     int64
		thing string
		want  string
	}{
		{0, "rule", "0 rules"}, {1, "rule", "1 rule"}, {2, "rule", "2 rules"}, {1000, "rule", "1000 rules"}, {-1, "rule", "-1 rules"},
		{1, "entry", "1 entry"}, {2, "entry", "2 entries"}, {2, "key", "2 keys"}, {2, "day", "2 days"}, {2, "body", "2 bodies"},
		{1, "address", "1 address"}, {2, "address", "2 addresses"}, {2, "batch", "2 batches"}, {2, "more request", "2 more requests"},
	} {
		if got := spelling.Several(c.n, c.thing); got != c.want {
			t.Errorf("%d of %s: %s, want %s", c.n, c.thing, got, c.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", -7: "-7", 999: "999", -999: "-999", 1000: "1,000", -1000: "-1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := spelling.Grouped(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := spelling.SeveralGrouped(1200, "entry") + ", " + spelling.SeveralGrouped(1, "entry"); got != "1,200 entries, 1 entry" {
		t.Error(got)
	}
}
