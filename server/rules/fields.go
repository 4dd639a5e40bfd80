package rules

import (
	"net/http"
	"strings"

	"github.com/stintdev/stint/internal/httpfield"
)

// These are an evaluation as expr.Fields of its request.
type (
	headerFields evaluation
	queryFields  evaluation
	cookieFields evaluation
)

// lookups counts names that were looked up. After mostLookups there is an index: an expression
// may loop over names, and each lookup reads the whole query.
type lookups struct {
	n     int
	index *fieldIndex // nil: not built yet
}

const mostLookups = 16

func (h *headerFields) Lookup(name string) (text string, ok bool, err error) {
	if strings.ToLower(name) != name { // all names are in lower case
		return "", false, nil
	}
	var ambiguous Ambiguity
	if h.headers.n++; h.headers.n > mostLookups {
		text, ok, ambiguous = h.index().find(name)
	} else {
		canonical, known := h.set.headerNames[name]
		if !known {
			canonical = http.CanonicalHeaderKey(name)
		}
		text, ok, ambiguous = h.in.Request.header(canonical, &h.set.repeatable)
	}
	return lookedUp(name, text, ok, ambiguous)
}

func (q *queryFields) Lookup(name string) (text string, ok bool, err error) {
	var ambiguous Ambiguity
	if q.query.n++; q.query.n > mostLookups {
		text, ok, ambiguous = q.index().find(name)
	} else {
		text, ok, ambiguous = q.in.Request.parameter(name, &q.set.repeatable)
	}
	return lookedUp(name, text, ok, ambiguous)
}

func (c *cookieFields) Lookup(name string) (text string, ok bool, err error) {
	var ambiguous, whole Ambiguity
	if c.cookies.n++; c.cookies.n > mostLookups {
		x := c.index()
		text, ok, ambiguous = x.find(name)
		whole = x.whole
	} else {
		var header string
		header, whole = c.in.Request.cookies(&c.set.repeatable)
		text, ok, ambiguous = c.set.repeatable.cookie(header, name)
	}
	switch {
	case whole != 0:
		return lookedUp("cookie", "", false, whole)
	case httpfield.IsHidden(name):
		return "", false, nil
	}
	return lookedUp(name, text, ok, ambiguous)
}

func lookedUp(name, text string, ok bool, ambiguous Ambiguity) (string, bool, error) {
	if ambiguous != 0 {
		return "", false, &AmbiguousError{Is: ambiguous, Name: name}
	}
	return text, ok, nil
}

func (h *headerFields) All() (map[string]string, error) { return h.index().all() }

func (q *queryFields) All() (map[string]string, error) { return q.index().all() }

func (c *cookieFields) All() (map[string]string, error) { return c.index().all() }

func (h *headerFields) index() *fieldIndex {
	if h.headers.index == nil {
		h.headers.index = h.in.Request.indexHeaders(&h.set.repeatable)
	}
	return h.headers.index
}

func (q *queryFields) index() *fieldIndex {
	if q.query.index == nil {
		q.query.index = q.in.Request.indexParameters(&q.set.repeatable)
	}
	return q.query.index
}

func (c *cookieFields) index() *fieldIndex {
	if c.cookies.index == nil {
		header, ambiguous := c.in.Request.cookies(&c.set.repeatable)
		c.cookies.index = c.set.repeatable.indexCookies(header)
		c.cookies.index.whole = ambiguous
	}
	return c.cookies.index
}

// fieldIndex is all headers, all parameters or all cookies of a request by their names.
type fieldIndex struct {
	byName    map[string]field
	folded    map[string]foldedName // by names as some servers change them
	fold      func(name string) string
	twin      Ambiguity // the ambiguity if two names fold to one
	ambiguous Ambiguity // twin, if any two do
	whole     Ambiguity // of the source of all fields, whatever the names
}

type field struct {
	value     string
	ambiguous Ambiguity
}

type foldedName struct {
	first  string
	others bool
}

// indexHeaders indexes headers with canonical names by their names in lower case.
func (r *Request) indexHeaders(may *repeatable) *fieldIndex {
	x := newFieldIndex(len(r.Header), httpfield.FoldHeader, TwinHeader&^may.allow)
	for name := range r.Header {
		lower := strings.ToLower(name)
		x.noteName(lower)
		if value, ok, ambiguous := r.lines(name, may); ok && http.CanonicalHeaderKey(lower) == name {
			x.byName[lower] = field{value, ambiguous &^ may.allow}
		}
	}
	return x
}

func (r *Request) indexParameters(may *repeatable) *fieldIndex {
	x := newFieldIndex(0, httpfield.FoldParameter, TwinParameter&^may.allow)
	more := make(map[string][]string)
	for name, sent := range queryParts(r.RawQuery) {
		value := httpfield.ParameterValue(sent)
		switch {
		case x.addFirst(name, value):
		case may.parameters[name]:
			more[name] = append(more[name], value)
		default:
			x.mark(name, RepeatedParameter&^may.allow)
		}
	}
	x.join(more)
	return x
}

func (may *repeatable) indexCookies(header string) *fieldIndex {
	x := newFieldIndex(0, httpfield.FoldCookie, TwinCookie&^may.allow)
	more := make(map[string][]string)
	for name, sent := range httpfield.Cookies(header) {
		if httpfield.IsHidden(name) {
			x.noteName(name)
			continue
		}
		value := httpfield.CookieValue(sent)
		switch {
		case x.addFirst(name, value):
		case may.cookies[name]:
			more[name] = append(more[name], value)
		case x.byName[name].value != value:
			x.mark(name, RepeatedCookie&^may.allow)
		}
	}
	x.join(more)
	return x
}

// addFirst adds a value, unless there is one of this name.
func (x *fieldIndex) addFirst(name, value string) bool {
	if _, again := x.byName[name]; again {
		return false
	}
	x.noteName(name)
	x.byName[name] = field{value: value}
	return true
}

func (x *fieldIndex) mark(name string, is Ambiguity) {
	one := x.byName[name]
	one.ambiguous |= is
	x.byName[name] = one
}

// join adds to names the values after their first.
func (x *fieldIndex) join(more map[string][]string) {
	for name, values := range more {
		one := x.byName[name]
		one.value += ", " + strings.Join(values, ", ")
		x.byName[name] = one
	}
}

func newFieldIndex(size int, fold func(string) string, twin Ambiguity) *fieldIndex {
	return &fieldIndex{byName: make(map[string]field, size), folded: make(map[string]foldedName, size), fold: fold, twin: twin}
}

func (x *fieldIndex) noteName(name string) {
	folded := x.fold(name)
	switch same, ok := x.folded[folded]; {
	case !ok:
		x.folded[folded] = foldedName{first: name}
	case same.first != name:
		x.folded[folded] = foldedName{same.first, true}
		x.ambiguous |= x.twin
	}
}

func (x *fieldIndex) find(name string) (value string, ok bool, ambiguous Ambiguity) {
	one, ok := x.byName[name]
	if same, found := x.folded[x.fold(name)]; found && (same.others || same.first != name) {
		one.ambiguous |= x.twin
	}
	return one.value, ok, one.ambiguous
}

// all returns all values by name, and an error if any is ambiguous.
func (x *fieldIndex) all() (map[string]string, error) {
	values := make(map[string]string, len(x.byName))
	ambiguous := x.ambiguous | x.whole
	for name, one := range x.byName {
		values[name] = one.value
		ambiguous |= one.ambiguous
	}
	if ambiguous != 0 {
		return values, &AmbiguousError{Is: ambiguous}
	}
	return values, nil
}
