package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stintdev/stint"
)

// defaultKey is the key of a rule without one. The name of the gateway's route stands for an unknown
// operation; without both parts, the rule does not apply.
const defaultKey = "[operation, client.ip]"

// Key is a key as Ask has it. In JSON it is a string or, where the rule's key
// expression is a list, a list of its parts as strings.
type Key string

// JoinKey is the key that a key expression with a list of these parts gives. An
// error says why no rule would give it.
func JoinKey(parts ...string) (Key, error) {
	var b strings.Builder
	size := len(parts)
	for _, part := range parts {
		size += len(part)
	}
	b.Grow(size)
	for _, part := range parts {
		if strings.IndexByte(part, 0) >= 0 {
			return "", errors.New("key: a part contains a NUL byte")
		}
		b.WriteString(part)
		b.WriteByte(0)
	}
	if b.Len() == len(parts) {
		b.Reset() // nothing but NULs: see joined
	}
	if err := checkKey(b.String()); err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	return Key(b.String()), nil
}

// Parts are the parts of a key that is a list, and isList is true; else they are
// the key itself.
func (k Key) Parts() (parts []string, isList bool) {
	whole, isList := strings.CutSuffix(string(k), "\x00")
	if !isList {
		return []string{whole}, false
	}
	return strings.Split(whole, "\x00"), true
}

// check says why no rule would give k; nil where one could.
func (k Key) check() error {
	parts, isList := k.Parts()
	if isList {
		_, err := JoinKey(parts...)
		return err
	}
	if strings.IndexByte(string(k), 0) >= 0 {
		return errors.New("key: it contains a NUL byte, and is not a list")
	}
	if err := checkKey(string(k)); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) > stint.MaxKey:
		return fmt.Errorf("it is longer than %d bytes", stint.MaxKey)
	case !utf8.ValidString(key):
		return errors.New("it is not valid UTF-8")
	}
	return nil
}

// String is the key for people: a list as in ["42","/x"]; a string as it is, but in
// quotation marks if it could be taken for a list, or has blanks or unprintable
// characters. It may be as long as the key.
func (k Key) String() string {
	parts, isList := k.Parts()
	if isList {
		for i := range parts {
			parts[i] = strconv.Quote(parts[i])
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	if k == "" || k[0] == '[' || k[0] == '"' || strings.ContainsFunc(string(k), isHidden) || !utf8.ValidString(string(k)) {
		return strconv.Quote(string(k))
	}
	return string(k)
}

func isHidden(c rune) bool { return c == ' ' || !unicode.IsPrint(c) }

// MarshalJSON is the key as UnmarshalJSON reads it. An error says why k is not a key.
func (k Key) MarshalJSON() ([]byte, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	if parts, isList := k.Parts(); isList {
		return json.Marshal(parts)
	}
	return json.Marshal(string(k))
}

// UnmarshalJSON reads a string, or a list of strings. It refuses keys that no rule
// would give, and text that encoding/json would change.
func (k *Key) UnmarshalJSON(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if !utf8.Valid(data) {
		return errors.New("key: it is not valid UTF-8")
	}
	if halfSurrogate(data) {
		return errors.New("key: an escape is half of a surrogate pair")
	}
	switch v := v.(type) {
	case string:
		if strings.HasSuffix(v, "\x00") {
			return errors.New("key: it contains a NUL byte; write a list of parts as a list")
		}
		if err := Key(v).check(); err != nil {
			return err
		}
		*k = Key(v)
		return nil
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			text, ok := part.(string)
			if !ok {
				return fmt.Errorf("key: part %d is not a string: write a number or a bool as one, such as \"42\"", i+1)
			}
			parts[i] = text
		}
		joined, err := JoinKey(parts...)
		if err != nil {
			return err
		}
		*k = joined
		return nil
	}
	return errors.New(`key: want a string, or a list of strings such as ["42", "/x"]`)
}

// halfSurrogate reports whether JSON has an escape that is half of a surrogate pair: encoding/json reads all
// of these as the same character.
func halfSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		c, ok := escaped(data[i:])
		if !ok {
			i++ // the character after the backslash
			continue
		}
		i += 5
		if !utf16.IsSurrogate(c) {
			continue
		}
		second, ok := escaped(data[i+1:])
		if !ok || utf16.DecodeRune(c, second) == unicode.ReplacementChar {
			return true
		}
		i += 6
	}
	return false
}

func escaped(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	c, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(c), err == nil
}
