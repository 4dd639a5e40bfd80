// Package usage reads single values out of JSON while it streams past: what a response says
// that it cost, and what a request says that it may cost. It keeps the values and nothing else,
// however long the JSON is.
package usage

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"slices"
	"strings"
	"sync"
)

// Reader finds the last value of each of its paths in the body of a response. It is fed the body
// by Write and closed by Close. The body is one JSON value, server-sent events or lines with a
// JSON value each, and may be compressed by gzip or deflate.
//
// It may be used from many goroutines at once.
type Reader struct {
	mu     sync.Mutex
	paths  [][]string
	values []any // of paths; nil: none yet
	err    error
	closed bool
	bytes  int64 // not compressed
	events int64 // with JSON

	kind  kind
	unzip func(*source) (io.Reader, error) // nil: the body is not compressed

	// The body is read by a coroutine, which next resumes and which stops where it needs more
	// than chunk. nil: it has not begun.
	next  func() (struct{}, bool)
	stop  func()
	chunk []byte
	done  bool
}

// kind is the form of a body.
type kind uint8

const (
	whole  kind = iota // one JSON value
	events             // server-sent events
	lines              // a JSON value in each line
)

// New returns a Reader of paths for a body with these headers. Each path has at least one
// element: the name of a member of an object, or the index of an element of a list.
func New(paths [][]string, contentType, contentEncoding string) *Reader {
	r := &Reader{paths: paths, values: make([]any, len(paths))}
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case media == "text/event-stream":
		r.kind = events
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl":
		r.kind = lines
	case media == "application/json", media == "text/json", strings.HasSuffix(media, "+json"):
	default:
		r.fail(fmt.Errorf("content type %.60q: want JSON or server-sent events", contentType))
	}
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		r.fail(fmt.Errorf("content type %.60q: %w", contentType, err))
	}
	switch encoding := strings.ToLower(strings.TrimSpace(contentEncoding)); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		r.unzip = func(s *source) (io.Reader, error) { return gzip.NewReader(s) }
	case "deflate":
		r.unzip = inflate
	default:
		r.fail(fmt.Errorf("content encoding %.60q: want gzip, deflate or none", contentEncoding))
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

// Close ends the body. It must be called, or a goroutine stays. Nothing is written after it. It
// may be called again.
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

// Value is the last value of path, which must be one of those that New got: a string, bool,
// int64 or float64, or a []any or map[string]any of those. It is not ok if there was none, or
// only null, or if it is longer than 64 KiB. Before Close it may be out of date.
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

// Passed is how much of the body was read: its bytes without compression, and the events or lines
// that are JSON. Before Close it may be out of date.
func (r *Reader) Passed() (bytes, events int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.events
}

// Err is why the body could not be read, or not to its end. nil: it was read, or ended early.
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
	if r.unzip != nil {
		more = r.unzipped(&source{input: input{more: more}})
	}
	in := input{more: func() []byte {
		p := more()
		r.bytes += int64(len(p))
		return p
	}}
	in.skipBOM()
	if r.kind != whole {
		r.readEach(&in)
		return
	}
	p := parser{root: newNode(r.paths), found: func(i int, value any) { r.values[i] = value }}
	if err := p.document(in); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		clear(r.values)
		r.fail(err)
	}
}

// readEach reads events or lines. What one of them says counts if it is JSON as a whole: some
// hold other text, such as the [DONE] of OpenAI.
func (r *Reader) readEach(in *input) {
	seen := make([]any, len(r.paths))
	e := eventReader{in: in, lines: r.kind == lines}
	p := parser{root: newNode(r.paths), found: func(i int, value any) { seen[i] = value }}
	data := e.data
	for e.next() {
		if p.document(input{more: data}) == nil {
			r.events++
			for i, v := range seen {
				if v != nil {
					r.values[i] = v
				}
			}
		}
		clear(seen)
		e.skip()
	}
}

// A body that grows by more than mostGrowth when it is unzipped is not read beyond fewUnzipped
// bytes: its sender wants the gateway to work.
const (
	mostGrowth  = 200
	fewUnzipped = 16 << 20
)

// unzipped returns what gives the parts of s unzipped. Where s is no such data, they end.
func (r *Reader) unzipped(s *source) (more func() []byte) {
	var from io.Reader
	var buffer []byte
	total := 0
	return func() []byte {
		if r.done {
			return nil
		}
		if from == nil {
			var err error
			if from, err = r.unzip(s); err != nil {
				r.unzipFailed(err)
				return nil
			}
			buffer = make([]byte, 4<<10)
		}
		for {
			n, err := from.Read(buffer)
			total += n
			if total > fewUnzipped && total/mostGrowth > s.read {
				r.fail(errors.New("the compressed body grows too much"))
				return nil
			}
			if n > 0 {
				return buffer[:n]
			}
			if err != nil {
				r.unzipFailed(err)
				return nil
			}
		}
	}
}

// unzipFailed records err unless the body has ended, perhaps early.
func (r *Reader) unzipFailed(err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		r.fail(fmt.Errorf("the compressed body cannot be read: %w", err))
	}
}

// inflate unzips deflate, which is zlib in the standard and often without its header in
// practice. It does not check the sum at the end.
func inflate(s *source) (io.Reader, error) {
	first, err := s.ReadByte()
	if err != nil {
		return nil, err
	}
	second, err := s.ReadByte()
	if err != nil {
		return nil, err
	}
	const deflated, dictionary = 8, 0x20
	if first&0xf != deflated || (int(first)<<8|int(second))%31 != 0 || second&dictionary != 0 {
		s.back = append(s.back, first, second)
	}
	return flate.NewReader(s), nil
}
