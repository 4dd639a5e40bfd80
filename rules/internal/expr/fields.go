package expr

import (
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// fieldMap is request.headers or request.query: a map for CEL that looks names up in the
// request as it is. Only an expression that wants the whole map (its size, a loop over it)
// has it built.
//
// An error of a lookup is the value of that name: a loop finds the name, and the error at
// its value.
type fieldMap struct {
	fields Fields
	asked  []namedValue // lookups so far; those of one request repeat
	whole  *wholeMap    // nil: not built yet
}

// wholeMap is all of a fieldMap, and an error that says why it is not to be compared.
type wholeMap struct {
	traits.Mapper
	err error
}

// namedValue is the answer to one lookup; its value is nil where there is none, and
// may be an error.
type namedValue struct {
	name  string
	value ref.Val
}

// mostAsked is how many answers are kept.
const mostAsked = 16

func (m *fieldMap) lookup(name string) ref.Val {
	for i := range m.asked {
		if m.asked[i].name == name {
			return m.asked[i].value
		}
	}
	var v ref.Val
	switch value, ok, err := m.fields.Lookup(name); {
	case err != nil:
		v = types.WrapErr(err)
	case ok:
		v = requestText(value)
	}
	if len(m.asked) < mostAsked {
		m.asked = append(m.asked, namedValue{name, v})
	}
	return v
}

// build makes the whole map.
func (m *fieldMap) build() *wholeMap {
	if m.whole == nil {
		values, err := m.fields.All()
		m.whole = &wholeMap{types.NewStringStringMap(types.DefaultTypeAdapter, values), err}
	}
	return m.whole
}

// FindStringKey is what CEL asks first where the name is a literal, and then, where
// there is nothing, Find, which may say why.
func (m *fieldMap) FindStringKey(name string) (any, bool) {
	if v := m.lookup(name); v != nil && !types.IsError(v) {
		return v, true
	}
	return nil, false
}

// Find implements traits.Mapper.
func (m *fieldMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v := m.lookup(string(name))
	return v, v != nil
}

// Get implements traits.Indexer.
func (m *fieldMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return missing
}

// Contains implements traits.Container.
func (m *fieldMap) Contains(key ref.Val) ref.Val {
	v, ok := m.Find(key)
	if types.IsError(v) {
		return v
	}
	return types.Bool(ok)
}

// Iterator implements traits.Iterable.
func (m *fieldMap) Iterator() traits.Iterator { return m.build().Iterator() }

// Size implements traits.Sizer.
func (m *fieldMap) Size() ref.Val { return m.build().Size() }

// ConvertToNative implements ref.Val.
func (m *fieldMap) ConvertToNative(to reflect.Type) (any, error) {
	return m.build().ConvertToNative(to)
}

// ConvertToType implements ref.Val.
func (m *fieldMap) ConvertToType(to ref.Type) ref.Val { return m.build().ConvertToType(to) }

// Equal implements ref.Val.
func (m *fieldMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*fieldMap); ok {
		whole := o.build()
		if whole.err != nil {
			return types.WrapErr(whole.err)
		}
		other = whole.Mapper
	}
	whole := m.build()
	if whole.err != nil {
		return types.WrapErr(whole.err)
	}
	return whole.Mapper.Equal(other)
}

// Type implements ref.Val.
func (m *fieldMap) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *fieldMap) Value() any { return m.build().Value() }
