package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// errBug is the error of a request of a list whose decision panicked.
var errBug = errors.New("the decision panicked")

// each does a stage of the decision of each of all that could be read. others reports whether their list
// has others.
func (s *Server) each(all []evaluation, others bool, stage func(*evaluation)) {
	for i := range all {
		if t := &all[i]; t.in != nil {
			s.contain(all[i:i+1], others, func() { stage(t) })
		}
	}
}

// contain does a stage of the decisions of some requests of a list. If that panics, these requests get
// errBug, and the others of the list their answers. If there are no others, the panic goes on to
// whoever serves the request.
func (s *Server) contain(some []evaluation, others bool, stage func()) {
	if !others {
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
			if t := &some[i]; t.err == nil && (len(some) == 1 || len(t.groups) > 0) { // others asked nothing
				t.err = errBug
			}
		}
	}()
	stage()
}
