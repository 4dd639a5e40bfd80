//go:build !race

package rules_test

import (
	"testing"

	"github.com/stintdev/stint/rules"
)

// What Asks allocates does not grow with the number of rules: the text of the
// address, and one word for each variable used to hand it to CEL.
func TestAllocations(t *testing.T) {
	for _, n := range []int{1, 100} {
		s, in := benchSet(t, n), benchInput()
		var out rules.Matches
		got := testing.AllocsPerRun(200, func() {
			if err := s.Asks(in, &out); err != nil {
				t.Fatal(err)
			}
		})
		if got > 5 {
			t.Errorf("%d rules: %v allocations, want at most 5", n, got)
		}
	}
}
