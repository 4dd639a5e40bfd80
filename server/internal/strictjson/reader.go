// Package strictjson reads JSON of requests to be counted. encoding/json would be too lenient: it accepts
// names in any case, repeated members and null for a struct, and replaces all invalid UTF-8 by the same
// character.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/spelling"
)

// Reader reads one JSON value, in one pass. Its caller says the type of each part, and calls End at the end.
// Methods whose name begins with Read store the next value. If it has another type, they return an error and
// leave the target unchanged. New makes it. Not safe for concurrent use.
type Reader struct {
	data  string // texts share it
	at    int
	depth int

	validated bool
	invalid   error // the result of Valid
}

// New is a Reader of data, which must be one JSON value in UTF-8. Texts that are read share the
// memory of data.
func New(data string) (Reader, error) {
	if !utf8.ValidString(data) {
		return Reader{}, errors.New("the JSON is not UTF-8")
	}
	return Reader{data: data}, nil
}

// End returns the final error of reading data: that it is not JSON, if so, else err.
func (r *Reader) End(err error) error {
	if r.Peek(); err == nil && r.at == len(r.data) {
		return nil
	}
	if invalid := r.Valid(); invalid != nil {
		return invalid
	}
	return err
}

// Valid returns why data is not JSON, in the words of encoding/json; nil: it is JSON.
func (r *Reader) Valid() error {
	if r.validated {
		return r.invalid
	}
	r.validated = true
	if data := []byte(r.data); !json.Valid(data) {
		var why json.RawMessage
		r.invalid = fmt.Errorf("the JSON cannot be read: %w", json.Unmarshal(data, &why))
		if len(bytes.TrimSpace(data)) == 0 {
			r.invalid = errors.New("empty: want a JSON object")
		}
	}
	return r.invalid
}

// ErrSyntax means that the data is not JSON. End replaces it by the error of Valid.
var ErrSyntax = errors.New("not valid JSON")

// MaxDepth is how deep values may be nested, as for encoding/json.
const MaxDepth = 10_000

// Peek is the first byte of the next value; 0 at the end.
func (r *Reader) Peek() byte {
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// word skips a word, and reports whether it was there.
func (r *Reader) word(w string) bool {
	if r.Peek() != w[0] || !strings.HasPrefix(r.data[r.at:], w) {
		return false
	}
	r.at += len(w)
	return true
}

// Null skips a null, and reports whether there was one.
func (r *Reader) Null() bool { return r.word("null") }

var errObject = errors.New("want an object")

// OrNull calls read unless a null comes next.
func (r *Reader) OrNull(read func() error) error {
	if r.Null() {
		return nil
	}
	return read()
}

// Object calls read with the name of each member of an object, to read its value.
func (r *Reader) Object(read func(name string) error) error {
	if r.Peek() != '{' {
		return errObject
	}
	return r.each('}', func() error {
		name, err := r.Text()
		if err != nil {
			return err
		}
		if r.Peek() != ':' {
			return ErrSyntax
		}
		r.at++
		return read(name)
	})
}

// Fields calls read with the index in names of each member of an object, to read its value. A
// member that is null is skipped, like one that is missing. Other members, and repeated ones,
// are errors. There are at most 64 names.
func (r *Reader) Fields(names []string, read func(i int) error) error {
	return r.FieldsAndNulls(names, func(i int) error {
		if r.Null() {
			return nil
		}
		return read(i)
	})
}

// FieldsAndNulls is Fields for an object in which null differs from a missing member: it calls
// read before a null, too.
func (r *Reader) FieldsAndNulls(names []string, read func(i int) error) error {
	var seen uint64
	return r.Object(func(name string) error {
		i := slices.Index(names, name)
		if i < 0 {
			return unknownField(name, names)
		}
		if seen&(1<<i) != 0 {
			return fmt.Errorf("%s is given twice", names[i])
		}
		seen |= 1 << i
		if err := read(i); err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		return nil
	})
}

func unknownField(name string, names []string) error {
	near := spelling.Nearest(name, names)
	if near != "" {
		near = ": did you mean " + near + "?"
	}
	return fmt.Errorf("unknown field %.60q%s", name, near)
}

// List calls read for each item of a list.
func (r *Reader) List(read func() error) error {
	if r.Peek() != '[' {
		return errors.New("want a list")
	}
	return r.each(']', read)
}

// ReadBool stores true or false.
func (r *Reader) ReadBool(to *bool) error {
	v := r.word("true")
	if !v && !r.word("false") {
		return errors.New("want true or false")
	}
	*to = v
	return nil
}

// each calls read for each item of a list, or member of an object, which ends with end.
func (r *Reader) each(end byte, read func() error) error {
	r.at++
	if r.depth++; r.depth > MaxDepth {
		return ErrSyntax
	}
	if r.Peek() == end {
		r.at++
		r.depth--
		return nil
	}
	for {
		if err := read(); err != nil {
			return err
		}
		switch r.Peek() {
		case ',':
			r.at++
		case end:
			r.at++
			r.depth--
			return nil
		default:
			return ErrSyntax
		}
	}
}

// ReadInt stores a whole number, exactly. JSON has one kind of numbers, so 20, 20.0 and 2e1 are equal.
func (r *Reader) ReadInt(to *int64) error {
	if c := r.Peek(); c != '-' && (c < '0' || c > '9') {
		return errors.New("want a whole number")
	}
	text, whole := r.numberText()
	if !isNumber(text) {
		return ErrSyntax
	}
	plain := text
	if !whole {
		plain = withoutExponent(text)
	}
	n, err := strconv.ParseInt(plain, 10, 64)
	switch {
	case plain == "":
		return fmt.Errorf("want a whole number, have %.40s", text)
	case err != nil:
		return fmt.Errorf("want a whole number that is less than 2^63, have %.40s", text)
	}
	*to = n
	return nil
}

// Mark is a position in the data, to return to.
type Mark struct{ at, depth int }

// Mark is the position of the next value.
func (r *Reader) Mark() Mark { return Mark{r.at, r.depth} }

// SkipFrom skips the value at m, in data that is Valid.
func (r *Reader) SkipFrom(m Mark) {
	r.at, r.depth = m.at, m.depth
	for depth := 0; ; {
		switch c := r.Peek(); c {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case ',', ':':
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

// Value is the next value: a bool, an int64 if it is written as a whole number, else a float64,
// a string, an []any, a map[string]any, or nil.
func (r *Reader) Value() (any, error) {
	switch r.Peek() {
	case '{':
		return r.Map()
	case '[':
		list := []any{}
		err := r.each(']', func() error {
			v, err := r.Value()
			list = append(list, v)
			return err
		})
		return list, err
	case '"':
		return r.Text()
	}
	switch {
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	case r.Null():
		return nil, nil
	}
	return r.number()
}

// Map is the next value, an object, with each member as Value returns it.
func (r *Reader) Map() (map[string]any, error) {
	m := map[string]any{}
	err := r.Object(func(name string) error {
		if _, twice := m[name]; twice {
			return fmt.Errorf("%.60q is given twice", name)
		}
		v, err := r.Value()
		m[name] = v
		return err
	})
	return m, err
}
