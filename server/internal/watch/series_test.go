package watch

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/rules"
)

// many are n rules, of which every tenth is in shadow mode.
func many(t testing.TB, n int) *rules.Set {
	t.Helper()
	var f strings.Builder
	f.WriteString("rules: [\n")
	for i := range n {
		mode := "enforce"
		if i%10 == 9 {
			mode = "shadow"
		}
		fmt.Fprintf(&f, "  {name: rule%d, limits: [100 per 1m], mode: %s},\n", i, mode)
	}
	f.WriteString("]\n")
	set, err := rules.Parse("rules.yaml", []byte(f.String()))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// heap is what is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What is counted of a rule takes a few hundred bytes, also while live numbers are read.
func TestMemoryOfRules(t *testing.T) {
	const n, most = 2000, 600
	set := many(t, n)
	w := New(Options{Log: slog.New(slog.DiscardHandler)})
	before := heap()
	w.Install(set)
	counts := w.Metrics.Counts()
	counts()
	if each := (heap() - before) / n; each > most {
		t.Errorf("%d bytes for each rule, want up to %d", each, most)
	}
	runtime.KeepAlive(w)
	runtime.KeepAlive(set)
}

// Reading the live numbers of rules that count nothing allocates nothing for them.
func TestIdleRulesAreReadForNothing(t *testing.T) {
	allocs := func(n int) float64 {
		w := New(Options{Log: slog.New(slog.DiscardHandler)})
		w.Install(many(t, n))
		counts := w.Metrics.Counts()
		w.Current().counters.of(w.Current().Rules[0]).decided(kind.Allowed)
		return testing.AllocsPerRun(10, func() { counts() })
	}
	if few, more := allocs(2), allocs(500); more > few {
		t.Errorf("%g allocations with 500 rules, %g with 2", more, few)
	}
}

// A rule's counts are read until it is gone, and go on if it comes back at once.
func TestRulesComeAndGo(t *testing.T) {
	w := New(Options{Log: slog.New(slog.DiscardHandler)})
	counts := w.Metrics.Counts()
	decide := func(set *Served, n int) {
		for range n {
			set.counters.of(set.Rules[0]).decided(kind.Limited)
		}
	}
	want := func(when string, want map[string]live.RuleCounts) {
		t.Helper()
		if got := counts().Rules; !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	limited := func(n int64) map[string]live.RuleCounts {
		return map[string]live.RuleCounts{"rule0": {live.Limited: n}}
	}
	with, without := many(t, 1), many(t, 0)
	w.Install(with)
	want("idle", map[string]live.RuleCounts{})
	old := w.Current()
	decide(old, 2)
	w.Install(without)
	decide(old, 3) // by requests that had begun
	want("removed", limited(5))
	w.Install(with)
	decide(w.Current(), 1)
	want("back", limited(6))
	w.Install(without)
	w.Install(with)
	decide(w.Current(), 1)
	want("away between two reads", limited(7))
	w.Install(without)
	want("removed again", limited(7))
	want("for longer", map[string]live.RuleCounts{})
	w.Install(with)
	decide(w.Current(), 1)
	want("new", limited(1))
}

// BenchmarkScrape is a scrape of 10,000 rules.
func BenchmarkScrape(b *testing.B) {
	w := New(Options{Log: slog.New(slog.DiscardHandler)})
	w.Install(many(b, 10_000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Metrics.Registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCounts is a reading of the live numbers of 10,000 rules, as each second.
func BenchmarkCounts(b *testing.B) {
	w := New(Options{Log: slog.New(slog.DiscardHandler)})
	w.Install(many(b, 10_000))
	counts := w.Metrics.Counts()
	b.ReportAllocs()
	for b.Loop() {
		counts()
	}
}
