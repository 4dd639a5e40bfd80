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
	members []member           // of an object
	within  map[*byte][]member // of inner objects that were read, by their first byte
}

// member is a member of an object: its name, and the text of its value.
type member struct{ name, value []byte }

// Errors of Lookup. JSON readers differ in these cases.
var (
	// ErrTwice means that an object has a member twice, in any case of its letters.
	ErrTwice = errors.New("given twice")
	// ErrCase means that an object has a member only in another case of its letters.
	ErrCase = errors.New("spelled in another case")
	// ErrTooLarge means that a number is too large for a float64.
	ErrTooLarge = errors.New("too large")
)

// maxMembers is how many members an object may have.
const maxMembers = 10_000

// Parse returns data as a Document, which keeps it. It skips a byte order mark. The error is not nil if
// data is not one JSON value in UTF-8, or is an object of more than 10,000 members.
func Parse(data []byte) (*Document, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	d := &Document{data: data}
	var p parser
	p.input = input{more: nothing, buf: data}
	p.skipBOM()
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

// ended is err for complete data.
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
		text := p.buf[name:value]
		all = append(all, member{unquoted(text[:bytes.LastIndexByte(text, '"')+1]), p.buf[value:p.at]})
		if more, err := p.comma('}'); !more {
			p.depth--
			return all, err
		}
	}
}

// Lookup returns the value of path, which has at least one name of a member: a string, bool,
// int64, float64 or nil, or a []any or map[string]any of those. It is not ok if there is none. The
// error wraps ErrTooLarge, or ErrTwice or ErrCase for a name on the path.
func (d *Document) Lookup(path []string) (value any, ok bool, err error) {
	text, err := d.find(path)
	if err != nil || text == nil {
		return nil, false, err
	}
	value = decode(text)
	if value == nil && text[0] != 'n' {
		return nil, false, fmt.Errorf("the number of %.60q is %w", path[len(path)-1], ErrTooLarge)
	}
	return value, true, nil
}

// find returns the text of the value at path; nil: none.
func (d *Document) find(path []string) (text []byte, err error) {
	members := d.members
	for i, name := range path {
		if i > 0 {
			if members, err = d.membersOf(text); err != nil {
				return nil, err
			}
		}
		found, err := one(members, name, func(m *member) []byte { return m.name })
		if err != nil || found == nil {
			return nil, err
		}
		text = found.value
	}
	return text, nil
}

// one returns the only member with a name; nil: none. It is an error if there are several, or if one
// is in another case.
func one[M any](all []M, name string, nameOf func(*M) []byte) (found *M, err error) {
	n := 0
	for i := range all {
		m := &all[i]
		if is := nameOf(m); string(is) == name {
			found = m
		} else if !strings.EqualFold(string(is), name) {
			continue
		}
		if n++; n > 1 {
			return nil, fmt.Errorf("%.60q is %w", name, ErrTwice)
		}
	}
	if found == nil && n > 0 {
		return nil, fmt.Errorf("%.60q is %w", name, ErrCase)
	}
	return found, nil
}

// membersOf returns the members of a value; none if it is not an object. Each value is read once.
func (d *Document) membersOf(text []byte) ([]member, error) {
	if text[0] != '{' {
		return nil, nil
	}
	if members, known := d.within[&text[0]]; known {
		return members, nil
	}
	var p parser
	p.input = input{more: nothing, buf: text}
	members, err := p.members()
	if err != nil {
		return nil, err
	}
	if d.within == nil {
		d.within = map[*byte][]member{}
	}
	d.within[&text[0]] = members
	return members, nil
}
