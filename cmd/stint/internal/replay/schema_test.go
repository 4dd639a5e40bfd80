package replay

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// docs/replay.schema.json has the fields of a Report, and no others.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile("../../../../docs/replay.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	n := compare(t, schema, schema, reflect.TypeFor[Report](), "report")
	if n < 60 {
		t.Errorf("only %d fields are compared", n)
	}
}

// compare compares a schema in root with a type, and returns the number of fields.
func compare(t *testing.T, root, schema map[string]any, is reflect.Type, where string) (n int) {
	t.Helper()
	if name, ok := schema["$ref"].(string); ok {
		schema = root["$defs"].(map[string]any)[strings.TrimPrefix(name, "#/$defs/")].(map[string]any)
	}
	for is.Kind() == reflect.Pointer {
		is = is.Elem()
	}
	if schema["description"] == "" || schema["description"] == nil {
		t.Errorf("%s has no description", where)
	}
	switch {
	case is.Kind() == reflect.Slice && schema["type"] == "array":
		if items := schema["items"].(map[string]any); is.Elem().Kind() == reflect.Struct {
			return compare(t, root, items, is.Elem(), where+"[]")
		}
		return 0
	case is.Kind() != reflect.Struct || schema["type"] == "string": // a time
		return 0
	}
	properties := schema["properties"].(map[string]any)
	var names, required []string
	for i := range is.NumField() {
		name, option, _ := strings.Cut(is.Field(i).Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		names = append(names, name)
		if option != "omitempty" {
			required = append(required, name)
		}
		if of, ok := properties[name].(map[string]any); ok {
			n += 1 + compare(t, root, of, is.Field(i).Type, where+"."+name)
		}
	}
	slices.Sort(names)
	if known := slices.Sorted(maps.Keys(properties)); !slices.Equal(known, names) {
		t.Errorf("%s has %v, and its schema %v", where, names, known)
	}
	wanted := []string{}
	for _, name := range schema["required"].([]any) {
		wanted = append(wanted, name.(string))
	}
	slices.Sort(required)
	slices.Sort(wanted)
	if !slices.Equal(wanted, required) {
		t.Errorf("of %s always there are %v, and by its schema %v", where, required, wanted)
	}
	return n
}
