package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// node is a step of the paths that are looked for.
type node struct {
	children map[string]*node
	leaves   []int // the paths that end here
}

func newNode(paths [][]string) *node {
	root := new(node)
	for i, path := range paths {
		n := root
		for _, name := range path {
			if n.children == nil {
				n.children = map[string]*node{}
			}
			if n.children[name] == nil {
				n.children[name] = new(node)
			}
			n = n.children[name]
		}
		n.leaves = append(n.leaves, i)
	}
	return root
}

// child may be called on nil.
func (n *node) child(name []byte) *node {
	if n == nil {
		return nil
	}
	return n.children[string(name)]
}

// index is child for an index of a list.
func (n *node) index(i int) *node {
	if !n.hasChildren() {
		return nil
	}
	var digits [20]byte
	return n.child(strconv.AppendInt(digits[:0], int64(i), 10))
}

func (n *node) hasChildren() bool { return n != nil && n.children != nil }

// both returns a node that combines a and b. It may share their parts.
func both(a, b *node) *node {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	n := &node{children: maps.Clone(a.children), leaves: slices.Concat(a.leaves, b.leaves)}
	for name, child := range b.children {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		n.children[name] = both(n.children[name], child)
	}
	return n
}

// parser reads JSON values. It accepts what encoding/json does, down to maxDepth.
type parser struct {
	input
	root    *node
	found   func(i int, value any) // called with each value of each path, unless it is null
	element func()                 // called after each element of a list at the top; may be nil
	objects int64                  // elements of the list at the top that are objects

	passed  int64 // bytes that were read
	line    int64 // value of passed after the last white space with an end of line
	depth   int
	keeping int    // nested texts that are being kept
	kept    []byte // text since the outermost began
	long    bool   // it is longer than mostKept
}

const (
	maxDepth = 1000
	mostKept = 64 << 10
)

var errSyntax = errors.New("it is not JSON")

// document reads a value that must be all of in. If in ends before the value, the error is
// io.ErrUnexpectedEOF.
func (p *parser) document(in input) error {
	p.input = in
	if err := p.top(); err != nil {
		return err
	}
	if p.space(); p.peek() != end {
		return errSyntax
	}
	return nil
}

// top reads the next value of the input, from the root of the paths. If it is a list, a path is
// also looked for in each of its elements that is an object.
func (p *parser) top() error {
	p.depth, p.keeping, p.objects = 0, 0, 0
	if p.space(); p.peek() != '[' {
		return p.value(p.root)
	}
	return p.nested(p.root, p.elements)
}

// elements reads a list at the top.
func (p *parser) elements(n *node) error {
	if p.peek() == ']' {
		p.pass(1)
		return nil
	}
	for i := 0; ; i++ {
		child := n.index(i)
		if p.peek() == '{' {
			child = both(n, child)
			p.objects++
		}
		if err := p.value(child); err != nil {
			return err
		}
		if p.element != nil {
			p.element()
		}
		if more, err := p.comma(']'); !more {
			return err
		}
	}
}

// pass skips n bytes of buf.
func (p *parser) pass(n int) {
	if p.keeping > 0 {
		p.long = p.long || len(p.kept)+n > mostKept
		if !p.long {
			p.kept = append(p.kept, p.buf[p.at:p.at+n]...)
		}
	}
	p.at += n
	p.passed += int64(n)
}

// keep starts to keep a text; drop, called with keep's result, ends it and returns the text, if it
// is not too long. The text is valid until the next byte is passed.
func (p *parser) keep() (start int) {
	if p.keeping++; p.keeping == 1 {
		p.kept, p.long = p.kept[:0], false
	}
	return len(p.kept)
}

func (p *parser) drop(start int) (text []byte, ok bool) {
	p.keeping--
	return p.kept[start:], !p.long
}

// wrong is the error about the next byte.
func (p *parser) wrong() error {
	if p.peek() == end {
		return io.ErrUnexpectedEOF
	}
	return errSyntax
}

func (p *parser) space() {
	for ended := false; ; {
		switch p.peek() {
		case '\r', '\n':
			ended = true
			p.pass(1)
		case ' ', '\t':
			p.pass(1)
		default:
			if ended {
				p.line = p.passed
			}
			return
		}
	}
}

// value reads a value at n, which is nil if no path leads there.
func (p *parser) value(n *node) error {
	p.space()
	if n == nil || n.leaves == nil {
		return p.any(n)
	}
	start := p.keep()
	err := p.any(n)
	text, ok := p.drop(start)
	if err != nil {
		return err
	}
	if p.depth > 0 && p.peek() == end {
		return io.ErrUnexpectedEOF // a number may have more digits
	}
	if !ok {
		return nil
	}
	if v := decode(text); v != nil {
		for _, i := range n.leaves {
			p.found(i, v)
		}
	}
	return nil
}

func (p *parser) any(n *node) error {
	switch c := p.peek(); c {
	case '{':
		return p.nested(n, p.object)
	case '[':
		return p.nested(n, p.list)
	case '"':
		return p.text()
	case 't':
		return p.word("true")
	case 'f':
		return p.word("false")
	case 'n':
		return p.word("null")
	}
	return p.number()
}

func (p *parser) nested(n *node, read func(*node) error) error {
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	p.pass(1)
	p.space()
	err := read(n)
	p.depth--
	return err
}

func (p *parser) object(n *node) error {
	if p.peek() == '}' {
		p.pass(1)
		return nil
	}
	for ; ; p.space() {
		child, err := p.member(n)
		if err != nil {
			return err
		}
		if err := p.value(child); err != nil {
			return err
		}
		if more, err := p.comma('}'); !more {
			return err
		}
	}
}

// member reads the name of a member and the colon, and returns the node that it leads to.
func (p *parser) member(n *node) (*node, error) {
	if !n.hasChildren() {
		return nil, p.name()
	}
	start := p.keep()
	err := p.name()
	text, ok := p.drop(start)
	if err != nil || !ok {
		return nil, err
	}
	return n.child(unquoted(text[:bytes.LastIndexByte(text, '"')+1])), nil
}

// name reads the name of a member and the colon.
func (p *parser) name() error {
	if p.peek() != '"' {
		return p.wrong()
	}
	if err := p.text(); err != nil {
		return err
	}
	if p.space(); p.peek() != ':' {
		return p.wrong()
	}
	p.pass(1)
	return nil
}

// unquoted is the text of a string.
func unquoted(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text[1 : len(text)-1]
	}
	var s string
	_ = json.Unmarshal(text, &s) // it is a string
	return []byte(s)
}

// comma reads the comma, or last, after a value in a list or an object.
func (p *parser) comma(last int) (more bool, err error) {
	p.space()
	switch p.peek() {
	case ',':
		p.pass(1)
		p.space()
		return true, nil
	case last:
		p.pass(1)
		return false, nil
	}
	return false, p.wrong()
}

func (p *parser) list(n *node) error {
	if p.peek() == ']' {
		p.pass(1)
		return nil
	}
	for i := 0; ; i++ {
		if err := p.value(n.index(i)); err != nil {
			return err
		}
		if more, err := p.comma(']'); !more {
			return err
		}
	}
}

func (p *parser) text() error {
	p.pass(1) // the quote
	for {
		if p.peek() == end {
			return io.ErrUnexpectedEOF
		}
		rest := p.buf[p.at:]
		n := 0
		for n < len(rest) && rest[n] != '"' && rest[n] != '\\' && rest[n] >= ' ' {
			n++
		}
		p.pass(n)
		if n == len(rest) {
			continue
		}
		switch rest[n] {
		case '"':
			p.pass(1)
			return nil
		case '\\':
			p.pass(1)
			if err := p.escape(); err != nil {
				return err
			}
		default:
			return errSyntax
		}
	}
}

// escape reads the rest of an escape after its backslash.
func (p *parser) escape() error {
	switch p.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.pass(1)
		return nil
	case 'u':
		p.pass(1)
		for range 4 {
			if c := p.peek(); c == end || !isHex(byte(c)) {
				return p.wrong()
			}
			p.pass(1)
		}
		return nil
	}
	return p.wrong()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (p *parser) word(w string) error {
	for i := range len(w) {
		if p.peek() != int(w[i]) {
			return p.wrong()
		}
		p.pass(1)
	}
	return nil
}

func (p *parser) number() error {
	if p.peek() == '-' {
		p.pass(1)
	}
	if p.peek() == '0' {
		p.pass(1)
	} else if err := p.digits(); err != nil {
		return err
	}
	if p.peek() == '.' {
		p.pass(1)
		if err := p.digits(); err != nil {
			return err
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.pass(1)
		if c := p.peek(); c == '+' || c == '-' {
			p.pass(1)
		}
		return p.digits()
	}
	return nil
}

// digits reads one or more digits.
func (p *parser) digits() error {
	n := 0
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		p.pass(1)
		n++
	}
	if n == 0 {
		return p.wrong()
	}
	return nil
}

// decode returns JSON text as a Go value; nil: it is null, or a number that is too large.
func decode(text []byte) any {
	if text[0] == 'n' {
		return nil
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return plain(v)
}

// plain replaces each json.Number in v by an int64, or else by a float64.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		if f, err := strconv.ParseFloat(string(v), 64); err == nil {
			return f
		}
		return nil
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plain(v[name])
		}
	}
	return v
}
