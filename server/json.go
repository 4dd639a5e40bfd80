package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/yamlnode"
)

// reader reads JSON that is known to be valid, and says of every member what it
// must be. encoding/json is too kind for what people are counted by: it takes
// names in any case and members that come twice, null for a struct, and makes one
// character, the same for all, of whatever is no Unicode.
type reader struct {
	data []byte
	at   int
}

// readJSON is a reader of data, which must be one JSON value.
func readJSON(data []byte) (*reader, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the JSON is not UTF-8")
	}
	if !json.Valid(data) {
		if len(bytes.TrimSpace(data)) == 0 {
			return nil, errors.New("empty: want a JSON object")
		}
		var why json.RawMessage
		return nil, fmt.Errorf("the JSON cannot be read: %w", json.Unmarshal(data, &why))
	}
	return &reader{data: data}, nil
}

// peek is the first byte of what comes next.
func (r *reader) peek() byte {
	for ; ; r.at++ {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':': // that they are where they belong is known
		default:
			return c
		}
	}
}

// null skips a null, and tells whether there was one. A member that is null is as
// one that is not there.
func (r *reader) null() bool {
	if r.peek() != 'n' {
		return false
	}
	r.at += len("null")
	return true
}

var errObject = errors.New("want an object")

// orNull reads what is not null.
func (r *reader) orNull(read func() error) error {
	if r.null() {
		return nil
	}
	return read()
}

// object calls read with the name of each member of an object, to read its value.
func (r *reader) object(read func(name []byte) error) error {
	if r.peek() != '{' {
		return errObject
	}
	r.at++
	for r.peek() != '}' {
		name, err := r.text()
		if err != nil {
			return err
		}
		if err := read(name); err != nil {
			return err
		}
	}
	r.at++
	return nil
}

// fields calls read with the place among names of each member of an object, to
// read its value. Other members are errors.
func (r *reader) fields(names []string, read func(i int) error) error {
	var seen uint
	return r.object(func(name []byte) error {
		i := 0
		for i < len(names) && names[i] != string(name) {
			i++
		}
		if i == len(names) {
			return unknownMember(string(name), names)
		}
		if seen&(1<<i) != 0 {
			return fmt.Errorf("%s is given twice", names[i])
		}
		seen |= 1 << i
		if r.null() {
			return nil
		}
		if err := read(i); err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		return nil
	})
}

func unknownMember(name string, names []string) error {
	near := yamlnode.Nearest(name, names)
	if near != "" {
		near = ": did you mean " + near + "?"
	}
	return fmt.Errorf("unknown field %.60q%s", name, near)
}

// list calls read for each item of what must be a list.
func (r *reader) list(read func() error) error {
	if r.peek() != '[' {
		return errors.New("want a list")
	}
	return r.each(read)
}

// bool stores true or false.
func (r *reader) bool(to **bool) error {
	v := r.peek() == 't'
	if !v && r.peek() != 'f' {
		return errors.New("want true or false")
	}
	r.at += len(strconv.FormatBool(v))
	*to = &v
	return nil
}

// each calls read for each item of a list.
func (r *reader) each(read func() error) error {
	r.at++
	for r.peek() != ']' {
		if err := read(); err != nil {
			return err
		}
	}
	r.at++
	return nil
}

var errText = errors.New("want text")

// text is a string, which may lie in the reader's data.
func (r *reader) text() ([]byte, error) {
	if r.peek() != '"' {
		return nil, errText
	}
	start := r.at + 1
	for i := start; ; i++ {
		switch r.data[i] {
		case '"':
			r.at = i + 1
			return r.data[start:i], nil
		case '\\':
			return r.escaped(start, i)
		}
	}
}

// escaped is a string that starts at start and has its first escape at i.
func (r *reader) escaped(start, i int) ([]byte, error) {
	b := bytes.Clone(r.data[start:i])
	for r.data[i] != '"' {
		if r.data[i] != '\\' {
			b = append(b, r.data[i])
			i++
			continue
		}
		c := r.data[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			u := r.hex(i)
			i += 4
			if utf16.IsSurrogate(u) {
				if r.data[i] != '\\' || r.data[i+1] != 'u' {
					return nil, errSurrogate
				}
				if u = utf16.DecodeRune(u, r.hex(i+2)); u == utf8.RuneError {
					return nil, errSurrogate
				}
				i += 6
			}
			b = utf8.AppendRune(b, u)
			continue
		}
		b = append(b, c)
	}
	r.at = i + 1
	return b, nil
}

var errSurrogate = errors.New("an escape is half of a surrogate pair, which is no character")

// hex is the number in the four digits at i.
func (r *reader) hex(i int) rune {
	n, err := strconv.ParseUint(string(r.data[i:i+4]), 16, 16)
	if err != nil {
		panic(err) // the JSON is valid
	}
	return rune(n)
}

// string stores a string.
func (r *reader) string(to *string) error {
	b, err := r.text()
	*to = string(b)
	return err
}

// whole stores a whole number.
func (r *reader) whole(to *int64) error {
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return errors.New("want a whole number")
	}
	v, err := r.number()
	if err != nil {
		return err
	}
	n, ok := v.(int64)
	if !ok {
		return errors.New("want a whole number, without a point or exponent")
	}
	*to = n
	return nil
}

// skip goes past whatever comes next.
func (r *reader) skip() {
	for depth := 0; ; {
		switch c := r.peek(); c {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case '"':
			for r.at++; r.data[r.at] != '"'; r.at++ {
				if r.data[r.at] == '\\' {
					r.at++
				}
			}
			r.at++
		default: // a number or a name
			for r.at < len(r.data) && strings.IndexByte(" \t\r\n,:]}", r.data[r.at]) < 0 {
				r.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}

// number is an int64 where it is written as a whole number, else a float64.
func (r *reader) number() (any, error) {
	start, whole := r.at, true
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; {
		case c >= '0' && c <= '9', c == '-':
			continue
		case c == '.', c == 'e', c == 'E', c == '+':
			whole = false
			continue
		}
		break
	}
	text := r.data[start:r.at]
	var n any
	var err error
	if whole {
		n, err = strconv.ParseInt(string(text), 10, 64)
	} else {
		n, err = strconv.ParseFloat(string(text), 64)
	}
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is out of range", text)
	}
	return n, nil
}

// value is whatever comes next, as rules.Input.Attrs holds it.
func (r *reader) value() (any, error) {
	switch r.peek() {
	case '{':
		return r.attrs()
	case '[':
		list := []any{}
		err := r.each(func() error {
			v, err := r.value()
			list = append(list, v)
			return err
		})
		return list, err
	case '"':
		b, err := r.text()
		return string(b), err
	case 't':
		r.at += len("true")
		return true, nil
	case 'f':
		r.at += len("false")
		return false, nil
	case 'n':
		r.null()
		return nil, nil
	}
	return r.number()
}

// attrs is an object as rules.Input.Attrs holds it.
func (r *reader) attrs() (map[string]any, error) {
	m := map[string]any{}
	err := r.object(func(name []byte) error {
		if _, twice := m[string(name)]; twice {
			return fmt.Errorf("%.60q is given twice", name)
		}
		v, err := r.value()
		m[string(name)] = v
		return err
	})
	return m, err
}
