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
type textMap struct {
	request *Request
	isQuery bool
	names   map[string]string // the canonical forms of header names known at load
	asked   []namedText       // lookups so far; those of one request repeat
	built   traits.Mapper
}

// namedText is the answer to one lookup; its value is nil where there is none.
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
	var v ref.Val
	if len(m.asked) == mostAsked {
		if v, ok := m.all().Find(types.String(name)); ok {
			return requestText(string(v.(types.String)))
		}
		return nil
	}
	if text, ok := m.read(name); ok {
		v = requestText(text)
	}
	m.asked = append(m.asked, namedText{name, v})
	return v
}

func (m *textMap) read(name string) (string, bool) {
	if m.isQuery {
		return m.request.parameter(name)
	}
	canonical, ok := m.names[name]
	if !ok {
		if strings.ToLower(name) != name {
			return "", false
		}
		canonical = http.CanonicalHeaderKey(name)
	}
	return m.request.header(canonical)
}

// all builds the map.
func (m *textMap) all() traits.Mapper {
	if m.built == nil {
		read := m.request.headers
		if m.isQuery {
			read = m.request.parameters
		}
		m.built = types.NewStringStringMap(types.DefaultTypeAdapter, read())
	}
	return m.built
}

// FindStringKey is what CEL asks first where the name is a literal.
func (m *textMap) FindStringKey(name string) (any, bool) {
	if v := m.lookup(name); v != nil {
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
	_, ok := m.Find(key)
	return types.Bool(ok)
}

// Iterator implements traits.Iterable.
func (m *textMap) Iterator() traits.Iterator { return m.all().Iterator() }

// Size implements traits.Sizer.
func (m *textMap) Size() ref.Val { return m.all().Size() }

// ConvertToNative implements ref.Val.
func (m *textMap) ConvertToNative(to reflect.Type) (any, error) { return m.all().ConvertToNative(to) }

// ConvertToType implements ref.Val.
func (m *textMap) ConvertToType(to ref.Type) ref.Val { return m.all().ConvertToType(to) }

// Equal implements ref.Val.
func (m *textMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*textMap); ok {
		other = o.all()
	}
	return m.all().Equal(other)
}

// Type implements ref.Val.
func (m *textMap) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *textMap) Value() any { return m.all().Value() }
