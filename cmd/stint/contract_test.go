package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// contract is docs/admin-api.yaml, by which a fake is held to what the real admin
// API takes and says.
type contract struct{ root map[string]any }

func readContract(t *testing.T, path string) contract {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c contract
	if err := yaml.Unmarshal(data, &c.root); err != nil {
		t.Fatal(err)
	}
	return c
}

// at is the member of v that names lead to, $refs followed; nil: there is none.
func (c contract) at(v any, names ...string) any {
	for _, name := range names {
		m, _ := c.follow(v).(map[string]any)
		v = m[name]
	}
	return c.follow(v)
}

func (c contract) follow(v any) any {
	m, _ := v.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		return c.at(c.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return v
}

// operation is the one of a pattern such as "GET /v1/bans".
func (c contract) operation(pattern string) any {
	method, path, _ := strings.Cut(pattern, " ")
	return c.at(c.root, "paths", path, strings.ToLower(method))
}

// body says what is wrong with the JSON of content, which is that of a request or
// of an answer.
func (c contract) body(content any, kind string, data []byte) error {
	schema := c.at(content, "content", kind, "schema")
	if schema == nil {
		return fmt.Errorf("the contract has no %s here", kind)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	return c.fits(schema, v, "body")
}

// fits says how v differs from a schema, as far as the contract uses schemas.
func (c contract) fits(schema, v any, where string) error {
	s, _ := c.follow(schema).(map[string]any)
	for _, part := range asList(s["allOf"]) {
		if err := c.fits(part, v, where); err != nil {
			return err
		}
	}
	if choices := asList(s["oneOf"]); choices != nil && !slices.ContainsFunc(choices, func(part any) bool { return c.fits(part, v, where) == nil }) {
		return fmt.Errorf("%s: %v is none of the choices", where, v)
	}
	if v == nil && s["nullable"] == true {
		return nil
	}
	if choices := asList(s["enum"]); choices != nil && !slices.Contains(choices, v) {
		return fmt.Errorf("%s: %v is not one of %v", where, v, choices)
	}
	switch s["type"] {
	case "object":
		return c.object(s, v, where)
	case "array":
		items, ok := v.([]any)
		if n, least := len(items), s["minItems"]; !ok || least != nil && n < least.(int) {
			return fmt.Errorf("%s: %v: want a list", where, v)
		}
		for i, item := range items {
			if err := c.fits(s["items"], item, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case "string":
		return stringFits(s, v, where)
	case "integer":
		n, ok := v.(float64)
		least, most := s["minimum"], s["maximum"]
		if !ok || n != float64(int64(n)) || least != nil && n < float64(least.(int)) || most != nil && n > float64(most.(int)) {
			return fmt.Errorf("%s: %v: want a whole number in bounds", where, v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return fmt.Errorf("%s: %v: want true or false", where, v)
		}
	}
	return nil
}

func (c contract) object(s map[string]any, v any, where string) error {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %v: want an object", where, v)
	}
	for _, name := range asList(s["required"]) {
		if _, ok := m[name.(string)]; !ok {
			return fmt.Errorf("%s: no %s", where, name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, value := range m {
		schema, known := properties[name]
		if !known {
			if schema = s["additionalProperties"]; schema == false {
				return fmt.Errorf("%s: unknown field %s", where, name)
			}
		}
		if err := c.fits(schema, value, where+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func stringFits(s map[string]any, v any, where string) error {
	text, ok := v.(string)
	least, most := s["minLength"], s["maxLength"]
	if !ok || least != nil && len(text) < least.(int) || most != nil && len(text) > most.(int) {
		return fmt.Errorf("%s: %v: want text in bounds", where, v)
	}
	if _, err := time.Parse(time.RFC3339, text); s["format"] == "date-time" && err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}
