package check

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/decide"
)

// batch is a check request of one check or several, with the results. Batches are reused: new
// memory for each list of 100 would run the garbage collector after a dozen lists.
type batch struct {
	inputs   []*Input
	requests []decide.Request // of inputs; empty for charges
	charges  []decide.Charge
	lines    []string
	answer   []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// Memory for checks is reused, some 2 MB for 1,000 checks, until the garbage collector finds the batch idle.
// These bound the header lines, the bytes of an answer and the headers of one check that are kept.
const (
	keptLines   = 4096
	keptAnswer  = 1 << 20
	keptHeaders = 8
)

// free drops the request's data. Nothing else refers to it: a Store keeps only copies of keys.
func (b *batch) free() {
	if cap(b.lines) > keptLines || cap(b.answer) > keptAnswer {
		return
	}
	for _, q := range b.inputs {
		if len(q.header) > keptHeaders {
			q.header = nil
		}
		clear(q.header)
		*q = Input{header: q.header}
	}
	clear(b.requests)
	clear(b.charges)
	clear(b.lines)
	b.inputs, b.requests, b.charges, b.lines = b.inputs[:0], b.requests[:0], b.charges[:0], b.lines[:0]
	batches.Put(b)
}

// next is the next input to read into.
func (b *batch) next() *Input {
	n := len(b.inputs)
	if n < cap(b.inputs) && b.inputs[:n+1][n] != nil {
		b.inputs = b.inputs[:n+1] // of an earlier request
	} else {
		b.inputs = append(b.inputs, new(Input))
	}
	return b.inputs[n]
}

// read reads a body: one check, or a list of them. If one check of a list is wrong, its
// request has the error; err is about the whole body.
func (b *batch) read(body string) (several bool, err error) {
	r, err := newInputReader(body)
	if err != nil {
		return false, err
	}
	r.lines = b.lines
	if several = r.Peek() == '['; several {
		err = r.List(func() error { return b.readNext(r) })
	} else {
		err = r.check(b.next())
	}
	b.lines = r.lines
	switch err = r.End(err); {
	case errors.Is(err, errManyChecks):
		return several, err
	case err != nil:
		return several, BadInput("%w", err)
	}
	b.requests = slices.Grow(b.requests, len(b.inputs))[:len(b.inputs)]
	for i, q := range b.inputs {
		switch t := &b.requests[i]; {
		case q.err != nil:
			t.Err = BadInput("%w", q.err)
			t.Kind = decide.KindOf(&t.Verdict, t.Err)
		case q.Kind == ChargeUnits:
			q.Spent = q.Costed
			b.charges = append(b.charges, decide.Charge{In: &q.Input})
		default:
			t.In = &q.Input
			if q.Kind == HoldUnits {
				t.Hold, t.HoldFor, t.Opaque = stint.NewHoldID(), q.holdFor, true
			}
		}
	}
	return several, nil
}

// readNext reads one check of a list.
func (b *batch) readNext(r *inputReader) error {
	if len(b.inputs) == MaxChecks {
		return errManyChecks
	}
	q, start := b.next(), r.Mark()
	if q.err = r.check(q); q.err == nil {
		return nil
	}
	if err := r.Valid(); err != nil {
		return err
	}
	r.SkipFrom(start)
	return nil
}

// check reads a check into q, which must be empty.
func (r *inputReader) check(q *Input) (err error) {
	if err := r.input(q); err != nil {
		return err
	}
	if err := q.isCheck(); err != nil {
		return err
	}
	if q.Kind != HoldUnits {
		return nil
	}
	if q.holdFor, err = parseHoldFor(q.Hold); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}
