package rules

import (
	"net/http"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
	"github.com/stintdev/stint/internal/httpfield"
)

// texts are all headers or all parameters of a request by their names, for expressions
// that want them all, or many. Looking one up takes no longer where there are many.
type texts struct {
	byName map[string]oneText
	folded map[string]sameName // by what some servers make of names
	twin   Ambiguity           // what it is if names fold to one
	bad    Ambiguity           // what is ambiguous of any
	fold   func(name string) string
	values traits.Mapper
}

type oneText struct {
	value string
	bad   Ambiguity
}

// sameName is the first of the names that fold to one.
type sameName struct {
	first string
	more  bool
}

// headers are those with names in canonical form, by their names in lower case.
func (r *Request) headers(may *repeatable) *texts {
	t := &texts{byName: make(map[string]oneText, len(r.Header)), twin: TwinHeader &^ may.allow, fold: httpfield.FoldHeader}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if value, ok, bad := r.lines(name, may); ok && http.CanonicalHeaderKey(lower) == name {
			t.byName[lower] = oneText{value, bad &^ may.allow}
		}
	}
	t.findTwins(func(yield func(string)) {
		for name := range r.Header {
			yield(strings.ToLower(name))
		}
	})
	return t
}

func (r *Request) parameters(may *repeatable) *texts {
	t := &texts{byName: make(map[string]oneText), twin: TwinParameter &^ may.allow, fold: httpfield.FoldParameter}
	more := make(map[string][]string)
	for name, raw := range queryParts(r.RawQuery) {
		one, again := t.byName[name]
		switch {
		case !again:
			one.value = unescaped(raw)
		case may.parameters[name]:
			more[name] = append(more[name], unescaped(raw))
		default:
			one.bad = RepeatedParameter &^ may.allow
		}
		t.byName[name] = one
	}
	for name, values := range more {
		one := t.byName[name]
		one.value += ", " + strings.Join(values, ", ")
		t.byName[name] = one
	}
	t.findTwins(func(yield func(string)) {
		for name := range t.byName {
			yield(name)
		}
	})
	return t
}

func (t *texts) findTwins(names func(yield func(string))) {
	t.folded = make(map[string]sameName, len(t.byName))
	names(func(name string) {
		folded := t.fold(name)
		switch same, ok := t.folded[folded]; {
		case !ok:
			t.folded[folded] = sameName{first: name}
		case same.first != name:
			t.folded[folded] = sameName{same.first, true}
			t.bad |= t.twin
		}
	})
	values := make(map[string]string, len(t.byName))
	for name, one := range t.byName {
		values[name] = one.value
		t.bad |= one.bad
	}
	t.values = types.NewStringStringMap(types.DefaultTypeAdapter, values)
}

// read is the value of a name, and why it is ambiguous.
func (t *texts) read(name string) (value string, ok bool, bad Ambiguity) {
	one, ok := t.byName[name]
	if same, found := t.folded[t.fold(name)]; found && (same.more || same.first != name) {
		one.bad |= t.twin
	}
	return one.value, ok, one.bad
}
