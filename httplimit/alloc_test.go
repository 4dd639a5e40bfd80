//go:build !race

package httplimit_test

import "testing"

// Under the race detector pools forget at random, so nothing can be counted.
func TestAllocations(t *testing.T) {
	for i, p := range paths {
		h, w, r := prepare(i)
		if got := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); got > p.maxAllocs {
			t.Errorf("%s: %.0f allocations, want at most %.0f", p.name, got, p.maxAllocs)
		}
	}
}
