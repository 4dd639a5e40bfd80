package usage

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
)

// hint is the form of a body by its content type. It decides only if the body does not: many APIs let
// a client choose the form, and their content types are often wrong.
type hint uint8

const (
	none   hint = iota
	events      // server-sent events
	lines       // a JSON value in each line
)

// hintOf also reports whether the content type is of a readable form.
func hintOf(contentType string) (h hint, declared bool) {
	media, _, _ := mime.ParseMediaType(contentType) // empty if it is none
	switch media {
	case "text/event-stream":
		return events, true
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines":
		return lines, true
	case "application/json", "text/json", "application/json-seq":
		return none, true
	}
	return none, strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "+json-seq")
}

// separator comes before each value in RFC 7464.
const separator = '\x1e'

// readForm reads the body in the form that its first bytes show.
func (r *Reader) readForm(in *input) {
	r.seen = make([]any, len(r.paths))
	in.skipBOM()
	indented := false // the first line that is not empty
	c := in.peek()
	for ; c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = in.peek() {
		indented = c == ' ' || c == '\t'
		in.at++
	}
	switch {
	case c == end:
	case c == separator:
		r.readEach(&eventReader{in: in, ends: string(separator), plain: true})
	case c == '{', c == '[', r.hint != events && beginsJSON(c):
		r.readValues(in)
	case r.hint == events, beginsField(in):
		e := eventReader{in: in, ends: "\r\n"}
		if indented { // it is not a field
			e.skipLine()
		}
		r.readEach(&e)
	case r.hint == lines:
		r.readEach(&eventReader{in: in, ends: "\r\n", plain: true})
	case r.declared:
		r.fail(errSyntax)
	default:
		r.bytes = 0 // none of them was read, however many came at once
		r.fail(fmt.Errorf("content type %.60q: want JSON or server-sent events", r.media))
	}
}

// beginsJSON reports whether a JSON value may begin with c.
func beginsJSON(c int) bool {
	return c >= 0 && strings.IndexByte(`{["-0123456789tfn`, byte(c)) >= 0
}

// beginsField reports whether in continues with a field of a server-sent event, a comment, or the
// beginning of one.
func beginsField(in *input) bool {
	for _, name := range []string{":", "id:", "data:", "event:", "retry:"} {
		// It looks no further than necessary: only a comment may come for a long time.
		if in.peek() == int(name[0]) {
			return strings.HasPrefix(name, string(in.ahead(len(name))))
		}
	}
	return false
}

// commit turns seen into values.
func (r *Reader) commit() {
	for i, v := range r.seen {
		if v != nil {
			r.values[i] = v
		}
	}
	clear(r.seen)
}

// parser returns a parser that sets seen.
func (r *Reader) parser() *parser {
	return &parser{root: newNode(r.paths), found: func(i int, value any) { r.seen[i] = value }}
}

// readEach reads events or lines. One counts if all of it is JSON: some are other text, such as the
// [DONE] of OpenAI. It returns how many count, and whether another one is malformed and not just
// cut off.
func (r *Reader) readEach(e *eventReader) (found int64, broken bool) {
	p := r.parser()
	data := e.data
	for e.next() {
		p.input = input{more: data}
		n, err := int64(0), error(nil)
		for p.space(); p.peek() != end && err == nil; p.space() {
			err = p.top()
			n += max(p.objects, 1)
		}
		if err == nil {
			r.events += n
			found += n
			r.commit()
		}
		clear(r.seen)
		e.skip()
		broken = broken || err != nil && (e.in.peek() != end || !errors.Is(err, io.ErrUnexpectedEOF))
	}
	return found, broken
}

// readValues reads JSON values: mostly one, but others may follow it.
func (r *Reader) readValues(in *input) {
	p := r.parser()
	p.input = *in
	list, elements := p.peek() == '[', int64(0)
	p.element = func() { // it is known even if the list never ends
		r.commit()
		r.events += p.objects - elements
		elements = p.objects
	}
	err := p.top()
	p.element = nil
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		if !list && r.hint != lines {
			r.commit()
		}
		return
	case err != nil:
		r.malformed(p, err)
		return
	}
	last, inOneLine := p.passed, p.line == 0
	p.space()
	inLines := inOneLine && p.line > last
	if p.peek() == end {
		r.commit()
		if r.hint == lines {
			r.events = max(r.events, 1)
		}
		return
	}
	if !inLines && !beginsJSON(p.peek()) {
		r.malformed(p, errSyntax)
		return
	}
	r.commit()
	r.events = max(r.events, 1)
	if !inLines {
		r.readMore(p)
		return
	}
	found, broken := r.readEach(&eventReader{in: &p.input, ends: "\r\n", plain: true})
	if found == 0 && broken && r.hint != lines {
		r.malformed(p, errSyntax)
	}
}

// malformed ends a body whose first value is not JSON. For declared lines, only that line is
// skipped.
func (r *Reader) malformed(p *parser, err error) {
	clear(r.seen)
	clear(r.values)
	r.events = 0
	if r.hint != lines {
		if !r.declared {
			r.bytes = 0
		}
		r.fail(err)
		return
	}
	p.resume(0)
	r.readEach(&eventReader{in: &p.input, ends: "\r\n", plain: true})
}

// readMore reads the values after the first of several that are not in lines, or not all. One that
// is not JSON is skipped, to the end of its line.
func (r *Reader) readMore(p *parser) {
	for several := false; ; {
		p.space()
		first := p.passed
		if p.peek() == end {
			return
		}
		err := p.top()
		switch {
		case err == nil:
			several = true
			r.events += max(p.objects, 1)
			r.commit()
		case errors.Is(err, io.ErrUnexpectedEOF):
			clear(r.seen)
			return
		case !several:
			r.malformed(p, err)
			return
		default:
			clear(r.seen)
			p.resume(first)
		}
	}
}

// resume continues after an error in a value that began at first: at the next line, which may begin
// here.
func (p *parser) resume(first int64) {
	if p.line == p.passed && p.line > first {
		return
	}
	for c := p.peek(); c != end && c != '\r' && c != '\n'; c = p.peek() {
		p.keeping = 0
		p.pass(1)
	}
}
