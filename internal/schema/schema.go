// Package schema describes YAML by rows. A row reads one field of a mapping and documents it, so that
// the reader, the defaults, the JSON Schema and the reference pages have one source.
//
// Rows are made for the variables that they read into, as in
//
//	func (l *Log) rows(r *yamlnode.Reader) schema.Rows {
//		return schema.Rows{
//			{Name: "access", Value: schema.Bool(r, &l.Access), Default: "false", Says: "Logs a line for each request."},
//		}
//	}
//
// To describe a mapping, make the rows for a zero value and a new Reader.
package schema

import (
	"math"
	"strconv"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Row is one field of a mapping.
type Row struct {
	Name string
	Value
	// Default is the default value, as written in a file; empty: none. Computed describes the
	// default in words if it depends on the machine or on something else.
	Default, Computed string
	// Says is what the field does, in one or two sentences. Example is a value, as written in a file;
	// empty: Default is the example.
	Says, Example string
	// Flag is the flag of stint serve that sets the field, without its dashes; empty: none.
	Flag string
	// See is the page in docs that explains more, such as "traces.md#sampling"; empty: none.
	See string
	// Required means that the mapping is wrong without the field.
	Required bool
	// Needs are other fields: a mapping with this field must also have one of them. A field of an inner
	// mapping is NAME.FIELD; a field that must have a certain word is NAME=WORD. A field that is false or
	// empty counts as left out, here and in Instead and Not; a field that is 0 needs nothing.
	Needs []string
	// Instead are fields, written as in Needs: a mapping without this field must have one of them.
	Instead []string
	// Not are fields, written as in Needs, that a mapping with this field must not have.
	Not []string
	// Secret means that the value may be or contain a secret.
	Secret bool
	// Reread means that the file named by the value is read again when it changes.
	Reread bool
	// Since is the first version with the field; empty: v0.1.0.
	Since string
}

// Rows are the fields of a mapping.
type Rows []Row

// Value says what a field may be, and reads it.
type Value struct {
	Shape
	Read func(*yamlnode.Node)
	// otherwise sets the computed default; nil: the variable is right as it is.
	otherwise func()
	// shows returns the current value as written in a file; nil: not known.
	shows func() string
	inner Rows // of a mapping that always exists
}

// Fields returns the rows for yamlnode's Mapping.
func (rows Rows) Fields() yamlnode.Fields {
	all := make(yamlnode.Fields, len(rows))
	for i := range rows {
		all[rows[i].Name] = rows[i].Read
	}
	return all
}

// SetDefaults sets each variable to its row's default.
func (rows Rows) SetDefaults() {
	for i := range rows {
		switch row := &rows[i]; {
		case row.otherwise != nil:
			row.otherwise()
		case row.inner != nil:
			row.inner.SetDefaults()
		case row.Default != "":
			row.Read(yamlnode.Plain(row.Default))
		}
	}
}

// Shows returns the current value of row as written in a file, if it is known.
func (row *Row) Shows() (string, bool) {
	if row.shows == nil {
		return "", false
	}
	return row.shows(), true
}

// Text is any text. what names its kind, such as "address".
func Text(r *yamlnode.Reader, to *string, what string) Value {
	return Value{Shape: Shape{Kind: KindText, What: what}, Read: r.Text(to), shows: func() string { return *to }}
}

// Bool is true or false.
func Bool(r *yamlnode.Reader, to *bool) Value {
	return Value{Shape: Shape{Kind: KindBool, What: "true or false"}, Read: r.Bool(to), shows: func() string { return strconv.FormatBool(*to) }}
}

// Number is a whole number from least to most.
func Number[T int | int64](r *yamlnode.Reader, to *T, least, most int64) Value {
	return Value{
		Shape: Shape{Kind: KindNumber, What: "whole number", Least: strconv.FormatInt(least, 10), Most: bound(most)},
		Read: func(n *yamlnode.Node) {
			i := int64(*to)
			r.Int64(&i, least, most)(n)
			*to = T(i)
		},
		shows: func() string { return strconv.FormatInt(int64(*to), 10) },
	}
}

func bound(most int64) string {
	if most == math.MaxInt64 {
		return ""
	}
	return strconv.FormatInt(most, 10)
}

// Parsed is text that parse reads; shape describes it.
func Parsed[T any](r *yamlnode.Reader, to *T, parse func(string) (T, error), shape Shape) Value {
	v := Value{Shape: shape, Read: yamlnode.Parsed(r, to, parse)}
	if text, ok := any(to).(*string); ok {
		v.shows = func() string { return *text }
	}
	return v
}

// Duration is a duration such as 500ms or 7d, from least to most.
func Duration(r *yamlnode.Reader, name string, to *time.Duration, least, most time.Duration) Value {
	shape := Shape{Kind: KindDuration, What: "duration", Least: limittext.Duration(least)}
	if most < Endless {
		shape.Most = limittext.Duration(most)
	}
	if least == AboveZero {
		shape.Least = "more than 0"
	}
	read := func(n *yamlnode.Node) {
		before := r.Problems()
		r.Period(to)(n)
		if r.Problems() == before && (*to < least || *to > most) {
			r.Report(n, "%s must %s", name, within(least, most))
		}
	}
	return Value{Shape: shape, Read: read, shows: func() string { return limittext.Duration(*to) }}
}

const (
	// AboveZero is the least of Durations that must not be 0.
	AboveZero = time.Nanosecond
	// Endless is the most of Durations without a bound.
	Endless = time.Duration(math.MaxInt64)
)

// within says that a duration must be from least to most.
func within(least, most time.Duration) string {
	switch {
	case most < Endless:
		return "be from " + boundText(least) + " to " + boundText(most)
	case least == AboveZero:
		return "be more than 0"
	case least == 0:
		return "not be negative"
	}
	return "be at least " + limittext.Duration(least)
}

func boundText(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return limittext.Duration(d)
}

// Section is a mapping that always exists. check, which may be nil, checks it as a whole.
func Section(r *yamlnode.Reader, rows Rows, check func(n *yamlnode.Node, fields map[string]*yamlnode.Node)) Value {
	return Value{Shape: Shape{Kind: KindMapping, Rows: func() Rows { return rows }}, inner: rows, Read: readRows(r, rows, check)}
}

// Optional is a mapping that may be left out. If it is there, *to is set.
func Optional[T any](r *yamlnode.Reader, to **T, rowsOf func(*T) Rows, check func(t *T, n *yamlnode.Node, fields map[string]*yamlnode.Node)) Value {
	shape := shapeOf(rowsOf)
	shape.Optional = true
	return Value{Shape: shape, Read: func(n *yamlnode.Node) {
		t, rows := withDefaults(rowsOf)
		readRows(r, rows, func(n *yamlnode.Node, fields map[string]*yamlnode.Node) {
			*to = t
			if check != nil {
				check(t, n, fields)
			}
		})(n)
	}}
}

// Mappings is a list of mappings. add gets each.
func Mappings[T any](r *yamlnode.Reader, rowsOf func(*T) Rows, add func(t *T, n *yamlnode.Node, fields map[string]*yamlnode.Node)) Value {
	item := shapeOf(rowsOf)
	return Value{Shape: Shape{Kind: KindList, Item: &item}, Read: func(n *yamlnode.Node) {
		r.Each(n, func(n *yamlnode.Node) {
			t, rows := withDefaults(rowsOf)
			readRows(r, rows, func(n *yamlnode.Node, fields map[string]*yamlnode.Node) { add(t, n, fields) })(n)
		})
	}}
}

// New makes a T with the defaults of rowsOf.
func New[T any](rowsOf func(*T) Rows) *T {
	t, _ := withDefaults(rowsOf)
	return t
}

func withDefaults[T any](rowsOf func(*T) Rows) (*T, Rows) {
	t := new(T)
	rows := rowsOf(t)
	rows.SetDefaults()
	return t, rows
}

func shapeOf[T any](rowsOf func(*T) Rows) Shape {
	return Shape{Kind: KindMapping, Rows: func() Rows { return rowsOf(new(T)) }}
}

func readRows(r *yamlnode.Reader, rows Rows, check func(*yamlnode.Node, map[string]*yamlnode.Node)) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if fields := r.Mapping(n, rows.Fields()); fields != nil && check != nil {
			check(n, fields)
		}
	}
}

// List is a list of texts that parse reads; item describes each.
func List[T any](r *yamlnode.Reader, to *[]T, parse func(string) (T, error), item Shape) Value {
	return Value{Shape: Shape{Kind: KindList, Item: &item}, Read: yamlnode.List(r, to, parse)}
}

// Custom is a value that read reads.
func Custom(shape Shape, read func(*yamlnode.Node)) Value {
	return Value{Shape: shape, Read: read}
}

// ByDefault is v with a default that cannot be written in a file: set sets it, and shows returns the current
// value, if it is known.
func (v Value) ByDefault(set func(), shows func() string) Value {
	v.otherwise = set
	if shows != nil {
		v.shows = shows
	}
	return v
}

// Matching is v, a text that its reader refuses if it does not match a pattern.
func (v Value) Matching(pattern string) Value {
	v.Pattern = pattern
	return v
}

// OrWords is v, which may be one of a few words instead; v reads them.
func (v Value) OrWords(words ...string) Value {
	v.Shape = v.OrElse(Words(words...))
	return v
}

// Expanding is v, in which ${NAME} stands for an environment variable and ${file:PATH} for the content
// of a file; see yamlnode's Expand.
func (v Value) Expanding(r *yamlnode.Reader) Value {
	read := v.Read
	v.Expands = true
	v.Read = func(n *yamlnode.Node) {
		if n, ok := r.Expand(n); ok {
			read(n)
		}
	}
	return v
}

// After is v, read later: by the function that After stores in *read.
func (v Value) After(r *yamlnode.Reader, read *func(*yamlnode.Node)) Value {
	*read = v.Read
	v.Read = r.Skip
	return v
}
