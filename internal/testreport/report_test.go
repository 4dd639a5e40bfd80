package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// first is of a package that passes, and one with a test that fails and then passes alone.
const first = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"a","Test":"TestGood/part","Elapsed":0.1}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestLong","Output":"=== RUN   TestLong\n"}
{"Action":"output","Package":"a","Test":"TestLong","Output":"    long_test.go:7: a failover takes seconds\n"}
{"Action":"output","Package":"a","Test":"TestLong","Output":"--- SKIP: TestLong (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestLong","Elapsed":0}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a","Elapsed":0.1}
{"Action":"output","Package":"b","Test":"TestLate","Output":"    late_test.go:3: too late\n"}
{"Action":"fail","Package":"b","Test":"TestLate","Elapsed":0}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.2s\n"}
{"Action":"fail","Package":"b","Elapsed":0.2}
{"Action":"output","Package":"b","Test":"TestLate","Output":"    late_test.go:9: in time\n"}
{"Action":"pass","Package":"b","Test":"TestLate","Elapsed":0}
{"Action":"pass","Package":"b","Elapsed":0.1}
`

// second is of a package with a test that fails, one that does not compile, one that ends in the
// middle of a test, and one that fails after its tests, and then passes without them.
const second = `{"Action":"output","Package":"b","Test":"TestBad/one","Output":"    bad_test.go:3: seed 17: got 1, want 2\n"}
{"Action":"fail","Package":"b","Test":"TestBad/one","Elapsed":0}
{"Action":"fail","Package":"b","Test":"TestBad","Elapsed":0}
{"Action":"fail","Package":"b","Elapsed":0.2}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1:1: expected package\n"}
{"ImportPath":"c","Action":"build-fail"}
{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}
{"Action":"fail","Package":"c","Elapsed":0,"FailedBuild":"c"}
{"Action":"output","Package":"d","Test":"TestDies","Output":"panic: index out of range\n"}
{"Action":"output","Package":"d","Output":"FAIL\td\t0.1s\n"}
{"Action":"fail","Package":"d","Elapsed":0.1}
{"Action":"pass","Package":"e","Test":"TestFine","Elapsed":0}
{"Action":"output","Package":"e","Output":"goroutines are left\n"}
{"Action":"fail","Package":"e","Elapsed":0.1}
{"Action":"pass","Package":"e","Elapsed":0.1}
`

// reportOf runs testreport on the events of some stages.
func reportOf(t *testing.T, stages ...string) (printed, unsteady string, err error) {
	t.Helper()
	args := []string{t.TempDir()}
	for i, events := range stages {
		name := strconv.Itoa(i)
		if err := os.WriteFile(filepath.Join(args[0], name+".json"), []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name, "go test -short")
	}
	var to strings.Builder
	err = run(&to, args)
	text, _ := os.ReadFile(filepath.Join(args[0], "unsteady.txt"))
	return strings.ReplaceAll(to.String(), args[0], "FOLDER"), string(text), err
}

func TestGreen(t *testing.T) {
	printed, unsteady, err := reportOf(t, first)
	const want = `3 tests passed, 0 failed, 1 skipped: a failover takes seconds (1)
unsteady: TestLate of b; it failed, and passed when it ran again
unsteady: what these printed is in FOLDER/unsteady.txt
`
	if printed != want || err != nil {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, printed, want)
	}
	const outputs = `=== TestLate of b: run 1 FAILED
    late_test.go:3: too late

=== TestLate of b: run 2 passed
    late_test.go:9: in time

`
	if unsteady != outputs {
		t.Errorf("unsteady.txt has\n%s\nwant\n%s", unsteady, outputs)
	}
}

func TestRed(t *testing.T) {
	printed, _, err := reportOf(t, second)
	const want = `
FAILED TestBad of b, in each of 1 runs:
    bad_test.go:3: seed 17: got 1, want 2
repeat it: STINT_SEED=17 go test -short -run '^TestBad$' b

FAILED c, in each of 1 runs:
c.go:1:1: expected package
FAIL	c [build failed]
repeat it: go test -short c

FAILED TestDies of d, in each of 1 runs:
panic: index out of range
repeat it: go test -short -run '^TestDies$' d

FAILED e, in each of 1 runs:
goroutines are left
repeat it: go test -short e

1 tests passed, 3 failed, 0 skipped
`
	if printed != want || err == nil {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, printed, want)
	}
}

// Of a long output the end is printed, or what follows a panic.
func TestExcerpt(t *testing.T) {
	for panics, want := range map[int]string{-1: "line 60\nline 61\n", 7: "panic: 7\nline 8\n", 70: "line 60\nline 61\n"} {
		var events strings.Builder
		for i := range 100 {
			word := "line"
			if i == panics {
				word = "panic:"
			}
			fmt.Fprintf(&events, `{"Action":"output","Package":"a","Test":"TestA","Output":"%s %d\n"}`+"\n", word, i)
		}
		events.WriteString(`{"Action":"fail","Package":"a","Test":"TestA"}` + "\n")
		printed, _, _ := reportOf(t, events.String())
		if !strings.Contains(printed, "; 40 lines of 100:\n"+want) {
			t.Error(printed)
		}
	}
}

// Tests that passed at a second look let a run pass, unless there are many of them, in whatever stages.
func TestManyUnsteady(t *testing.T) {
	for most := range 6 {
		_, unsteady, err := reportOf(t, packages(first, most)...)
		if got := strings.Count(unsteady, "FAILED"); got != most || (err == nil) != (most <= 3 && most > 0) {
			t.Errorf("%d unsteady: %d in the file, %v", most, got, err)
		}
	}
}

// packages returns n stages, each with tests of another package.
func packages(events string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, strings.ReplaceAll(events, `"Package":"b"`, `"Package":"b`+strconv.Itoa(i)+`"`))
	}
	return all
}
