// Testreport ends a run of tests: it says how many tests ran, which were skipped and why, which
// were unsteady, and for each that failed what it printed last and how to repeat it.
//
//	testreport FOLDER NAME COMMAND [NAME COMMAND ...]
//
// FOLDER/NAME.json is what "go test -json" printed of one stage of the run, with its reruns, and
// COMMAND repeats tests of that stage. A test is unsteady if it failed and passed when it ran
// again; what it printed each time goes to FOLDER/unsteady.txt. The status is 1 if a test failed
// whenever it ran, if a package failed outside of its tests, or if more than three tests are
// unsteady.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(to io.Writer, args []string) error {
	if len(args) < 3 || len(args)%2 == 0 {
		return errors.New("want FOLDER NAME COMMAND [NAME COMMAND ...]")
	}
	r := newReport()
	for stage := range slices.Chunk(args[1:], 2) {
		file, err := os.Open(filepath.Join(args[0], stage[0]+".json"))
		if err != nil {
			return err
		}
		err = r.read(file, stage[1])
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return r.end(to, filepath.Join(args[0], "unsteady.txt"))
}

// An event is one line of go test -json; see go doc test2json.
type event struct{ Action, Package, ImportPath, FailedBuild, Test, Output string }

func (r *report) read(events io.Reader, command string) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%w in %.200q", err, lines.Text())
		}
		r.note(&e, command)
	}
	return lines.Err()
}
