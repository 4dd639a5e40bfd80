package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// page writes docs/benchmarks.md, with figures of this run only.
func (r *run) page(w io.Writer) {
	m := &r.Machine
	fmt.Fprintf(w, `# Benchmarks

Stint beside other limiters, and beside floors: the least that any limiter must do. [benchmarks-waiting.md](benchmarks-waiting.md) is about callers that wait, [benchmarks-rules.md](benchmarks-rules.md) about files with many rules.

## How to repeat it

%s writes this page with its [raw figures](benchmarks.raw.jsonl). %s prints all tables of these; %s measures single packages.

- **Measured** %s at commit %s, in %s: %s, %d shared processors (load %s to %s), %s, %s, Redis %s on loopback without persistence; %s.
- Each subject is a process; they take turns in %d rounds. Figures are medians with quartiles, ratios those of each round.
- Time is from one decision to the next over all callers, a latency only with one caller.

## Stint beside its fastest peer

Stint is its token bucket. A ratio above 1 means that Stint is slower. The last column has Stint's other algorithms that are slower than their fastest peer.

`, "`make bench`", "`cd bench && go run . -from ../docs/benchmarks.raw.jsonl -tables`", "`make bench-go`",
		r.Date.UTC().Format(time.DateOnly), m.Commit, r.Took.Round(time.Second), m.CPU, m.Processors, m.LoadBefore, m.LoadAfter, m.System, m.Go, m.Redis, modules(m.Modules), r.Rounds)
	r.summary(w)
	r.pausesInShort(w)
	r.serversInShort(w)
	r.holdsInShort(w)
	r.verdicts(w)
	for _, group := range []string{memoryGroup, redisGroup, serverGroup, holdsGroup} {
		if title := groupTitles[group]; r.has(group) {
			fmt.Fprintf(w, "\n## %s\n\n![%s](benchmarks-%s.svg)\n\n%s\n", title, title, group, pageNotes[group])
		}
	}
}

// pageNotes are notes for readers of a picture.
var pageNotes = map[string]string{
	memoryGroup: "There are as many callers as processors. With a million keys, each request makes the text of its key, except for the same strings. Only Stint and throttled with LRU bound their keys; sethvargo and ulule sweep old ones. x/time/rate answers only yes or no.",
	redisGroup:  "Stint and the sorted-set log use rueidis, which joins commands of many callers; the others use go-redis, so each client has its own floor. throttled needs two round trips, and fails where many callers share a key.",
	serverGroup: "The clients share the processors with the server. A floor only answers, or only passes the request on.",
	holdsGroup:  "A hold, with its settlement, is two calls and a record of its own; a decision is one call, and identical ones are joined.",
}

func (r *run) has(group string) bool {
	for _, m := range r.tables {
		if m.table.group == group {
			return true
		}
	}
	return false
}

// modules are names and versions without their common part.
func modules(all []string) string {
	var short []string
	for _, m := range all {
		short = append(short, strings.TrimPrefix(m, "github.com/"))
	}
	return strings.Join(short, ", ")
}

func (r *run) summary(w io.Writer) {
	fmt.Fprint(w, "| case | Stint | fastest peer | ÷ peer; place | ÷ floor | slower |\n|---|---:|---|---|---:|---|\n")
	for _, m := range r.tables {
		m.summary(w, mainRow, "")
		m.summary(w, goRedisRow, "; go-redis")
	}
}

func (m *measured) summary(w io.Writer, name, more string) {
	main := m.find(name)
	if main == nil || m.table.newcomers > 0 {
		return
	}
	best := m.bestPeer(main)
	before, of := 0, 1
	var slower []string
	for i := range m.results {
		p := &m.results[i]
		switch kind := p.subject.kind; {
		case kind == peer:
			of++
			if p.cost().middle < main.cost().middle {
				before++
			}
		case kind == ours && name == mainRow && p.subject.name != goRedisRow && p != main:
			if over := p.over(m.bestPeer(p)).middle; over > 1 {
				slower = append(slower, fmt.Sprintf("%s %.1f", strings.TrimLeft(strings.TrimPrefix(p.subject.name, "Stint"), ", "), over))
			}
		}
	}
	fmt.Fprintf(w, "| %s | %s | %s, %s | %s; %d of %d | %s | %s |\n", m.table.title+more, duration(main.cost().middle), best.subject.name,
		duration(best.cost().middle), ratio(main.over(best)), before+1, of, digits(main.over(m.floorOf(main)).middle), strings.Join(slower, ", "))
}

// serversInShort compares Stint's servers with their floors, and Envoy's service with its peer.
func (r *run) serversInShort(w io.Writer) {
	for _, m := range r.tables {
		if m.table.group != serverGroup {
			continue
		}
		var all []string
		for i := range m.results {
			s := &m.results[i]
			if f := m.floorOf(s); s.subject.kind == ours && f != nil {
				all = append(all, fmt.Sprintf("%s takes %s, %s times as long as “%s”", s.subject.name, duration(s.cost().middle), ratio(s.over(f)), f.subject.name))
			}
		}
		if len(all) > 0 {
			fmt.Fprintf(w, "\n%s: %s.\n", m.table.title, strings.Join(all, "; "))
		}
		m.against(w)
	}
}

// verdicts names the limiters that do not count correctly, and the others, but for Stint only how many.
func (r *run) verdicts(w io.Writer) {
	fmt.Fprint(w, "\n## Which limiters count correctly\n\nEach limiter is tested alone, with 64 callers at once, with a refused request for several units, and in floods.\n\n| limiter | where | verdict |\n|---|---|---|\n")
	correct := map[string][]string{}
	ours, tested := map[string]int{}, map[string]int{}
	for i := range r.checked {
		c := &r.checked[i]
		isOurs := strings.HasPrefix(c.Name, "Stint")
		if isOurs {
			tested[c.Where]++
		}
		if faults := c.faults(); len(faults) > 0 {
			fmt.Fprintf(w, "| %s | %s | %s |\n", c.Name, c.Where, strings.Join(faults, "; "))
		} else if isOurs {
			ours[c.Where]++
		} else {
			correct[c.Where] = append(correct[c.Where], c.Name)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(tested)) {
		correct[where] = append(correct[where], fmt.Sprintf("Stint, %d of %d algorithms and settings", ours[where], tested[where]))
	}
	for _, where := range slices.Sorted(maps.Keys(correct)) {
		fmt.Fprintf(w, "| %s | %s | correct |\n", strings.Join(correct[where], "; "), where)
	}
}
