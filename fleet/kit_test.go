package fleet_test

import (
	"testing"

	"github.com/stintdev/stint"
)

func penalty(t testing.TB, s stint.PenaltySpec) *stint.Penalty {
	p, err := stint.NewPenalty(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
