package stint_test

import (
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
)

func TestMemoryKit(t *testing.T) {
	steps := 300_000
	if testing.Short() {
		steps = 20_000
	}
	limittest.Kit{New: func(*testing.T) stint.Store { return new(stint.Memory) }, Steps: steps}.Run(t)
}
