package rules

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/yamlnode"
)

// turnsDuring is how many turns another goroutine gets while f runs on one processor.
func turnsDuring(f func()) (n int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	stop, stopped := make(chan struct{}), make(chan struct{})
	runtime.Gosched()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				n++
				runtime.Gosched()
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return n
}

// Each part of a reading of many rules lets requests have a turn at least every 100 rules.
func TestTakesTurns(t *testing.T) {
	const n = 5000
	var f strings.Builder
	f.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&f, "- {name: rule%d, match: request.path == \"/%[1]d\", limits: [1 per 1s]}\n", i)
	}
	opened := Open([]File{{Name: "rules.yaml", Data: []byte(f.String())}})
	set, err := opened.Parse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conditions := make([]condition, n)
	for i, r := range set.Rules {
		conditions[i].is = r.match
	}
	for _, part := range []struct {
		name  string
		loops int // over all rules
		run   func()
	}{
		{"reading of YAML", 10, func() { yamlnode.Open("rules.yaml", []byte(f.String())) }},
		{"version", 1, func() { version(opened.roots) }},
		{"choice of guards", 2, func() { chooseGuards(conditions, false) }},
		{"index", 3, func() { newIndex(conditions, false) }},
		{"reading of rules", 100, func() { _, _ = opened.Parse(t.Context()) }},
	} {
		if turns := turnsDuring(part.run); turns < part.loops*n/100 {
			t.Errorf("%s: %d turns, want %d", part.name, turns, part.loops*n/100)
		}
	}
}
