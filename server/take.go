package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// take asks the store about the groups of all: in one go about what is enforced, just
// as if there were no others, and in others about the rules in shadow mode, whose answers
// may not be wanted.
func (s *Server) take(ctx context.Context, all []evaluation, shadowsWanted bool) {
	enforced, shadows := 0, 0
	var one *group          // the last that is enforced
	var least time.Duration // that one of those waits; 0: none says
	for i := range all {
		for j := range all[i].groups {
			g := &all[i].groups[j]
			if g.inShadow() {
				shadows++
				continue
			}
			enforced, one = enforced+1, g
			if d := g.request.Deadline; d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	if shadows > 0 {
		wait := s.takeShadows(ctx, shadowsOf(all, shadows), least, shadowsWanted)
		defer wait()
	}
	start := s.metrics.now()
	switch enforced {
	case 0:
	case 1:
		a := &one.answer
		a.Decision, a.Err = s.decider.Take(ctx, &one.request, a.Each)
		s.called(start, a.Err)
	default:
		s.called(start, s.takeBatch(ctx, all, enforced))
	}
}

// asked is what a Store is asked in one call, and what it answers. It is used again,
// for a Store keeps nothing of that.
type asked struct {
	requests []stint.Request
	answers  []stint.Answer
}

var asks = sync.Pool{New: func() any { return new(asked) }}

// takeBatch asks the store about the n groups of all that are enforced. Of several
// failures it returns one, and one that is the store's if there is any.
func (s *Server) takeBatch(ctx context.Context, all []evaluation, n int) (err error) {
	a := asks.Get().(*asked)
	a.requests, a.answers = slices.Grow(a.requests, n), slices.Grow(a.answers, n)
	for i := range all {
		for j := range all[i].groups {
			if g := &all[i].groups[j]; !g.inShadow() {
				a.requests, a.answers = append(a.requests, g.request), append(a.answers, stint.Answer{Each: g.answer.Each})
			}
		}
	}
	s.decider.TakeBatch(ctx, a.requests, a.answers)
	k := 0
	for i := range all {
		for j := range all[i].groups {
			if all[i].groups[j].inShadow() {
				continue
			}
			answer := &all[i].groups[j].answer
			*answer = a.answers[k]
			k++
			if e := answer.Err; e != nil && (err == nil || errors.Is(err, stint.ErrRequest)) {
				err = e
			}
		}
	}
	if n <= maxChecks {
		clear(a.requests)
		clear(a.answers)
		a.requests, a.answers = a.requests[:0], a.answers[:0]
		asks.Put(a)
	}
	return err
}
