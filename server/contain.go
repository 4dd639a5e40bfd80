package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// errBug is the error of a request of a list whose decision panicked.
var errBug = errors.New("the decision panicked")

// each runs a stage of the decision for each request of all that could be read.
func (s *Server) each(a *arrival, all []evaluation, stage func(*evaluation)) {
	for i := range all {
		if t := &all[i]; t.in != nil {
			s.contain(a, all[i:i+1], func() { stage(t) })
		}
	}
}

// contain runs a stage of the decision for some requests of a list. If it panics, these requests get errBug,
// and the others of the list their answers. For a request that came alone, the panic reaches the caller.
func (s *Server) contain(a *arrival, some []evaluation, stage func()) {
	if !a.several {
		stage()
		return
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		const text = "panic in the decision of a list"
		s.sampled.log(slog.LevelError, text, text, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		for i := range some {
			if t := &some[i]; t.err == nil && (len(some) == 1 || len(t.groups) > 0) { // the others asked nothing
				t.err = errBug
			}
		}
	}()
	stage()
}
