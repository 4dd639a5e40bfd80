package usage

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Outline describes a JSON value that may be long: the positions of the members of its objects, nested
// down to outlineDepth, and their values if they are short. It omits the elements of lists. It is read
// less strictly than a Document: invalid UTF-8 is accepted as text.
type Outline struct {
	// Len is its length in bytes. Text is how many of them a model reads as text, and Media
	// estimates the tokens of base64 data in its strings.
	Len, Text, Media int64

	start int64 // of the first member
	root  part
}

// part is a member of an object, or the root.
type part struct {
	name     []byte
	from, to int64
	value    any  // an empty object, list or string stands for any
	large    bool // it is a number that is too large
	parts    []part
	cut      bool // there are more than parts
}

const (
	outlineDepth = 4
	// outlineName and outlineText are the longest name and value text that are kept.
	outlineName = 64
	outlineText = 64
	// An inner object is read only if it has at most maxInnerMembers members, and all inner objects
	// together at most maxMembers.
	maxInnerMembers = 1000
)

// partBytes is the most memory that a part takes.
const partBytes = 2 * (112 + outlineName + outlineText)

// Bytes is the most memory that the Outline takes.
func (o *Outline) Bytes() int64 { return partBytes * o.root.count() }

func (p *part) count() int64 {
	n := int64(1)
	for i := range p.parts {
		n += p.parts[i].count()
	}
	return n
}

// ReadOutline reads all of from, in parts of at most buffer bytes. The error is not nil if it is not
// one JSON value, or an object of more than 10,000 members, or if reading failed.
func ReadOutline(from io.Reader, buffer int64) (*Outline, error) {
	r := newOutlineReader(from, buffer)
	err := r.value(&r.out.root, 0)
	if r.space(); err == nil && r.peek() != end {
		err = errSyntax
	}
	if r.failed != nil {
		err = r.failed
	}
	if err != nil {
		return nil, ended(err)
	}
	r.out.Len = r.pos()
	r.out.Text += r.out.Len
	out := r.out // without r
	return &out, nil
}

// ReadElements calls f with an Outline of each element of the list at path, in order, until f returns an
// error. If there is no list, it does not call f. It reads like ReadOutline, and its errors are the
// same.
func ReadElements(from io.Reader, buffer int64, path []string, f func(*Outline) error) error {
	r := newOutlineReader(from, buffer)
	r.list, r.element = path, f
	err := r.value(new(part), 0)
	if r.failed != nil {
		err = r.failed
	}
	return ended(err)
}

// outlineReader makes an Outline.
type outlineReader struct {
	parser
	list    []string             // a path that leads to a list
	within  int                  // how many names of it lead to the current value; -1: it does not lead there
	element func(*Outline) error // called with the elements of the list; may be nil

	out    Outline
	before int64 // bytes before buf
	failed error // why reading ended
	inner  int   // kept members of inner objects
	str    stringReader
}

func newOutlineReader(from io.Reader, buffer int64) *outlineReader {
	r := new(outlineReader)
	more := partsOf(from, make([]byte, max(buffer, 1)), &r.failed)
	r.more = func() []byte {
		r.before += int64(len(r.buf))
		return more()
	}
	r.skipBOM()
	return r
}

// pos is the position of the next byte.
func (r *outlineReader) pos() int64 { return r.before + int64(r.at) }

// value reads a value within depth objects into p; a nil p: it is not kept.
func (r *outlineReader) value(p *part, depth int) (err error) {
	r.space()
	c := r.peek()
	if p != nil {
		p.from = r.pos()
		defer func() { p.to = r.pos() }()
	}
	switch c {
	case '{':
		if p == nil || depth == outlineDepth {
			return r.nested(nil, r.skippedObject(p))
		}
		p.value = map[string]any{}
		return r.nested(nil, func(*node) error { return r.members(p, depth+1) })
	case '[':
		if p != nil {
			p.value = []any{}
		}
		if r.element != nil && p != nil && r.within == len(r.list) && depth == len(r.list) {
			return r.nested(nil, r.outlines)
		}
		return r.nested(nil, r.elements)
	case '"':
		if p == nil {
			return r.content()
		}
		start := r.keep()
		err = r.content()
		text, ok := r.drop(start)
		if p.value = ""; err == nil && ok && len(text) <= outlineText {
			p.value = string(unquoted(text))
		}
		return err
	}
	return r.scalar(p)
}

// scalar reads a number, true, false or null.
func (r *outlineReader) scalar(p *part) error {
	if p == nil {
		return r.any(nil)
	}
	start := r.keep()
	err := r.any(nil)
	text, ok := r.drop(start)
	switch {
	case err != nil:
	case !ok:
		p.large = true
	default:
		p.value = decode(text)
		p.large = p.value == nil && text[0] != 'n'
	}
	return err
}

// skippedObject reads the members of an object without keeping them; p may be nil.
func (r *outlineReader) skippedObject(p *part) func(*node) error {
	if p != nil {
		p.value, p.cut = map[string]any{}, true
	}
	return func(*node) error { return r.each('}', func() error { return r.skippedMember() }) }
}

func (r *outlineReader) skippedMember() error {
	if err := r.name(); err != nil {
		return err
	}
	return r.value(nil, 0)
}

// elements reads the elements of a list.
func (r *outlineReader) elements(*node) error {
	return r.each(']', func() error { return r.value(nil, 0) })
}

// outlines reads the elements of the list whose elements are wanted.
func (r *outlineReader) outlines(*node) error {
	r.within = -1
	return r.each(']', func() error {
		var one Outline
		r.inner = 0
		if err := r.value(&one.root, 0); err != nil {
			return err
		}
		return r.element(&one)
	})
}

// each reads members or elements up to last.
func (r *outlineReader) each(last int, read func() error) error {
	if r.peek() == last {
		r.pass(1)
		return nil
	}
	for {
		if err := read(); err != nil {
			return err
		}
		if more, err := r.comma(last); !more {
			return err
		}
	}
}

// members reads the members of p, an object at this depth.
func (r *outlineReader) members(p *part, depth int) error {
	if depth == 1 {
		r.out.start = p.from + 1
	}
	n := 0
	return r.each('}', func() error {
		start := r.keep()
		err := r.name()
		text, ok := r.drop(start)
		if err != nil {
			return err
		}
		if n++; depth == 1 && n > maxMembers {
			return fmt.Errorf("an object has more than %d members", maxMembers)
		}
		if depth > 1 && (n > maxInnerMembers || r.inner == maxMembers) {
			p.cut = true
			return r.value(nil, 0)
		}
		if !ok || len(text) > outlineName {
			return r.value(nil, 0) // it is not looked for
		}
		if depth > 1 {
			r.inner++
		}
		name := bytes.Clone(unquoted(text[:bytes.LastIndexByte(text, '"')+1]))
		p.parts = append(p.parts, part{name: name})
		if within := r.within; within == depth-1 && depth <= len(r.list) && string(name) == r.list[within] {
			r.within++
			defer func() { r.within = within }()
		}
		return r.value(&p.parts[len(p.parts)-1], depth)
	})
}

// content reads a string, and counts its data.
func (r *outlineReader) content() error {
	r.pass(1) // the quote
	from := r.pos()
	for r.str.reset(); ; {
		if r.peek() == end {
			return io.ErrUnexpectedEOF
		}
		rest := r.buf[r.at:]
		n := 0
		for n < len(rest) && rest[n] != '"' && rest[n] != '\\' && rest[n] >= ' ' {
			n++
		}
		r.str.add(rest[:n])
		r.pass(n)
		if n == len(rest) {
			continue
		}
		switch rest[n] {
		case '"':
			r.countData(r.pos() - from)
			r.pass(1)
			return nil
		case '\\':
			c, err := r.escaped()
			if err != nil {
				return err
			}
			r.str.add([]byte{c})
		default:
			return errSyntax
		}
	}
}

// countData counts a string of this length in JSON, if it is data.
func (r *outlineReader) countData(length int64) {
	kind, size, ok := r.str.size()
	switch {
	case !ok:
	case strings.HasPrefix(kind, "text/"):
		r.out.Text += size - length
	default:
		r.out.Text -= length
		r.out.Media += MediaTokens(kind, size)
	}
}

// escaped reads an escape. It returns the character, or a backslash for one that cannot be in data.
func (r *outlineReader) escaped() (byte, error) {
	r.pass(1)
	c := r.peek()
	if c != 'u' {
		err := r.escape()
		switch c {
		case '/':
			return '/', err
		case 'n', 'r':
			return '\n', err
		}
		return '\\', err
	}
	r.pass(1)
	code := 0
	for range 4 {
		c := r.peek()
		if c == end || !isHex(byte(c)) {
			return 0, r.wrong()
		}
		if code <<= 4; c <= '9' {
			code += c - '0'
		} else {
			code += c&7 + 9
		}
		r.pass(1)
	}
	if code >= 0x80 {
		code = '\\'
	}
	return byte(code), nil
}

// Lookup returns the value of path as Document.Lookup does, but an empty one for a list, an object, and a
// string of more than 60 bytes. An error that wraps none of those of Document.Lookup means that the value
// is not known.
func (o *Outline) Lookup(path []string) (value any, ok bool, err error) {
	p, err := o.find(path)
	switch {
	case err != nil || p == nil:
		return nil, false, err
	case p.large:
		return nil, false, fmt.Errorf("the number of %.60q is %w", path[len(path)-1], ErrTooLarge)
	}
	return p.value, true, nil
}

// Span returns the position of the value of path; not ok: there is none, or an error. empty says that
// it is an object without members.
func (o *Outline) Span(path []string) (from, to int64, empty, ok bool) {
	p, err := o.find(path)
	if err != nil || p == nil {
		return 0, 0, false, false
	}
	return p.from, p.to, p.parts == nil && !p.cut, true
}

// Start is how many bytes of an object are before its first member.
func (o *Outline) Start() int64 { return o.start }

func (o *Outline) find(path []string) (*part, error) {
	p := &o.root
	for _, name := range path {
		found, err := one(p.parts, name, func(p *part) []byte { return p.name })
		if err != nil {
			return nil, err
		}
		if found == nil {
			if p.cut {
				return nil, fmt.Errorf("%.60q is in an object that is too large", name)
			}
			return nil, nil
		}
		p = found
	}
	return p, nil
}
