package decide

import (
	"strings"
	"testing"
)

func TestDecisionIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		id := newDecisionID()
		if len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "" || seen[id] {
			t.Fatalf("ID %q", id)
		}
		seen[id] = true
	}
	if n := testing.AllocsPerRun(1000, func() { _ = newDecisionID() }); n > 1 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkDecisionID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = newDecisionID()
	}
}
