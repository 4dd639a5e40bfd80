package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Document is a JSON value in memory. It is read strictly, because requests are counted by it.
type Document struct {
	data    []byte
	members []member // of an object
}

// member is a member of an object: the text of its name and value.
type member struct{ name, value []byte }

// ErrTwice means that an object has a member twice.
var ErrTwice = errors.New("given twice")

// maxMembers is how many members an object may have.
const maxMembers = 10_000

// Parse returns data as a Document, which keeps it. The error is not nil if data is not one JSON
// value in UTF-8, or is an object of more than 10,000 members.
func Parse(data []byte) (*Document, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	d := &Document{data: data}
	var p parser
	p.input = input{more: nothing, buf: data}
	if p.space(); p.peek() != '{' {
		return d, ended(p.document(p.input))
	}
	var err error
	d.members, err = p.members()
	if p.space(); err == nil && p.peek() != end {
		err = errSyntax
	}
	return d, ended(err)
}

// ended is err for data that is all there.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errSyntax
	}
	return err
}

// members reads an object whose text is one part of the input.
func (p *parser) members() (all []member, err error) {
	p.pass(1)
	if p.space(); p.peek() == '}' {
		p.pass(1)
		return nil, nil
	}
	p.depth++
	for {
		p.space()
		name := p.at
		if err := p.name(); err != nil {
			return nil, err
		}
		p.space()
		value := p.at
		if err := p.value(nil); err != nil {
			return nil, err
		}
		if p.peek() == end {
			return nil, io.ErrUnexpectedEOF
		}
		if len(all) == maxMembers {
			return nil, fmt.Errorf("an object has more than %d members", maxMembers)
		}
		all = append(all, member{p.buf[name:value], p.buf[value:p.at]})
		if more, err := p.comma('}'); !more {
			p.depth--
			return all, err
		}
	}
}

// Lookup returns the value of path, which has at least one name of a member: a string, bool,
// int64, float64 or nil, or a []any or map[string]any of those. It is not ok if there is none. The
// error is not nil if a number is too large; it wraps ErrTwice if an object on the way has the next
// name twice, in any case of its letters, because readers differ in which they take.
func (d *Document) Lookup(path []string) (value any, ok bool, err error) {
	text, err := d.find(path)
	if err != nil || text == nil {
		return nil, false, err
	}
	value = decode(text)
	if value == nil && text[0] != 'n' {
		return nil, false, fmt.Errorf("the number of %.60q is too large", path[len(path)-1])
	}
	return value, true, nil
}

// Has reports whether there is a member of this name, or several.
func (d *Document) Has(name string) bool {
	text, err := d.find([]string{name})
	return text != nil || err != nil
}

// find is the text of the value of path; nil: there is none.
func (d *Document) find(path []string) (text []byte, err error) {
	members := d.members
	for i, name := range path {
		if i > 0 {
			if text[0] != '{' {
				return nil, nil
			}
			var p parser
			p.input = input{more: nothing, buf: text}
			if members, err = p.members(); err != nil {
				return nil, err
			}
		}
		found := 0
		text = nil
		for _, m := range members {
			n := unquoted(m.name[:bytes.LastIndexByte(m.name, '"')+1])
			if string(n) == name {
				text = m.value
			} else if !strings.EqualFold(string(n), name) {
				continue
			}
			if found++; found > 1 {
				return nil, fmt.Errorf("%.60q is %w", name, ErrTwice)
			}
		}
		if text == nil {
			return nil, nil
		}
	}
	return text, nil
}

// Start is how many bytes of an object are before its first member.
func (d *Document) Start() int { return bytes.IndexByte(d.data, '{') + 1 }
