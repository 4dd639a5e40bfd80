package usage

import (
	"bytes"
	"errors"
	"io"
)

// input is a stream of bytes in parts.
type input struct {
	more func() []byte // the next part, which is not empty; nil: the end
	buf  []byte
	at   int
}

// end is what peek returns at the end.
const end = -1

// peek returns the next byte without reading it; end: none.
func (in *input) peek() int {
	if in.at == len(in.buf) {
		in.buf, in.at = in.more(), 0
		if len(in.buf) == 0 {
			in.more = nothing
			return end
		}
	}
	return int(in.buf[in.at])
}

func nothing() []byte { return nil }

// partsOf returns a function that returns the parts of from, each in buffer. An error that ends them,
// except io.EOF, is put into failed.
func partsOf(from io.Reader, buffer []byte, failed *error) (more func() []byte) {
	return func() []byte {
		for range 100 {
			n, err := from.Read(buffer)
			if err != nil && !errors.Is(err, io.EOF) {
				*failed = err
				return nil
			}
			if n > 0 || err != nil {
				return buffer[:n]
			}
		}
		*failed = io.ErrNoProgress
		return nil
	}
}

// skipBOM skips a byte order mark.
func (in *input) skipBOM() {
	for _, b := range []byte("\ufeff") {
		if in.peek() != int(b) {
			return
		}
		in.at++
	}
}

// ahead returns the next n bytes without reading them, or fewer at the end.
func (in *input) ahead(n int) []byte {
	if in.peek(); len(in.buf)-in.at >= n {
		return in.buf[in.at : in.at+n]
	}
	var head []byte // the parts do not stay
	for len(head) < n && in.peek() != end {
		head = append(head, in.buf[in.at])
		in.at++
	}
	rest := *in
	*in = input{buf: head, more: func() []byte {
		if p := rest.buf[rest.at:]; len(p) > 0 {
			rest.at = len(rest.buf)
			return p
		}
		return rest.more()
	}}
	return head
}

// source is an input for package flate, which reads no further than necessary.
type source struct {
	input
	back []byte // comes first
	read int    // bytes read
}

// Read is for io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if len(s.back) > 0 {
		n := copy(p, s.back)
		s.back = s.back[n:]
		return n, nil
	}
	b, err := s.ReadByte()
	if err != nil || len(p) == 0 {
		return 0, err
	}
	p[0] = b
	n := copy(p[1:], s.buf[s.at:])
	s.at, s.read = s.at+n, s.read+n
	return n + 1, nil
}

// ReadByte is for io.ByteReader.
func (s *source) ReadByte() (byte, error) {
	if len(s.back) > 0 {
		b := s.back[0]
		s.back = s.back[1:]
		return b, nil
	}
	c := s.peek()
	if c == end {
		return 0, io.EOF
	}
	s.at, s.read = s.at+1, s.read+1
	return byte(c), nil
}

// eventReader divides server-sent events, or lines.
type eventReader struct {
	in     *input
	ends   string // the bytes that end a line
	plain  bool   // each line is an event, not of fields
	inData bool   // the next bytes are data, up to the end of the line
	ended  bool   // the event has
	begun  bool   // the event has data
	cr     bool   // the last line ended with CR, so that LF belongs to it
}

// next reports whether there may be another event.
func (e *eventReader) next() bool {
	e.ended, e.begun, e.inData = false, false, e.plain
	return e.peek() != end
}

func (e *eventReader) peek() int {
	c := e.in.peek()
	if e.cr && c == '\n' {
		e.in.at++
		c = e.in.peek()
	}
	e.cr = false
	return c
}

// skip skips the rest of the event.
func (e *eventReader) skip() {
	for e.data() != nil {
	}
}

var newline = []byte{'\n'}

// data returns the next part of the event's data; nil: no more.
func (e *eventReader) data() []byte {
	for !e.ended {
		if e.inData {
			if part := e.line(); part != nil {
				return part
			}
			e.inData = false
			e.ended = e.ended || e.plain
			continue
		}
		switch e.peek() {
		case end:
			e.ended = true
		case '\r', '\n':
			e.endLine()
			e.ended = true
		default:
			if !e.isData() {
				e.skipLine()
				continue
			}
			e.inData = true
			if e.begun {
				return newline
			}
			e.begun = true
		}
	}
	return nil
}

// line returns the next part of a line; nil: the line has ended.
func (e *eventReader) line() []byte {
	if e.in.peek() == end {
		e.ended = true
		return nil
	}
	rest := e.in.buf[e.in.at:]
	n := bytes.IndexAny(rest, e.ends)
	switch {
	case n < 0:
		n = len(rest)
	case n == 0:
		e.endLine()
		return nil
	}
	e.in.at += n
	return rest[:n]
}

// endLine skips the byte that ends a line.
func (e *eventReader) endLine() {
	e.cr = e.in.buf[e.in.at] == '\r'
	e.in.at++
}

// isData skips the name of the field that a line begins with, and reports whether it is data.
func (e *eventReader) isData() bool {
	for _, want := range []byte("data") {
		if e.in.peek() != int(want) {
			return false
		}
		e.in.at++
	}
	switch e.in.peek() {
	case ':':
		e.in.at++
		if e.in.peek() == ' ' {
			e.in.at++
		}
		return true
	case '\r', '\n':
		return true
	}
	return false
}

// skipLine skips the rest of a line.
func (e *eventReader) skipLine() {
	for e.line() != nil {
	}
}
