package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// page writes docs/benchmarks-rules.md, with figures of this run only.
func (r *ruleRun) page(w io.Writer) {
	m := &r.Machine
	fmt.Fprintf(w, `# Benchmarks of files with many rules

This page shows what it costs to find the rules that apply to a request, in a file of up to %s rules of which one applies. [rules.md](rules.md#many-rules) says which rules Stint passes over; [benchmarks.md](benchmarks.md) compares the decisions that follow.

## How to repeat it

%s writes this page.

- **Measured** %s at commit %s, in %s: %s, %d shared processors (load %s to %s), %s, %s, %s.
- All rows but nginx's are in one process, and all take turns in %d rounds. Figures are medians of rounds, with least and most; ratios are those of each round.
- Stint is %s, which finds the rules, their keys and their limits, and asks no store. There are %d requests, in turn, each for another rule if the file has so many.
- Time is that of the processor, without garbage collection.

## Rules told apart by one field

![Time to find the rules of a request](benchmarks-rules.svg)

The columns on the right are multiples of the time with one rule. An index finds the rule that applies, except by a regular expression: there, Stint evaluates each rule.

`, number(float64(slices.Max(r.sizes))), "`make bench-rules`", r.Date.UTC().Format(time.DateOnly), m.Commit, r.Took.Round(time.Second), m.CPU, m.Processors,
		m.LoadBefore, m.LoadAfter, m.System, m.Go, modules(m.Modules), r.Rounds, "`Set.Asks` of package `server/rules`", requestsInTurn)
	r.waysTable(w)
	r.celTable(w)
	r.networksTable(w)
	r.loadsTable(w)
}

// row is that of a name and a number of rules; nil: none.
func (r *ruleRun) row(name string, n int) *ruleRow {
	for _, row := range r.rows {
		if row.subject.name == name && row.n == n {
			return row
		}
	}
	return nil
}

// over is how many times as long row takes as other; "–": there is no row.
func (row *ruleRow) over(other *ruleRow) string {
	if row == nil || other == nil {
		return "–"
	}
	return medianOf(row.ratios(&other.result, (*sample).cost))
}

// perCall are the row's allocations. The runtime's own are less than a hundredth for each call.
func (row *ruleRow) perCall() string { return number(math.Floor(row.allocs()*10) / 10) }

func (r *ruleRun) waysTable(w io.Writer) {
	fmt.Fprint(w, "| rules differ in | 1 rule | allocations | ÷ "+celAloneRow+" |")
	rule := "|---|---:|---:|---:|"
	for _, n := range r.sizes[1:] {
		fmt.Fprintf(w, " %s rules |", number(float64(n)))
		rule += "---:|"
	}
	fmt.Fprintf(w, "\n%s\n", rule)
	alone := r.row(celAloneRow, 1)
	least, most := math.Inf(1), 0.0
	for _, way := range ruleWays {
		one := r.row(way.name, 1)
		fmt.Fprintf(w, "| %s | %s | %s | %s |", way.name, duration(one.cost().middle), one.perCall(), one.over(alone))
		for _, n := range r.sizes[1:] {
			fmt.Fprintf(w, " %s |", r.row(way.name, n).over(one))
		}
		fmt.Fprintln(w)
		if last := r.row(way.name, slices.Max(r.sizes)); last != nil && way.name != byPattern {
			times := spreadOf(last.ratios(&one.result, (*sample).cost)).middle
			least, most = min(least, times), max(most, times)
		}
	}
	fmt.Fprintf(w, "\nWith %s rules in an index, a request takes %s to %s times as long as with one rule. Much of that is memory: so many rules do not fit into the processor's caches. "+
		"To a match with a regular expression, add a part that an index finds, such as `request.path.under(\"/api\") && …`.\n", number(float64(slices.Max(r.sizes))), digits(least), digits(most))
}

// celTable has multiples of one evaluation by cel-go.
func (r *ruleRun) celTable(w io.Writer) {
	alone := r.row(celAloneRow, 1)
	fmt.Fprintf(w, `
## Beside cel-go

The programs of cel-go have the same conditions, and %s. *In turn* evaluates all programs of a file, as without an index. A Go map looks the operation up and evaluates nothing. Figures are multiples of one program (%s, allocations: %s), which would still be evaluated beside a map of rules.

| rules | a Go map | Stint, by operation | cel-go in turn, by operation | Stint, by regular expression | cel-go in turn, by regular expression |
|---:|---:|---:|---:|---:|---:|
`, "`OptOptimize`", duration(alone.cost().middle), alone.perCall())
	for _, n := range r.sizes {
		fmt.Fprintf(w, "| %s |", number(float64(n)))
		for _, name := range []string{goMapRow, byOperation, celOperations, byPattern, celPatterns} {
			fmt.Fprintf(w, " %s |", r.row(name, n).over(alone))
		}
		fmt.Fprintln(w)
	}
	n := min(mostInTurn, slices.Max(r.sizes))
	fmt.Fprintf(w, `
Stint takes longer for one rule, because it also checks the request, evaluates the rule's key and lists its limits. With %s rules, cel-go in turn takes %s times as long as Stint by operation, and %s times by regular expression. It then allocates %s and %s times for a request, Stint %s times.
`, number(float64(n)), r.row(celOperations, n).over(r.row(byOperation, n)), r.row(celPatterns, n).over(r.row(byPattern, n)),
		r.row(celOperations, n).perCall(), r.row(celPatterns, n).perCall(), r.row(byPattern, n).perCall())
}

// networksTable has Stint and nginx with the same networks.
func (r *ruleRun) networksTable(w io.Writer) {
	fmt.Fprint(w, `
## Networks, beside nginx

The client is in one of so many networks: of as many rules with `+"`client.ip in cidr(\"…\")`"+`, of one rule with `+"`client.ip in list(\"…\")`"+`, or of a `+"`geo`"+` block of nginx. After each time comes its multiple of that with one network.

| networks | Stint, a rule for each | Stint, one rule with a list |`)
	rule := "|---:|---|---|"
	if len(r.geo) > 0 {
		fmt.Fprint(w, " nginx, one look-up | nginx, a request |")
		rule += "---|---|"
	}
	fmt.Fprintf(w, "\n%s\n", rule)
	for i, n := range r.networks {
		fmt.Fprintf(w, "| %s | %s | %s |", number(float64(n)), r.row(byNetwork, n).timeOver(r.row(byNetwork, 1)), r.lists[i].timeOver(r.lists[0]))
		if len(r.geo) > 0 {
			one, many := r.geo[2*i], r.geo[2*i+1]
			fmt.Fprintf(w, " %s | %s |", beside(perLook(one, many), perLook(r.geo[0], r.geo[1])), beside(one.perRequest(), r.geo[0].perRequest()))
		}
		fmt.Fprintln(w)
	}
	if len(r.geo) == 0 {
		fmt.Fprint(w, "\nnginx was not there to be measured.\n")
		return
	}
	fmt.Fprintf(w, `
The times are not of the same work. Stint's is the part of a decision that finds the rules, their keys and their limits. nginx's are the CPU time of a process that answers with the network's value: requests come over one connection, %d at once, with the client's address in a header. *One look-up* is what each further `+"`geo`"+` block adds to *a request*, which has one: %d blocks against one. They share the processor's caches, so with very many networks, what one look-up takes is less: as much as *a request* takes more. Where the middle half of the rounds has both signs, a difference is not measurable.
`, requestsInTurn, manyLooks)
}

// timeOver is row's time, and how many times as long as other's that is; "–": there is no row.
func (row *ruleRow) timeOver(other *ruleRow) string {
	if row == nil || row == other {
		return row.time()
	}
	return row.time() + ", " + row.over(other)
}

func (row *ruleRow) time() string {
	if row == nil {
		return "–"
	}
	return duration(row.cost().middle)
}

func (r *ruleRun) loadsTable(w io.Writer) {
	fmt.Fprint(w, `
## Loading a file

Rules differ in their operation. cel-go compiles their matches alone. Stint reads the file, compiles keys and limits, too, checks all of it, and makes the index. Here, time is by the clock, with garbage collection; memory is what the heap keeps.

| rules | time | ÷ cel-go | memory | ÷ cel-go |
|---:|---:|---:|---:|---:|
`)
	over := func(a, b []float64) string {
		all := make([]float64, len(a))
		for i := range all {
			all[i] = a[i] / b[i]
		}
		return medianOf(all)
	}
	for i := 0; i < len(r.loads); i += 2 {
		stint, cel := r.loads[i], r.loads[i+1]
		fmt.Fprintf(w, "| %s | %s | %s | %s MB | %s |\n", number(float64(stint.n)), duration(spreadOf(stint.took).middle), over(stint.took, cel.took),
			digits(spreadOf(stint.bytes).middle/1e6), over(stint.bytes, cel.bytes))
	}
}

// picture is docs/benchmarks-rules.svg.
func (r *ruleRun) picture(w io.Writer) {
	var curves []curve
	add := func(label, name string) {
		c := curve{name: label}
		for _, n := range r.sizes {
			row := r.row(name, n)
			if name == celAloneRow {
				row = r.row(name, 1)
			}
			if row != nil {
				c.kind, c.sizes, c.times = row.subject.kind, append(c.sizes, float64(n)), append(c.times, row.cost())
			}
		}
		curves = append(curves, c)
	}
	for _, way := range ruleWays {
		add("Stint, by "+way.name, way.name)
	}
	for _, name := range []string{celOperations, celPatterns, celAloneRow, goMapRow} {
		add(name, name)
	}
	plotCurves(w, "Time to find the rules of a request", "Further down is faster; both scales are logarithmic. One rule of the file applies to the request. Dashed: without Stint.", "rules in the file", curves)
}
