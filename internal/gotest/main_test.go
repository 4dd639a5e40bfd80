package main

import (
	"strings"
	"testing"
)

// events are of one package that passes, one whose test fails, one that does not
// compile and one that ends in the middle of a test.
const events = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestLong","Output":"=== RUN   TestLong\n"}
{"Action":"output","Package":"a","Test":"TestLong","Output":"    long_test.go:7: a failover takes seconds\n"}
{"Action":"output","Package":"a","Test":"TestLong","Output":"--- SKIP: TestLong (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestLong","Elapsed":0}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a","Elapsed":0.1}
{"Action":"output","Package":"b","Test":"TestBad","Output":"    bad_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"b","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.2s\n"}
{"Action":"fail","Package":"b","Elapsed":0.2}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1:1: expected package\n"}
{"ImportPath":"c","Action":"build-fail"}
{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}
{"Action":"fail","Package":"c","Elapsed":0}
{"Action":"output","Package":"d","Test":"TestDies","Output":"panic: index out of range\n"}
{"Action":"output","Package":"d","Output":"FAIL\td\t0.1s\n"}
{"Action":"fail","Package":"d","Elapsed":0.1}
`

const printed = `ok  	a	0.1s
    bad_test.go:3: got 1, want 2
FAIL	b	0.2s
c.go:1:1: expected package
FAIL	c [build failed]
panic: index out of range
FAIL	d	0.1s
1 tests passed, 1 failed, 1 skipped: a failover takes seconds (1)
`

func TestReport(t *testing.T) {
	var to strings.Builder
	r := report{to: &to, output: map[string][]string{}, skipped: map[string]int{}}
	r.read(strings.NewReader(events))
	r.sum()
	if got := to.String(); got != printed {
		t.Errorf("printed\n%s\nwant\n%s", got, printed)
	}
}
