package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// errBug is the error of a request of a list whose decision panicked.
var errBug = errors.New("the decision panicked")

// each does a stage of the decision of each of all that could be read.
func (s *Server) each(a *arrival, all []evaluation, stage func(*evaluation)) {
	for i := range all {
		if t := &all[i]; t.in != nil {
			s.contain(a, all[i:i+1], func() { stage(t) })
		}
	}
}

// contain does a stage of the decisions of some requests of a list. If that panics, these requests get
// errBug, and the others of the list their answers. A request that came alone lets the panic go on to
// whoever serves it.
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
			if t := &some[i]; t.err == nil && (len(some) == 1 || len(t.groups) > 0) { // others asked nothing
				t.err = errBug
			}
		}
	}()
	stage()
}
