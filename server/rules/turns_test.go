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
	set, err := Parse("rules.yaml", []byte(f.String()))
	if err != nil {
		t.Fatal(err)
	}
	_, root := yamlnode.Open("rules.yaml", []byte(f.String()))
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
		{"version", 1, func() { digest(root) }},
		{"choice of guards", 2, func() { chooseGuards(conditions, false) }},
		{"index", 3, func() { newIndex(conditions, false) }},
		{"reading of rules", 100, func() { _, _ = Parse("rules.yaml", []byte(f.String())) }},
	} {
		if turns := turnsDuring(part.run); turns < part.loops*n/100 {
			t.Errorf("%s: %d turns, want %d", part.name, turns, part.loops*n/100)
		}
	}
}

// A rule's nodes are dropped once it is read, which halves the memory that a reading takes at most.
func TestDropsNodes(t *testing.T) {
	opened := Open([]File{{Name: "rules.yaml", Data: []byte("rules: [{name: a, match: 'request.path == \"/a*\"', limits: [1 per 1s]}]")}})
	var root *yamlnode.Node
	_ = opened.Each(func(_ *yamlnode.Reader, n *yamlnode.Node) error { root = n; return nil })
	set, err := opened.Parse(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := root.Content[1].Content[0]; len(n.Content) > 0 {
		t.Errorf("%d nodes of a rule remain", len(n.Content))
	}
	if again, err := Parse("rules.yaml", []byte("# the same\nrules: [{name: a, match: 'request.path == \"/a*\"', limits: [1 per 1s]}]")); err != nil || again.Version != set.Version {
		t.Errorf("%v, %v, want version %s", again, err, set.Version)
	}
	if len(set.Findings) != 1 || !strings.HasPrefix(set.Findings[0].Where, "rules.yaml:1:") {
		t.Errorf("findings %v", set.Findings)
	}
}
