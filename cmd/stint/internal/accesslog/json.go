package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// jsonReader reads lines of JSON objects. It looks only at the members that it wants, and checks of the rest
// no more than it must to find its end.
type jsonReader struct {
	root node
	// beginning is of members whose names end with that of a header field; empty: there are none.
	beginning string
}

// node is a place in a line of JSON.
type node struct {
	name    string // of a member
	index   int    // of an item; -1: it is a member
	field   *field // nil: it only contains others
	inside  []node
	anyList bool           // inside are items
	byName  map[string]int // members inside; nil: they are few
}

// few is up to how many names it is faster to compare each than to use a map.
const few = 12

// find returns the member with a name; nil: it is not wanted.
func (n *node) find(name string) *node {
	if n.byName != nil {
		if i, ok := n.byName[name]; ok {
			return &n.inside[i]
		}
		return nil
	}
	for i := range n.inside {
		if m := &n.inside[i]; m.name == name && m.index < 0 {
			return m
		}
	}
	return nil
}

// makeIndex makes byName of the node and those inside, if there are many.
func (n *node) makeIndex() {
	for i := range n.inside {
		n.inside[i].makeIndex()
	}
	if len(n.inside) <= few {
		return
	}
	n.byName = map[string]int{}
	for i := range n.inside {
		if n.inside[i].index < 0 {
			n.byName[n.inside[i].name] = i
		}
	}
}

var errJSON = errors.New("it is not a JSON object")

// jsonForm is the form of lines with these keys, and with header fields whose names follow beginning.
func jsonForm(name string, keys map[string]field, beginning string) form {
	root, err := compilePaths(keys)
	if err != nil {
		panic(err) // formsByFields has checked those of a user
	}
	return form{name: name, of: always(&jsonReader{root, beginning})}
}

// compilePaths makes nodes of keys such as $.a.b, $.a[0] and $['a.b']; a key without a $ is a member's name.
func compilePaths(keys map[string]field) (root node, err error) {
	for key, f := range keys {
		at := &root
		rest, isPath := strings.CutPrefix(key, "$")
		if !isPath {
			at = at.member(key)
			rest = ""
		}
		for rest != "" {
			var name string
			switch {
			case strings.HasPrefix(rest, "['") || strings.HasPrefix(rest, `["`):
				end := strings.Index(rest, rest[1:2]+"]")
				if end < 2 {
					return root, fmt.Errorf("fields: %.60q: no quote ends %.60q", key, rest)
				}
				name, rest = rest[2:end], rest[end+2:]
				at = at.member(name)
			case rest[0] == '[':
				text, after, ok := strings.Cut(rest[1:], "]")
				index, err := strconv.ParseUint(text, 10, 31)
				if !ok || err != nil {
					return root, fmt.Errorf("fields: %.60q: want an index as [0], or a name as ['a.b'], not %.60q", key, rest)
				}
				rest = after
				at = at.item(int(index))
			case rest[0] == '.' && len(rest) > 1:
				rest = rest[1:]
				end := strings.IndexAny(rest, ".[")
				if end < 0 {
					end = len(rest)
				}
				if end == 0 {
					return root, fmt.Errorf("fields: %.60q has an empty name", key)
				}
				name, rest = rest[:end], rest[end:]
				at = at.member(name)
			default:
				return root, fmt.Errorf("fields: %.60q: want a place in JSON, as $.request.uri", key)
			}
		}
		if at == &root {
			return root, fmt.Errorf("fields: %.60q is the whole line: want a place in it, as $.request.uri", key)
		}
		f := f
		at.field = &f
	}
	root.makeIndex()
	return root, nil
}

func (n *node) member(name string) *node {
	i := slices.IndexFunc(n.inside, func(m node) bool { return m.index < 0 && m.name == name })
	if i < 0 {
		i = len(n.inside)
		n.inside = append(n.inside, node{name: name, index: -1})
	}
	return &n.inside[i]
}

func (n *node) item(index int) *node {
	i := slices.IndexFunc(n.inside, func(m node) bool { return m.index == index })
	if i < 0 {
		i = len(n.inside)
		n.inside = append(n.inside, node{index: index})
	}
	n.anyList = true
	return &n.inside[i]
}

func (j *jsonReader) read(line string, d *draft) error {
	s := scanner{text: line}
	if s.peek() != '{' {
		return errJSON
	}
	if err := j.object(&s, &j.root, d); err != nil {
		return err
	}
	if s.peek() != 0 || s.at < len(line) {
		return errJSON
	}
	return nil
}

// object reads an object of which some members are wanted.
func (j *jsonReader) object(s *scanner, n *node, d *draft) error {
	return s.each('}', func() error {
		name, ok := s.string()
		if !ok || s.peek() != ':' {
			return errJSON
		}
		s.at++
		name = unescape(name)
		if m := n.find(name); m != nil {
			return j.value(s, m, d)
		}
		if j.beginning != "" && n == &j.root {
			if of, ok := strings.CutPrefix(name, j.beginning); ok && of != "" {
				f := headerField(of)
				return j.value(s, &node{index: -1, field: &f}, d)
			}
		}
		return s.skip()
	})
}

// value reads the value at a place that is wanted.
func (j *jsonReader) value(s *scanner, n *node, d *draft) error {
	switch s.peek() {
	case '{':
		switch {
		case n.field != nil && n.field.role == anyHeader:
			return j.headerFields(s, n.field, d)
		case len(n.inside) > 0:
			return j.object(s, n, d)
		}
		return s.skip()
	case '[':
		if n.anyList {
			i := -1
			return s.each(']', func() error {
				i++
				for k := range n.inside {
					if n.inside[k].index == i {
						return j.value(s, &n.inside[k], d)
					}
				}
				return s.skip()
			})
		}
		if n.field != nil && n.field.role == header {
			return s.each(']', func() error { return j.scalar(s, n.field, d) })
		}
		return s.skip()
	}
	if n.field == nil {
		return s.skip()
	}
	return j.scalar(s, n.field, d)
}

// scalar reads a text, a number or a truth value. null is like nothing.
func (j *jsonReader) scalar(s *scanner, f *field, d *draft) error {
	switch s.peek() {
	case '"':
		text, ok := s.string()
		if !ok {
			return errJSON
		}
		if j.beginning != "" && text == hidden {
			return nil
		}
		return d.put(f, unescape(text))
	case '{', '[':
		return s.skip()
	}
	text, ok := s.word()
	switch {
	case !ok:
		return errJSON
	case text == "null":
		return nil
	}
	return d.put(f, text)
}

// headerFields reads an object of header fields, each with a list of its lines.
func (j *jsonReader) headerFields(s *scanner, any *field, d *draft) error {
	d.saw(any)
	return s.each('}', func() error {
		name, ok := s.string()
		if !ok || s.peek() != ':' {
			return errJSON
		}
		s.at++
		f := field{role: header, name: name}
		read := func() error {
			if s.peek() != '"' {
				return s.skip()
			}
			text, ok := s.string()
			if !ok {
				return errJSON
			}
			if text != hidden {
				d.headers.add(Field{f.name, unescape(text)})
			}
			return nil
		}
		if s.peek() != '[' {
			return read()
		}
		return s.each(']', read)
	})
}

// hidden is logged for a header field that is kept secret, by Caddy and Traefik.
const hidden = "REDACTED"

// scanner finds its way through JSON.
type scanner struct {
	text string
	at   int
}

// peek is the next byte that is not blank; 0: there is none.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c > ' ' || c == 0 {
			return c
		}
	}
	return 0
}

// each calls read at each member or item, up to the bracket that ends them.
func (s *scanner) each(end byte, read func() error) error {
	s.at++
	for first := true; ; first = false {
		switch c := s.peek(); {
		case c == end:
			s.at++
			return nil
		case first:
		case c == ',':
			if s.at++; s.peek() == end {
				return errJSON
			}
		default:
			return errJSON
		}
		if err := read(); err != nil {
			return err
		}
	}
}

// string reads a string, and returns it as it is written.
func (s *scanner) string() (string, bool) {
	if s.peek() != '"' {
		return "", false
	}
	from := s.at + 1
	end := strings.IndexByte(s.text[from:], '"') + from
	if end > from && s.text[end-1] == '\\' {
		end = endOfQuoted(s.text, from)
	}
	if end < from {
		return "", false
	}
	s.at = end + 1
	return s.text[from:end], true
}

// word reads a number, true, false or null.
func (s *scanner) word() (string, bool) {
	s.peek()
	from := s.at
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '+' && c != '.' {
			break
		}
	}
	text := s.text[from:s.at]
	return text, text != "" && (isDigit(text[len(text)-1]) || text == "true" || text == "false" || text == "null")
}

// skip skips a value. It does not mind how deep it is.
func (s *scanner) skip() error {
	for depth := 0; ; {
		switch s.peek() {
		case '"':
			if _, ok := s.string(); !ok {
				return errJSON
			}
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			depth--
			s.at++
		case ',', ':':
			s.at++
			if depth == 0 {
				return errJSON
			}
		case 0:
			return errJSON
		default:
			if _, ok := s.word(); !ok {
				return errJSON
			}
		}
		if depth <= 0 {
			if depth < 0 {
				return errJSON
			}
			return nil
		}
	}
}
