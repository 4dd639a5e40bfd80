package errorformat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/stintdev/stint/internal/limittext"
)

// Texts are filled with extremes and nothing to check that they are well-formed for all values.
var (
	extremes = Values{
		Message: hostile, Outcome: hostile, DecisionID: hostile, RetryAfter: hostile, BanLeft: hostile, Limit: hostile, LimitName: hostile,
		Status: 599, RetryAfterSeconds: math.MaxInt64, Violations: math.MaxInt64, WarnAfter: math.MaxInt64, BanAfter: math.MaxInt64,
	}
	nothing = Values{Status: 400}
)

const hostile = "\"'\\</script>]]>&--><!--\r\n\t\u2028\u2029\x00\ufffe{message}∞"

// checkFilled checks t filled with the extremes and with nothing. offset is the place of an error in the
// template, in bytes.
func checkFilled(t *Text, check func(string) (int, error)) (offset int, err error) {
	for _, v := range [...]*Values{&nothing, &extremes} {
		if at, err := check(t.Fill(v)); err != nil {
			return t.written(v, at), err
		}
	}
	return 0, nil
}

// jsonWriters returns how the placeholders of a template of JSON are written: those in strings as text,
// others as numbers. offset is the place of an error, in bytes.
func jsonWriters(text string, all []span) (writers []writer, offset int, err error) {
	inString, opened := false, 0 // opened is how many placeholders are before the string
	for i := 0; i < len(text); i++ {
		if n := len(writers); n < len(all) && i == all[n].from {
			holder := &placeholders[all[n].holder]
			switch {
			case inString:
				writers = append(writers, inJSONString)
			case !holder.number:
				return nil, i, fmt.Errorf("{%s} is a text: put it into quotes", holder.name)
			default:
				writers = append(writers, asJSONNumber)
			}
			i = all[n].to - 1
			continue
		}
		switch c := text[i]; {
		case c == '"' && inString:
			inString = false
			if len(writers) > opened && strings.HasPrefix(strings.TrimLeft(text[i+1:], " \t\r\n"), ":") {
				return nil, all[opened].from, errors.New("the name of a member cannot have placeholders")
			}
		case c == '"':
			inString, opened = true, len(writers)
		case c == '\\' && inString:
			after := 1
			if strings.HasPrefix(text[i+1:], "u") {
				after = len("uXXXX")
			}
			if n := len(writers); n < len(all) && all[n].from <= i+after {
				return nil, all[n].from, errors.New("a placeholder cannot be part of an escape: for a backslash, write two")
			}
			i += after
		}
	}
	return writers, 0, nil
}

// checkJSON returns what is wrong with one JSON value, and where.
func checkJSON(text string) (int, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		at := len(text)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) && syntax.Offset > 0 {
			at = int(syntax.Offset) - 1
		}
		return at, fmt.Errorf("not valid JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	if err := distinctMembers(d); err != nil {
		return int(d.InputOffset()) - 1, err
	}
	return 0, nil
}

// distinctMembers reads a valid value until an object has two members with the same name.
func distinctMembers(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		names := map[string]bool{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			text, _ := name.(string)
			if names[text] {
				return fmt.Errorf("the member %q is given twice", limittext.Clip(text))
			}
			names[text] = true
			if err := distinctMembers(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		for d.More() {
			if err := distinctMembers(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}
