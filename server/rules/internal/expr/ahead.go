package expr

import "sync"

// entry is what came of compiling an expression.
type entry struct {
	of       typed
	once     sync.Once
	compiled compiled
	problems []Problem
}

func (c *Compiler) entry(of typed) *entry {
	e := c.entries[of]
	if e == nil {
		e = &entry{of: of}
		c.entries[of] = e
	}
	return e
}

// result is what comes of compiling an expression. If another goroutine is about it, result waits.
func (c *Compiler) result(e *entry) (compiled, []Problem) {
	e.once.Do(func() { e.compiled, e.problems = c.compile(e.of.source, e.of.as) })
	return e.compiled, e.problems
}

const (
	// mostWorkers bounds the memory that compiling takes at once. The rest of a reading has one goroutine, so
	// more would hardly help.
	mostWorkers = 4
	// mostBegun bounds the expressions that wait for a worker.
	mostBegun = 256
)

// Work has up to 4 goroutines compile what Begin names, until stop, which returns when they have ended.
// Call it when NAT64 is known.
func (c *Compiler) Work(workers int) (stop func()) {
	begun := make(chan *entry, mostBegun)
	c.begun = begun
	var running sync.WaitGroup
	for range min(workers, mostWorkers) {
		running.Go(func() {
			for e := range begun {
				if c.ctx.Err() == nil {
					c.result(e)
				}
			}
		})
	}
	return func() {
		c.begun = nil
		close(begun)
		for range begun { // what nobody called for needs no worker
		}
		running.Wait()
	}
}

// Begin has an expression compiled by a goroutine of Work, if one has time, for a call of Compile to come.
// It charges and reports nothing: Compile does, so that bounds and problems do not depend on who was first.
func (c *Compiler) Begin(source string, as *Type) {
	if c.begun == nil || c.source < 0 || len(source) > MaxExpression {
		return
	}
	of := typed{source, as}
	if _, known := c.entries[of]; known {
		return
	}
	e := &entry{of: of}
	select {
	case c.begun <- e:
		c.entries[of] = e
	default:
	}
}
