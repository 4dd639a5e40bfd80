package openapitest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Comparison compares types of Go with schemas.
type Comparison struct {
	testing.TB
	// Opaque are types whose members do not show their JSON.
	Opaque []reflect.Type
	// Request lets members that are always encoded be optional in a schema: a request may leave them out.
	Request bool
}

// Compare reports where the members of a type, and of the types in it, are not the properties of a schema.
// Members of an answer that are always there must be required.
func (c Comparison) Compare(where string, of reflect.Type, schema *openapi3.Schema) {
	c.Helper()
	if slices.Contains(c.Opaque, of) {
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		c.Compare(where, of.Elem(), schema)
	case reflect.Slice:
		if !schema.Type.Is("array") {
			c.Errorf("%s: the contract has no list", where)
			return
		}
		c.Compare(where, of.Elem(), schema.Items.Value)
	case reflect.Struct:
		c.compareMembers(where, of, schema)
	}
}

func (c Comparison) compareMembers(where string, of reflect.Type, schema *openapi3.Schema) {
	c.Helper()
	properties, required := map[string]*openapi3.Schema{}, []string{}
	all := []*openapi3.SchemaRef{{Value: schema}}
	for i := 0; i < len(all); i++ {
		s := all[i]
		all = append(all, s.Value.AllOf...)
		required = append(required, s.Value.Required...)
		for name, property := range s.Value.Properties {
			properties[name] = property.Value
		}
	}
	members(of, func(name string, optional bool, of reflect.Type) {
		property := properties[name]
		if delete(properties, name); property == nil {
			c.Errorf("%s: the contract has no %s", where, name)
			return
		}
		if needed := slices.Contains(required, name); needed && optional || !needed && !optional && !c.Request {
			c.Errorf("%s: %s is required: %v, and may be left out: %v", where, name, needed, optional)
		}
		c.Compare(where+" "+name, of, property)
	})
	for name := range properties {
		c.Errorf("%s: the type has no %s", where, name)
	}
}

// members calls yield with the members of a struct, and with those that it embeds.
func members(of reflect.Type, yield func(name string, optional bool, of reflect.Type)) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			members(f.Type, yield)
		case name != "" && name != "-":
			yield(name, options != "", f.Type)
		}
	}
}
