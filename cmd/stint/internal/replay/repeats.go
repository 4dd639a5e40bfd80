package replay

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// Repeats are what the new rules refuse if clients do not give up: each refused request is repeated once its
// Retry-After is over, at most five times. Without that, requests come as they are in the log. Between the two is
// what real clients would meet, if they send no more than that.
type Repeats struct {
	// Refused are requests of the log that are refused at first, and Lost those that never pass.
	Refused int64 `json:"refused"`
	Lost    int64 `json:"lost"`
	// Sent are the repetitions.
	Sent int64 `json:"sent"`
}

const (
	mostRepeats = 5
	mostWaiting = 1 << 17 // requests that wait to be repeated at once
)

// repeater replays the log under rules of its own, with repetitions.
type repeater struct {
	trial   *server.Trial
	waiting repetitions
	found   Repeats
}

// repetition is a request that waits to be repeated at an instant.
type repetition struct {
	at    time.Time
	in    rules.Input
	times int // that it has been repeated
}

type repetitions []repetition

func (q repetitions) Len() int           { return len(q) }
func (q repetitions) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q repetitions) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *repetitions) Push(x any)        { *q = append(*q, x.(repetition)) }
func (q *repetitions) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = repetition{}
	*q = (*q)[:last]
	return x
}

// Repeat makes the Replay find out what is refused if clients repeat. trial is a second one of the new rules. Call
// it before Add.
func (r *Replay) Repeat(trial *server.Trial) { r.repeats = &repeater{trial: trial} }

// add decides a request of the log, after the repetitions that come before it.
func (p *repeater) add(ctx context.Context, in *rules.Input, at time.Time) error {
	if err := p.until(ctx, at); err != nil {
		return err
	}
	refused, wait, err := p.decide(ctx, in, at)
	if refused {
		p.found.Refused++
		p.wait(repetition{at, *in, 0}, wait, true)
	}
	return err
}

// end decides the repetitions that come after the log, and returns what was found.
func (p *repeater) end(ctx context.Context) (*Repeats, error) {
	for len(p.waiting) > 0 {
		if err := p.until(ctx, p.waiting[0].at); err != nil {
			return nil, err
		}
	}
	return &p.found, nil
}

// until decides the repetitions until an instant.
func (p *repeater) until(ctx context.Context, at time.Time) error {
	for len(p.waiting) > 0 && !p.waiting[0].at.After(at) {
		again := heap.Pop(&p.waiting).(repetition)
		p.found.Sent++
		again.times++
		refused, wait, err := p.decide(ctx, &again.in, again.at)
		if err != nil {
			return err
		}
		if refused {
			p.wait(again, wait, false)
		}
	}
	return nil
}

// wait has a refused request repeated, unless that is of no use.
func (p *repeater) wait(r repetition, wait time.Duration, first bool) {
	if r.times == mostRepeats || wait == stint.Never || len(p.waiting) == mostWaiting {
		p.found.Lost++
		return
	}
	if first {
		r.in = kept(r.in)
	}
	r.at = r.at.Add(wait)
	heap.Push(&p.waiting, r)
}

// decide reports whether a request is refused, and for how long.
func (p *repeater) decide(ctx context.Context, in *rules.Input, at time.Time) (refused bool, wait time.Duration, err error) {
	v, err := p.trial.Decide(ctx, in, at)
	switch {
	case errors.Is(err, stint.ErrRequest):
		return false, 0, nil
	case err != nil:
		return false, 0, err
	case v.List == rules.Blocked:
		return true, stint.Never, nil
	}
	return !v.Allowed && v.List != rules.Safe, max(v.RetryAfter, time.Microsecond), nil
}

// kept is in with memory of its own, which does not keep the block of the log that it was read from.
func kept(in rules.Input) rules.Input {
	request := *in.Request
	for _, text := range []*string{&request.Method, &request.Path, &request.Host, &request.RawQuery, &in.Operation} {
		*text = strings.Clone(*text)
	}
	request.Header = maps.Clone(request.Header)
	for name, lines := range request.Header {
		lines = slices.Clone(lines)
		for i := range lines {
			lines[i] = strings.Clone(lines[i])
		}
		request.Header[name] = lines
	}
	in.Request, in.Attrs = &request, maps.Clone(in.Attrs)
	for name, value := range in.Attrs {
		if text, ok := value.(string); ok {
			in.Attrs[name] = strings.Clone(text)
		}
	}
	return in
}
