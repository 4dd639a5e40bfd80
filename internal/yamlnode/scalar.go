package yamlnode

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"go.yaml.in/yaml/v3"
)

// The functions below make readers of fields. Each stores the value in *to or, if it cannot,
// reports the problem and leaves *to alone.

// Text makes a reader of text. Text that YAML reads as a number, a bool or null must be quoted.
func (r *Reader) Text(to *string) func(*Node) {
	return func(n *Node) {
		if r.wantTag(n, "!!str", "text") {
			*to = n.Value
		}
	}
}

// Bool makes a reader of true or false.
func (r *Reader) Bool(to *bool) func(*Node) {
	return func(n *Node) {
		if r.wantTag(n, "!!bool", "true or false") {
			*to = strings.EqualFold(n.Value, "true")
		}
	}
}

// Int64 makes a reader of a decimal whole number from least to most; it refuses possible octal
// numbers.
func (r *Reader) Int64(to *int64, least, most int64) func(*Node) {
	return func(n *Node) {
		if !r.wantTag(n, "!!int", "a whole number") {
			return
		}
		digits := strings.TrimLeft(n.Value, "+-")
		i, err := strconv.ParseInt(n.Value, 10, 64)
		switch {
		case strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0':
			r.Report(n, "want a number in decimal digits, have %s", quote(n.Value))
		case (err != nil || i < least) && most == math.MaxInt64:
			r.Report(n, "want a number of at least %d, have %s", least, quote(n.Value))
		case err != nil || i < least || i > most:
			r.Report(n, "want a number from %d to %d, have %s", least, most, quote(n.Value))
		default:
			*to = i
		}
	}
}

// Period makes a reader of a duration, as limittext.Period reads it.
func (r *Reader) Period(to *time.Duration) func(*Node) {
	return Parsed(r, to, limittext.Period)
}

// Parsed makes a reader of text that parse reads.
func Parsed[T any](r *Reader, to *T, parse func(string) (T, error)) func(*Node) {
	return func(n *Node) {
		text, ok := r.Scalar(n, "text")
		if !ok {
			return
		}
		v, err := parse(text)
		if err != nil {
			r.Report(n, "%s", err)
			return
		}
		*to = v
	}
}

// List makes a reader of a list of texts that parse reads. An empty list makes *to not nil.
func List[T any](r *Reader, to *[]T, parse func(string) (T, error)) func(*Node) {
	return func(n *Node) {
		all, before := []T{}, r.Problems()
		r.Each(n, func(n *Node) {
			var one T
			Parsed(r, &one, parse)(n)
			all = append(all, one)
		})
		if r.Problems() == before {
			*to = all
		}
	}
}

// Scalar is the text of a scalar as written; false, having reported it: n is not a scalar, or null.
// what names the expected value.
func (r *Reader) Scalar(n *Node, what string) (string, bool) {
	if !r.want(n, yaml.ScalarNode, what) {
		return "", false
	}
	if n.Tag == "!!null" {
		r.Report(n, "want %s, have nothing", what)
		return "", false
	}
	return n.Value, true
}

func (r *Reader) want(n *Node, kind yaml.Kind, what string) bool {
	if n == nil {
		return false
	}
	if n.Kind != kind {
		r.Report(n, "want %s, have %s", what, describe(n))
	}
	return n.Kind == kind
}

func (r *Reader) wantTag(n *Node, tag, what string) bool {
	if n == nil {
		return false
	}
	if n.Kind == yaml.ScalarNode && n.Tag == tag {
		return true
	}
	hint := ""
	if tag == "!!str" && n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		hint = " (quote it: " + quote(n.Value) + ")"
	}
	name := ""
	if tag == "!!bool" && n == r.value { // a value of a few words names itself
		name = r.field + ": "
	}
	r.Report(n, "%swant %s, have %s%s", name, what, describe(n), hint)
	return false
}

// describe names the kind of n for error messages.
func describe(n *Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "the bool " + quote(n.Value)
	case "!!int", "!!float":
		return "the number " + quote(n.Value)
	case "!!timestamp":
		return "the date " + quote(n.Value)
	}
	return "the text " + quote(n.Value)
}

func quote(s string) string { return strconv.Quote(clip(s, 60)) }

// clip keeps text of a file from filling a log.
func clip(s string, longest int) string {
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}
