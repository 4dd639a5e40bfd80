package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// The collector runs once many rules have been read, and is left alone after few.
func TestCollects(t *testing.T) {
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := forced()
	collect(&rules.Set{Rules: make([]*rules.Rule, collectFrom-1)})
	time.Sleep(10 * time.Millisecond)
	if n := forced() - before; n > 0 {
		t.Errorf("after few rules, %d collections", n)
	}
	collect(&rules.Set{Rules: make([]*rules.Rule, collectFrom)})
	for deadline := time.Now().Add(time.Minute); forced() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("after many rules, no collection")
		}
	}
}
