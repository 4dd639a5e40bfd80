// Gotest runs go test with the arguments given, and ends with one line that says how
// many tests ran, which were skipped and why. "go test" prints nothing of those that are
// skipped.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	test := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	test.Stderr = os.Stderr
	events, err := test.StdoutPipe()
	if err == nil {
		err = test.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	r := report{to: os.Stdout, output: map[string][]string{}, skipped: map[string]int{}}
	r.read(events)
	failed := test.Wait() != nil
	r.sum()
	if failed {
		os.Exit(1)
	}
}

// An event is one line of go test -json; see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// A report prints what a person wants of the events.
type report struct {
	to      io.Writer
	output  map[string][]string // of tests that run, and of packages
	skipped map[string]int      // by reason
	passed  int
	failed  int
}

func (r *report) read(events io.Reader) {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.to, lines.Text())
			continue
		}
		r.note(&e)
	}
}

func (r *report) note(e *event) {
	name := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.to, e.Output)
	case e.Action == "output":
		r.output[name] = append(r.output[name], e.Output)
	case e.Test == "":
		r.notePackage(e, name)
	case e.Action == "pass":
		r.passed++
		delete(r.output, name)
	case e.Action == "skip":
		r.skipped[reason(r.output[name])]++
		delete(r.output, name)
	case e.Action == "fail":
		r.failed++
		r.print(name)
	}
}

// notePackage prints the last line of a package that passed, such as "ok" and its time,
// and all that one that failed has printed outside of its tests.
func (r *report) notePackage(e *event, name string) {
	switch e.Action {
	case "pass":
		if out := r.output[name]; len(out) > 0 {
			fmt.Fprint(r.to, out[len(out)-1])
		}
	case "fail":
		for test := range r.output { // what was running when the package ended
			if strings.HasPrefix(test, name) && test != name {
				r.print(test)
			}
		}
		r.print(name)
	default:
		return
	}
	delete(r.output, name)
}

func (r *report) print(name string) {
	for _, line := range r.output[name] {
		fmt.Fprint(r.to, line)
	}
	delete(r.output, name)
}

// reason is what a test that was skipped said last, without the place where it said it.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		place, why, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && strings.Contains(place, ".go:") {
			return why
		}
	}
	return "no reason given"
}

func (r *report) sum() {
	all := 0
	var why []string
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		all += r.skipped[reason]
		why = append(why, fmt.Sprintf("%s (%d)", reason, r.skipped[reason]))
	}
	line := fmt.Sprintf("%d tests passed, %d failed, %d skipped", r.passed, r.failed, all)
	if all > 0 {
		line += ": " + strings.Join(why, "; ")
	}
	fmt.Fprintln(r.to, line)
}
