package server

import (
	"errors"
	"slices"
	"sync"
)

// batch is what a check request asks, one check or several, with what becomes of
// each. It is used again and again: what a list of 100 takes anew would be collected
// after a dozen such lists.
type batch struct {
	inputs      []*checkInput
	evaluations []evaluation // of inputs
	lines       []string
	answer      []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// Room for any number of checks is used again, some 2 MB where they are 1,000, until
// the collector finds it idle; but no more than this for header lines, bytes of an
// answer, and headers of one check.
const (
	keptLines   = 4096
	keptAnswer  = 1 << 20
	keptHeaders = 8
)

// free lets go of what belongs to the request. Nobody else has any of it: a Store
// keeps nothing of what it is asked but copies of keys.
func (b *batch) free() {
	if cap(b.lines) > keptLines || cap(b.answer) > keptAnswer {
		return
	}
	for _, q := range b.inputs {
		if len(q.header) > keptHeaders {
			q.header = nil
		}
		clear(q.header)
		*q = checkInput{header: q.header}
	}
	clear(b.evaluations)
	clear(b.lines)
	b.inputs, b.evaluations, b.lines = b.inputs[:0], b.evaluations[:0], b.lines[:0]
	batches.Put(b)
}

// next is the next input, to be read.
func (b *batch) next() *checkInput {
	n := len(b.inputs)
	if n < cap(b.inputs) && b.inputs[:n+1][n] != nil {
		b.inputs = b.inputs[:n+1] // of an earlier request
	} else {
		b.inputs = append(b.inputs, new(checkInput))
	}
	return b.inputs[n]
}

// read reads a body: one check, or a list of them. What is wrong with one of several
// is the error of its evaluation; err is about all of them.
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
		return several, badInput("%w", err)
	}
	b.evaluations = slices.Grow(b.evaluations, len(b.inputs))[:len(b.inputs)]
	for i, q := range b.inputs {
		if t := &b.evaluations[i]; q.err != nil {
			t.err = badInput("%w", q.err)
		} else {
			t.in = &q.Input
		}
	}
	return several, nil
}

// readNext reads one of several checks.
func (b *batch) readNext(r *inputReader) error {
	if len(b.inputs) == maxChecks {
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

// check reads what a check request asks into q, which must be as new.
func (r *inputReader) check(q *checkInput) error {
	if err := r.input(q); err != nil {
		return err
	}
	if q.timed {
		return errTimed
	}
	return nil
}
