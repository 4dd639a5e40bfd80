package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	mostUnsteady = 3  // tests in a run that is green
	mostLines    = 40 // of each test that failed
)

// A key names a test or a subtest in a stage, or a package if test is empty.
type key struct{ command, pkg, test string }

func (k key) root() key {
	k.test, _, _ = strings.Cut(k.test, "/")
	return k
}

func (k key) String() string {
	if k.test == "" {
		return k.pkg
	}
	return k.test + " of " + k.pkg
}

// repeat is the command that runs k again.
func (k key) repeat(seed string) string {
	command := k.command
	if seed != "" {
		command = "STINT_SEED=" + seed + " " + command
	}
	if k.test != "" {
		command += " -run '^" + k.test + "$'"
	}
	return command + " " + k.pkg
}

type outcome struct {
	failed bool
	lines  []string
}

type report struct {
	last   map[key]string    // pass, fail or skip, of every test and subtest
	said   map[key]string    // its last log
	lines  map[key][]string  // of the run of a test under way, with its subtests
	runs   map[key][]outcome // of tests, and of packages that failed outside of their tests
	failed map[key]bool      // packages with a failed test in the run under way
	built  map[string][]string
}

func newReport() *report {
	return &report{
		last: map[key]string{}, said: map[key]string{}, lines: map[key][]string{},
		runs: map[key][]outcome{}, failed: map[key]bool{}, built: map[string][]string{},
	}
}

func (r *report) note(e *event, command string) {
	k := key{command, e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.built[e.ImportPath] = append(r.built[e.ImportPath], e.Output)
	case "output":
		r.lines[k.root()] = append(r.lines[k.root()], e.Output)
		if place, text, ok := strings.Cut(strings.TrimSpace(e.Output), ": "); ok && strings.Contains(place, ".go:") {
			r.said[k] = text
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(k, e)
			return
		}
		r.last[k] = e.Action
		if k == k.root() {
			r.endTest(k, e.Action == "fail")
		}
	}
}

func (r *report) endTest(k key, failed bool) {
	r.runs[k] = append(r.runs[k], outcome{failed, r.lines[k]})
	delete(r.lines, k)
	if failed {
		r.failed[key{k.command, k.pkg, ""}] = true
	}
}

// endPackage notes that the tests still running failed, or the package if none of its tests did.
func (r *report) endPackage(k key, e *event) {
	if e.Action == "fail" {
		for running := range r.lines {
			if running.command == k.command && running.pkg == k.pkg && running.test != "" {
				r.last[running] = "fail"
				r.endTest(running, true)
			}
		}
		if !r.failed[k] {
			r.runs[k] = append(r.runs[k], outcome{true, append(r.built[e.FailedBuild], r.lines[k]...)})
		}
	}
	delete(r.lines, k)
	delete(r.failed, k)
}

// end prints the report and writes the outputs of unsteady tests to the file.
func (r *report) end(to io.Writer, file string) error {
	var failed, unsteady []key
	for k, runs := range r.runs {
		switch {
		case runs[len(runs)-1].failed:
			failed = append(failed, k)
		case slices.ContainsFunc(runs, func(o outcome) bool { return o.failed }):
			unsteady = append(unsteady, k)
		}
	}
	r.printFailed(to, sorted(failed))
	r.printSum(to)
	if err := r.writeUnsteady(to, sorted(unsteady), file); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d failed", len(failed))
	}
	if len(unsteady) > mostUnsteady {
		return fmt.Errorf("%d unsteady tests, more than %d", len(unsteady), mostUnsteady)
	}
	return nil
}

func sorted(keys []key) []key {
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test), strings.Compare(a.command, b.command))
	})
	return keys
}

var seeds = regexp.MustCompile(`\bseed (\d+)`)

func (r *report) printFailed(to io.Writer, failed []key) {
	for _, k := range failed {
		runs := r.runs[k]
		all := runs[len(runs)-1].lines
		lines := excerpt(all)
		fmt.Fprintf(to, "\nFAILED %s, in each of %d runs", k, len(runs))
		if len(lines) < len(all) {
			fmt.Fprintf(to, "; %d lines of %d", len(lines), len(all))
		}
		seed := ""
		for _, found := range seeds.FindAllStringSubmatch(strings.Join(all, ""), -1) {
			seed = found[1] // a test with several seeds fails at the last
		}
		fmt.Fprintf(to, ":\n%srepeat it: %s\n", strings.Join(lines, ""), k.repeat(seed))
	}
	if len(failed) > 0 {
		fmt.Fprintln(to)
	}
}

// excerpt returns the last lines, or those from a panic on, which is followed by the stacks of all
// goroutines.
func excerpt(lines []string) []string {
	from := max(0, len(lines)-mostLines)
	for i, line := range lines[:from] {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			from = i
			break
		}
	}
	return lines[from:min(len(lines), from+mostLines)]
}

// printSum prints the numbers of tests and subtests by result, and why some were skipped.
func (r *report) printSum(to io.Writer) {
	ended, reasons := map[string]int{}, map[string]int{}
	for k, action := range r.last {
		if ended[action]++; action == "skip" {
			reasons[cmp.Or(r.said[k], "no reason given")]++
		}
	}
	fmt.Fprintf(to, "%d tests passed, %d failed, %d skipped", ended["pass"], ended["fail"], ended["skip"])
	before := ": "
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(to, "%s%s (%d)", before, reason, reasons[reason])
		before = "; "
	}
	fmt.Fprintln(to)
}

func (r *report) writeUnsteady(to io.Writer, unsteady []key, file string) error {
	if len(unsteady) == 0 {
		return nil
	}
	var all strings.Builder
	for _, k := range unsteady {
		for i, run := range r.runs[k] {
			ended := "passed"
			if run.failed {
				ended = "FAILED"
			}
			fmt.Fprintf(&all, "=== %s: run %d %s\n%s\n", k, i+1, ended, strings.Join(run.lines, ""))
		}
		fmt.Fprintf(to, "unsteady: %s; it failed, and passed when it ran again\n", k)
	}
	fmt.Fprintf(to, "unsteady: what these printed is in %s\n", file)
	return os.WriteFile(file, []byte(all.String()), 0o644)
}
