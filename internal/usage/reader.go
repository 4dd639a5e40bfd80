// Package usage reads single values from JSON while it streams past: the final cost in a response,
// and the estimated cost in a request. It keeps only the values, however long the JSON is.
package usage

import (
	"iter"
	"slices"
	"sync"
)

// Reader finds the last value of each of its paths in the body of a response. Pass the body to
// Write, and then call Close. The body may have any of these forms, whatever its content type:
//
//   - One JSON value.
//   - A list. A path is looked for in each element that is an object, as in an event of a stream,
//     and also in the list itself, by the indices of its elements.
//   - JSON values one after the other: in lines, after a record separator each (RFC 7464), or with
//     nothing between them.
//   - Server-sent events with JSON as their data.
//
// It may be encoded by gzip, deflate, br or zstd, or several of them.
//
// A Reader may be used from many goroutines at once.
type Reader struct {
	mu     sync.Mutex
	paths  [][]string
	values []any // of paths; nil: none yet
	seen   []any // of the JSON being read; they may turn out not to count
	err    error
	closed bool
	bytes  int64 // not compressed
	events int64 // with JSON

	hint      hint
	declared  bool   // the content type is of a readable form
	media     string // the content type
	decodings []decoding
	free      []func() // of what the decodings took

	// A coroutine reads the body; next resumes it, and it stops when it needs more than chunk. nil:
	// it has not begun.
	next  func() (struct{}, bool)
	stop  func()
	chunk []byte
	done  bool
}

// New returns a Reader of paths for a body with these headers; several lines of Content-Encoding
// are joined by commas. Each path has at least one element: the name of a member of an object, or
// the index of an element of a list.
func New(paths [][]string, contentType, contentEncoding string) *Reader {
	r := &Reader{paths: paths, values: make([]any, len(paths)), media: contentType}
	r.hint, r.declared = hintOf(contentType)
	var err error
	if r.decodings, err = decodingsOf(contentEncoding); err != nil {
		r.fail(err)
	}
	return r
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.done = true
}

// Write reads p. It keeps nothing of p and never fails.
func (r *Reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) > 0 && !r.done && !r.closed {
		if r.next == nil {
			r.next, r.stop = iter.Pull(r.read)
		}
		r.chunk = p
		if _, more := r.next(); !more {
			r.done = true
		}
		r.chunk = nil
	}
	return len(p), nil
}

// Close ends the body. It must be called, or a goroutine leaks. Do not write after it. It may be
// called again.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	if r.next != nil && !r.done {
		r.next() // which reads the end
		r.stop()
	}
	return nil
}

// Value returns the last value of path, which must be one of the paths of New: a string, bool,
// int64 or float64, or a []any or map[string]any of those. It is not ok if there was none, or only
// null, or if it is longer than 64 KiB. Before Close it may be out of date.
func (r *Reader) Value(path []string) (value any, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.paths {
		if slices.Equal(p, path) {
			return r.values[i], r.values[i] != nil
		}
	}
	return nil, false
}

// Passed returns how much of the body was read: its bytes without compression, and the number of
// JSON values in a stream: events, lines, or elements of a list that are objects. A body that is
// one other value has no events. Before Close it may be out of date.
func (r *Reader) Passed() (bytes, events int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.events
}

// Err returns why the body could not be read to its end. nil: it was read, or ended early.
func (r *Reader) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// read is the coroutine. It holds mu while it runs, because Write and Close do.
func (r *Reader) read(yield func(struct{}) bool) {
	more := func() []byte {
		for len(r.chunk) == 0 {
			if r.closed || !yield(struct{}{}) {
				return nil
			}
		}
		p := r.chunk
		r.chunk = nil
		return p
	}
	if len(r.decodings) > 0 {
		wire := &source{input: input{more: more}}
		from := wire
		for _, d := range slices.Backward(r.decodings) {
			more = r.decoded(d, from, wire)
			from = &source{input: input{more: more}}
		}
		defer func() {
			for _, free := range r.free {
				free()
			}
		}()
	}
	in := input{more: func() []byte {
		p := more()
		r.bytes += int64(len(p))
		return p
	}}
	r.readForm(&in)
}
