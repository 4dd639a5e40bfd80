package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/yamlnode"
)

// reader reads JSON, and says of every member what it must be. encoding/json is too
// kind for what people are counted by: it takes names in any case and members that
// come twice, null for a struct, and makes one character, the same for all, of
// whatever is no Unicode.
//
// It reads once, and takes nothing that is no JSON. Where it fails, it leaves it to
// encoding/json to say whether that is why: see end.
type reader struct {
	data  string // texts share it
	at    int
	depth int
	lines []string // of headers

	judged  bool
	invalid error // what valid has said
}

// newReader is a reader of data, which must be one JSON value.
func newReader(data string) (reader, error) {
	if !utf8.ValidString(data) {
		return reader{}, errors.New("the JSON is not UTF-8")
	}
	return reader{data: data}, nil
}

// end is what comes of data, whose value was read with err. That it is no JSON goes
// before anything else that is wrong.
func (r *reader) end(err error) error {
	if r.peek(); err == nil && r.at == len(r.data) {
		return nil
	}
	if invalid := r.valid(); invalid != nil {
		return invalid
	}
	return err
}

// valid asks encoding/json whether data is JSON, once.
func (r *reader) valid() error {
	if r.judged {
		return r.invalid
	}
	r.judged = true
	if data := []byte(r.data); !json.Valid(data) {
		var why json.RawMessage
		r.invalid = fmt.Errorf("the JSON cannot be read: %w", json.Unmarshal(data, &why))
		if len(bytes.TrimSpace(data)) == 0 {
			r.invalid = errors.New("empty: want a JSON object")
		}
	}
	return r.invalid
}

// errJSON is an error of the JSON. It is never told: end has better words.
var errJSON = errors.New("this is no JSON")

// mostDeep is how deep values may lie in each other, as for encoding/json.
const mostDeep = 10_000

// peek is the first byte of what comes next; 0 at the end.
func (r *reader) peek() byte {
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// word skips a word, and tells whether it was there.
func (r *reader) word(w string) bool {
	if r.peek() != w[0] || !strings.HasPrefix(r.data[r.at:], w) {
		return false
	}
	r.at += len(w)
	return true
}

// null skips a null, and tells whether there was one. A member that is null is as
// one that is not there.
func (r *reader) null() bool { return r.word("null") }

var errObject = errors.New("want an object")

// orNull reads what is not null.
func (r *reader) orNull(read func() error) error {
	if r.null() {
		return nil
	}
	return read()
}

// object calls read with the name of each member of an object, to read its value.
func (r *reader) object(read func(name string) error) error {
	if r.peek() != '{' {
		return errObject
	}
	return r.each('}', func() error {
		name, err := r.text()
		if err != nil {
			return err
		}
		if r.peek() != ':' {
			return errJSON
		}
		r.at++
		return read(name)
	})
}

// fields calls read with the place among names of each member of an object, to
// read its value. Other members are errors.
func (r *reader) fields(names []string, read func(i int) error) error {
	var seen uint
	return r.object(func(name string) error {
		i := slices.Index(names, name)
		if i < 0 {
			return unknownMember(name, names)
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
	return r.each(']', read)
}

// bool stores true or false.
func (r *reader) bool(to **bool) error {
	v := r.word("true")
	if !v && !r.word("false") {
		return errors.New("want true or false")
	}
	*to = &v
	return nil
}

// each calls read for each item of a list, or member of an object, which ends with
// end.
func (r *reader) each(end byte, read func() error) error {
	r.at++
	if r.depth++; r.depth > mostDeep {
		return errJSON
	}
	if r.peek() == end {
		r.at++
		r.depth--
		return nil
	}
	for {
		if err := read(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.at++
		case end:
			r.at++
			r.depth--
			return nil
		default:
			return errJSON
		}
	}
}

var errText = errors.New("want text")

// text is a string.
func (r *reader) text() (string, error) {
	if r.peek() != '"' {
		return "", errText
	}
	start := r.at + 1
	for i := start; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			r.at = i + 1
			return r.data[start:i], nil
		case c == '\\':
			return r.escaped(start, i)
		case c < ' ':
			return "", errJSON
		}
	}
	return "", errJSON
}

// escaped is a string that starts at start and has its first escape at i.
func (r *reader) escaped(start, i int) (string, error) {
	b := []byte(r.data[start:i])
	for i < len(r.data) {
		switch c := r.data[i]; {
		case c == '"':
			r.at = i + 1
			return string(b), nil
		case c == '\\':
			c, length, err := escape(r.data[i:])
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, c)
			i += length
		case c < ' ':
			return "", errJSON
		default:
			b = append(b, c)
			i++
		}
	}
	return "", errJSON
}

var errSurrogate = errors.New("an escape is half of a surrogate pair, which is no character")

// escape is the character that text starts with an escape of, and how long that is.
func escape(text string) (c rune, length int, err error) {
	const short, meant = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if len(text) < 2 {
		return 0, 0, errJSON
	}
	if i := strings.IndexByte(short, text[1]); i >= 0 {
		return rune(meant[i]), 2, nil
	}
	c, err = unit(text)
	if err != nil || !utf16.IsSurrogate(c) {
		return c, 6, err
	}
	low, err := unit(text[6:])
	if c = utf16.DecodeRune(c, low); err != nil || c == utf8.RuneError {
		return 0, 0, errSurrogate
	}
	return c, 12, nil
}

// unit is the number in an escape such as \u00e9, which text starts with.
func unit(text string) (rune, error) {
	if len(text) < 6 || text[:2] != `\u` {
		return 0, errJSON
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	if err != nil {
		return 0, errJSON
	}
	return rune(n), nil
}

// string stores a string.
func (r *reader) string(to *string) (err error) {
	*to, err = r.text()
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

// skip goes past whatever comes next, in data that is JSON for certain.
func (r *reader) skip() {
	for depth := 0; ; {
		switch c := r.peek(); c {
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
	if !isNumber(text) {
		return nil, errJSON
	}
	var n any
	var err error
	if whole {
		n, err = strconv.ParseInt(text, 10, 64)
	} else {
		n, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is out of range", text)
	}
	return n, nil
}

// isNumber tells whether text is a number as JSON writes it, where strconv would take
// more.
func isNumber(text string) bool {
	text = strings.TrimPrefix(text, "-")
	n := digits(text)
	if n == 0 || n > 1 && text[0] == '0' {
		return false
	}
	text = text[n:]
	if rest, ok := strings.CutPrefix(text, "."); ok {
		if n = digits(rest); n == 0 {
			return false
		}
		text = rest[n:]
	}
	if text == "" {
		return true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return false
	}
	if text = text[1:]; text != "" && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	return text != "" && digits(text) == len(text)
}

// digits is how many digits text starts with.
func digits(text string) (n int) {
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// value is whatever comes next, as rules.Input.Attrs holds it.
func (r *reader) value() (any, error) {
	switch r.peek() {
	case '{':
		return r.attrs()
	case '[':
		list := []any{}
		err := r.each(']', func() error {
			v, err := r.value()
			list = append(list, v)
			return err
		})
		return list, err
	case '"':
		return r.text()
	}
	switch {
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	case r.null():
		return nil, nil
	}
	return r.number()
}

// attrs is an object as rules.Input.Attrs holds it.
func (r *reader) attrs() (map[string]any, error) {
	m := map[string]any{}
	err := r.object(func(name string) error {
		if _, twice := m[name]; twice {
			return fmt.Errorf("%.60q is given twice", name)
		}
		v, err := r.value()
		m[name] = v
		return err
	})
	return m, err
}
