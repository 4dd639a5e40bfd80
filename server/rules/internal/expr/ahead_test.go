package expr

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// numbered is a condition of its own for each i.
func numbered(i int) string { return fmt.Sprintf(`operation == "%d"`, i) }

// compiledBy is how many expressions c has compiled. No goroutine may be about one: the race detector would see
// it.
func compiledBy(c *Compiler) (n int) {
	for _, e := range c.entries {
		if e.compiled.Expression != nil {
			n++
		}
	}
	return n
}

// What is begun is charged and told only when Compile is called for it, and is compiled once.
func TestBegin(t *testing.T) {
	c := NewCompiler(t.Context())
	stop := c.Work(4)
	for i := range 2 * mostBegun {
		c.Begin(numbered(i), Condition)
		c.Begin(numbered(i)+" = ", Condition)
	}
	if c.source != MaxExpressions || c.constants != MaxConstants || c.steps != MaxPatterns {
		t.Errorf("charged: %d, %d and %d are left", c.source, c.constants, c.steps)
	}
	for i := range 2 * mostBegun { // also what found no worker
		e, problems := c.Compile(numbered(i), Condition)
		if again, _ := c.Compile(numbered(i), Condition); e == nil || problems != nil || e != again {
			t.Fatalf("%s: got %p and %p, %v", numbered(i), e, again, problems)
		}
		for range 2 {
			if _, problems := c.Compile(numbered(i)+" = ", Condition); len(problems) == 0 {
				t.Fatalf("%s: no problem", numbered(i))
			}
		}
	}
	stop()
	if n := compiledBy(c); n != 2*mostBegun {
		t.Errorf("%d compiled", n)
	}
	if c.Begin("operation == 'late'", Condition); len(c.entries) != 4*mostBegun {
		t.Errorf("%d entries", len(c.entries))
	}
}

// Nothing is compiled for nobody, nor what Compile would refuse for its length.
func TestBeginStops(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	c := NewCompiler(gone)
	stop := c.Work(4)
	c.Begin(numbered(1), Condition)
	if stop(); compiledBy(c) > 0 {
		t.Error("compiled for nobody")
	}
	c = NewCompiler(t.Context())
	stop = c.Work(4)
	c.Begin(strings.Repeat("(", MaxExpression+1), Condition)
	for range MaxExpressions/MaxExpression + 1 {
		_, _ = c.Compile(strings.Repeat("(", MaxExpression), Condition)
	}
	known := len(c.entries)
	c.Begin(numbered(1), Condition)
	if stop(); known != 1 || len(c.entries) != 1 {
		t.Errorf("%d and %d entries", known, len(c.entries))
	}
}
