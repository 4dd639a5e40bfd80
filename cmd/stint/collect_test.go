package main

import (
	"runtime"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server/rules"
)

// The collector runs once many rules have been read.
func TestCollects(t *testing.T) {
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := forced()
	collect(&rules.Set{Rules: make([]*rules.Rule, collectFrom)})
	await.Until(t, "a collection", func() bool { return forced() > before })
}
