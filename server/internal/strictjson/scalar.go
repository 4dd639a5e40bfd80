package strictjson

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

var errText = errors.New("want text")

// Text is a string.
func (r *Reader) Text() (string, error) {
	if r.Peek() != '"' {
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
			return "", ErrSyntax
		}
	}
	return "", ErrSyntax
}

// escaped is a string that starts at start and has its first escape at i.
func (r *Reader) escaped(start, i int) (string, error) {
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
			return "", ErrSyntax
		default:
			b = append(b, c)
			i++
		}
	}
	return "", ErrSyntax
}

var errSurrogate = errors.New("an escape is half of a surrogate pair")

// escape is the character that an escape at the start of text stands for, and the length of the
// escape.
func escape(text string) (c rune, length int, err error) {
	const short, meant = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if len(text) < 2 {
		return 0, 0, ErrSyntax
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

// unit is the number in an escape such as \u00e9 at the start of text.
func unit(text string) (rune, error) {
	if len(text) < 6 || text[:2] != `\u` {
		return 0, ErrSyntax
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	if err != nil {
		return 0, ErrSyntax
	}
	return rune(n), nil
}

// ReadText stores a string.
func (r *Reader) ReadText(to *string) (err error) {
	*to, err = r.Text()
	return err
}

// number is an int64 if it is written as a whole number, else a float64.
func (r *Reader) number() (any, error) {
	text, whole := r.numberText()
	if !isNumber(text) {
		return nil, ErrSyntax
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

// numberText reads text that may be a number. whole: it has neither a point nor an exponent.
func (r *Reader) numberText() (text string, whole bool) {
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
	return r.data[start:r.at], whole
}

// withoutExponent writes a JSON number without point and exponent; empty: it is not a whole number. One that
// is far too large stays as it is.
func withoutExponent(text string) string {
	digits, negative := strings.CutPrefix(text, "-")
	power := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		power = bounded(digits[i+1:])
		digits = digits[:i]
	}
	before, after, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(before+after, "0")
	if digits == "" {
		return "0"
	}
	short := strings.TrimRight(digits, "0")
	power += len(digits) - len(short) - len(after)
	const most = 19 // digits of an int64
	switch {
	case power < 0:
		return ""
	case len(short)+power > most:
		return text
	case negative:
		short = "-" + short
	}
	return short + strings.Repeat("0", power)
}

// bounded is the exponent of a number, or one larger than any number in memory can have.
func bounded(exponent string) int {
	const far = 1 << 30
	n, err := strconv.ParseInt(exponent, 10, 64)
	if err != nil && strings.HasPrefix(exponent, "-") {
		return -far
	}
	if err != nil {
		return far
	}
	return int(max(-far, min(n, far)))
}

// isNumber reports whether text is a number in JSON. strconv accepts more.
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

// digits is the number of digits at the start of text.
func digits(text string) (n int) {
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}
