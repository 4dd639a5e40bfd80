package expr

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// fieldMap is request.headers, request.query, request.cookies or body, looked up directly in the request; the
// whole map is only built for its size or a loop. An error of a lookup is the value of that name.
type fieldMap struct {
	fields  Fields
	body    Body         // in place of fields; no expression needs all of it (see inspector.fieldOf)
	lenient bool         // see Scope.LenientBody
	asked   []namedValue // lookups so far; those of one request repeat
	whole   *wholeMap    // nil: not built yet
}

type wholeMap struct {
	traits.Mapper
	err error
}

// namedValue is the answer to one lookup; a nil value: there is none.
type namedValue struct {
	name  string
	value ref.Val
}

// mostAsked is how many answers are kept.
const mostAsked = 16

func (m *fieldMap) lookup(name string) ref.Val {
	if m.body != nil {
		return m.bodyField([]string{name})
	}
	for i := range m.asked {
		if m.asked[i].name == name {
			return m.asked[i].value
		}
	}
	v := m.find(name)
	if len(m.asked) < mostAsked {
		m.asked = append(m.asked, namedValue{name, v})
	}
	return v
}

func (m *fieldMap) find(name string) ref.Val {
	switch value, ok, err := m.fields.Lookup(name); {
	case err != nil:
		return types.WrapErr(err)
	case ok:
		return requestText(value)
	}
	return nil
}

func (m *fieldMap) build() *wholeMap {
	if m.whole == nil {
		values, err := m.fields.All()
		m.whole = &wholeMap{types.NewStringStringMap(types.DefaultTypeAdapter, values), err}
	}
	return m.whole
}

// FindStringKey is CEL's first call for a literal name; if nothing is found, it calls Find, which may say
// why.
func (m *fieldMap) FindStringKey(name string) (any, bool) {
	if v := m.lookup(name); v != nil && !types.IsError(v) {
		return v, true
	}
	return nil, false
}

func (m *fieldMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v := m.lookup(string(name))
	return v, v != nil
}

func (m *fieldMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return missing
}

func (m *fieldMap) Contains(key ref.Val) ref.Val {
	v, ok := m.Find(key)
	if types.IsError(v) {
		return v
	}
	return types.Bool(ok)
}

func (m *fieldMap) Iterator() traits.Iterator { return m.build().Iterator() }

func (m *fieldMap) Size() ref.Val { return m.build().Size() }

func (m *fieldMap) ConvertToNative(to reflect.Type) (any, error) {
	return m.build().ConvertToNative(to)
}

func (m *fieldMap) ConvertToType(to ref.Type) ref.Val { return m.build().ConvertToType(to) }

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

func (m *fieldMap) Type() ref.Type { return types.MapType }

func (m *fieldMap) Value() any { return m.build().Value() }

// bodyField is the body's value at a path, or an error; nil: none.
func (m *fieldMap) bodyField(path []string) ref.Val {
	v := m.bodyFieldOnce(path)
	if m.lenient && types.IsError(v) && errors.Is(v.(*types.Err), ErrUnreadable) {
		return nil
	}
	return v
}

// bodyFieldOnce looks each path up once, and a limited number of paths, because each lookup reads all of the
// body.
func (m *fieldMap) bodyFieldOnce(path []string) ref.Val {
	name := strings.Join(path, "\x00")
	for i := range m.asked {
		if m.asked[i].name == name {
			return m.asked[i].value
		}
	}
	if len(m.asked) == MaxBodyFields {
		return types.NewErr("expressions read more than %d fields of the body", MaxBodyFields)
	}
	var v ref.Val
	value, ok, err := m.body.Lookup(path)
	switch object, isObject := value.(map[string]any); {
	case err != nil:
		v = types.WrapErr(err)
	case ok && isObject:
		v = &bodyObject{types.NewStringInterfaceMap(types.DefaultTypeAdapter, object), m, path}
	case ok:
		v = types.DefaultTypeAdapter.NativeToValue(value)
	}
	m.asked = append(m.asked, namedValue{name, v})
	return v
}

// bodyObject is an object in a body. Its fields are looked up in the body again, because that checks their
// names. Loops, comparisons and weighing, which may need thousands, use the decoded object.
type bodyObject struct {
	traits.Mapper
	root *fieldMap
	path []string
}

func (o *bodyObject) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v := o.root.bodyField(append(slices.Clip(o.path), string(name)))
	return v, v != nil
}

func (o *bodyObject) Contains(key ref.Val) ref.Val {
	v, ok := o.Find(key)
	if types.IsError(v) {
		return v
	}
	return types.Bool(ok)
}

func (o *bodyObject) Equal(other ref.Val) ref.Val {
	if b, ok := other.(*bodyObject); ok {
		other = b.Mapper
	}
	return o.Mapper.Equal(other)
}
