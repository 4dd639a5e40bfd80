package rules

import (
	"net/http"
	"reflect"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// textMap is request.headers or request.query: a map for CEL that looks names up
// in the request as it is. Only an expression that wants the whole map (its size,
// a loop over it) has it built.
//
// To look up what servers read in different ways is an error. A loop finds its name, and
// the error at its value.
type textMap struct {
	request *Request
	isQuery bool
	names   map[string]string // the canonical forms of header names known at load
	may     *repeatable       // what may come several times
	asked   []namedText       // lookups so far; those of one request repeat
	built   *texts
}

// namedText is the answer to one lookup; its value is nil where there is none, and
// may be an error.
type namedText struct {
	name  string
	value ref.Val
}

// mostAsked is after how many names the whole map is built: an expression may loop
// over names from a request, and each reads all of the query.
const mostAsked = 16

func (m *textMap) close() {
	clear(m.asked)
	*m = textMap{asked: m.asked[:0]}
}

func (m *textMap) lookup(name string) ref.Val {
	for i := range m.asked {
		if m.asked[i].name == name {
			return m.asked[i].value
		}
	}
	read, remember := m.read, true
	if len(m.asked) == mostAsked {
		read, remember = m.readAny, false
	}
	var v ref.Val
	switch text, ok, bad := read(name); {
	case bad != 0:
		v = types.WrapErr(&AmbiguousError{Is: bad, Name: name})
	case ok:
		v = requestText(text)
	}
	if remember {
		m.asked = append(m.asked, namedText{name, v})
	}
	return v
}

// readAny is read of one name among many.
func (m *textMap) readAny(name string) (text string, ok bool, bad Ambiguity) {
	if !m.isQuery && !isHeaderName(name) {
		return "", false, 0
	}
	return m.all().read(name)
}

// isHeaderName tells whether a header may have this name in an expression: they are in
// lower case there.
func isHeaderName(name string) bool { return strings.ToLower(name) == name }

func (m *textMap) read(name string) (text string, ok bool, bad Ambiguity) {
	if m.isQuery {
		return m.request.parameter(name, m.may)
	}
	canonical, ok := m.names[name]
	if !ok {
		if !isHeaderName(name) {
			return "", false, 0
		}
		canonical = http.CanonicalHeaderKey(name)
	}
	return m.request.header(canonical, m.may)
}

// all reads all of them.
func (m *textMap) all() *texts {
	if m.built == nil {
		read := m.request.headers
		if m.isQuery {
			read = m.request.parameters
		}
		m.built = read(m.may)
	}
	return m.built
}

// FindStringKey is what CEL asks first where the name is a literal, and then, where
// there is nothing, Find, which may say why.
func (m *textMap) FindStringKey(name string) (any, bool) {
	if v := m.lookup(name); v != nil && !types.IsError(v) {
		return v, true
	}
	return nil, false
}

// Find implements traits.Mapper.
func (m *textMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v := m.lookup(string(name))
	return v, v != nil
}

// Get implements traits.Indexer.
func (m *textMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return missing
}

// Contains implements traits.Container.
func (m *textMap) Contains(key ref.Val) ref.Val {
	v, ok := m.Find(key)
	if types.IsError(v) {
		return v
	}
	return types.Bool(ok)
}

// Iterator implements traits.Iterable.
func (m *textMap) Iterator() traits.Iterator { return m.all().values.Iterator() }

// Size implements traits.Sizer.
func (m *textMap) Size() ref.Val { return m.all().values.Size() }

// ConvertToNative implements ref.Val.
func (m *textMap) ConvertToNative(to reflect.Type) (any, error) {
	return m.all().values.ConvertToNative(to)
}

// ConvertToType implements ref.Val.
func (m *textMap) ConvertToType(to ref.Type) ref.Val { return m.all().values.ConvertToType(to) }

// Equal implements ref.Val.
func (m *textMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*textMap); ok {
		if o.all().bad != 0 {
			return types.WrapErr(&AmbiguousError{Is: o.all().bad})
		}
		other = o.all().values
	}
	if m.all().bad != 0 {
		return types.WrapErr(&AmbiguousError{Is: m.all().bad})
	}
	return m.all().values.Equal(other)
}

// Type implements ref.Val.
func (m *textMap) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *textMap) Value() any { return m.all().values.Value() }
