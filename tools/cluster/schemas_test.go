package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// A schemaFolder has the schemas that kubeconform reads, a file for each kind. They are written as they are
// asked for: all of Envoy Gateway's and Istio's would take seconds.
type schemaFolder struct {
	path  string
	mu    sync.Mutex
	kinds map[string]error     // what came of those asked for
	crds  map[string][]crd     // by the path of a module
	apis  map[string]*document // by the name of a file of Kubernetes
}

// A document is an OpenAPI document of Kubernetes.
type document struct {
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

// A crd is a CustomResourceDefinition.
type crd struct {
	Kind string
	Spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Served bool
			Schema struct{ OpenAPIV3Schema schema }
		}
	}
}

// schemas is the folder of this process. TestMain removes it.
var schemas = sync.OnceValues(func() (*schemaFolder, error) {
	path, err := os.MkdirTemp("", "stint-schemas-")
	return &schemaFolder{path: path, kinds: map[string]error{}, crds: map[string][]crd{}, apis: map[string]*document{}}, err
})

// need writes the schema of a kind, if there is one.
func (f *schemaFolder) need(apiVersion, kind string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := apiVersion + " " + kind
	if err, done := f.kinds[key]; done {
		return err
	}
	s, err := f.find(apiVersion, kind)
	if err == nil {
		var data []byte
		if data, err = json.Marshal(s); err == nil {
			err = os.WriteFile(filepath.Join(f.path, strings.ReplaceAll(apiVersion, "/", "_")+"_"+strings.ToLower(kind)+".json"), data, 0o600)
		}
	}
	f.kinds[key] = err
	return err
}

// location is where kubeconform finds the files that need writes.
func (f *schemaFolder) location() string {
	return filepath.Join(f.path, "{{if ne .Group .ResourceAPIVersion}}{{.Group}}_{{end}}{{.ResourceAPIVersion}}_{{.ResourceKind}}.json")
}

func (f *schemaFolder) find(apiVersion, kind string) (schema, error) {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, version = "", apiVersion
	}
	own, err := moduleOf("").folder() // Kubernetes' own, with the schema of every object's metadata
	if err != nil {
		return nil, err
	}
	if m := moduleOf(group); len(m.Groups) > 0 {
		folder, err := m.folder()
		if err != nil {
			return nil, err
		}
		meta, err := f.api(own, "", "v1")
		if err != nil {
			return nil, err
		}
		return f.custom(m, folder, group, version, kind, meta)
	}
	d, err := f.api(own, group, version)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no schema for %s %s", apiVersion, kind)
	} else if err != nil {
		return nil, err
	}
	for name, s := range d.Components.Schemas {
		if isOf(s, group, version, kind) {
			return whole(schema{"$ref": "#/components/schemas/" + name}, apiVersion, kind, d), nil
		}
	}
	return nil, fmt.Errorf("no schema for %s %s", apiVersion, kind)
}

func isOf(s schema, group, version, kind string) bool {
	all, _ := s["x-kubernetes-group-version-kind"].([]any)
	return slices.ContainsFunc(all, func(one any) bool {
		v := one.(schema)
		return v["group"] == group && v["version"] == version && v["kind"] == kind
	})
}

// api reads a document of Kubernetes, and makes it strict.
func (f *schemaFolder) api(folder, group, version string) (*document, error) {
	name := "api__" + version
	if group != "" {
		name = "apis__" + group + "__" + version
	}
	if d := f.apis[name]; d != nil {
		return d, nil
	}
	data, err := os.ReadFile(filepath.Join(folder, "api/openapi-spec/v3", name+"_openapi.json"))
	if err != nil {
		return nil, err
	}
	d := &document{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, err
	}
	for _, s := range d.Components.Schemas {
		strict(s, false)
	}
	f.apis[name] = d
	return d, nil
}

// custom finds the schema of a custom resource.
func (f *schemaFolder) custom(m module, folder, group, version, kind string, meta *document) (schema, error) {
	if f.crds[m.Module] == nil {
		all, err := readCRDs(folder, m.Files)
		if err != nil {
			return nil, err
		}
		f.crds[m.Module] = all
	}
	for _, c := range f.crds[m.Module] {
		if c.Spec.Group != group || c.Spec.Names.Kind != kind {
			continue
		}
		for _, v := range c.Spec.Versions {
			s := v.Schema.OpenAPIV3Schema
			if v.Name != version || !v.Served || s == nil {
				continue
			}
			properties, _ := s["properties"].(schema)
			if properties == nil {
				properties = schema{}
			}
			// The API server checks these by itself, whatever the definition says.
			properties["apiVersion"], properties["kind"] = schema{}, schema{}
			delete(properties, "metadata")
			strict(s, true)
			properties["metadata"] = schema{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
			s["properties"] = properties
			return whole(s, group+"/"+version, kind, meta), nil
		}
	}
	return nil, fmt.Errorf("no schema for %s/%s %s in %s", group, version, kind, m.Module)
}

func readCRDs(folder string, patterns []string) (all []crd, err error) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s has no %s: %v", folder, pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, doc := range strings.Split("\n"+string(data), "\n---") {
				var c crd
				if err := yaml.Unmarshal([]byte(doc), &c); err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				if c.Kind == "CustomResourceDefinition" {
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// whole is the schema of a kind's objects, with the components that it refers to.
func whole(s schema, apiVersion, kind string, d *document) schema {
	return schema{
		"allOf":    []any{s},
		"required": []any{"apiVersion", "kind", "metadata"},
		// kubeconform looks for the kind in lower case.
		"properties": schema{
			"apiVersion": schema{"enum": []any{apiVersion}},
			"kind":       schema{"enum": []any{kind}},
			"metadata":   schema{"type": "object", "required": []any{"name"}},
		},
		"components": d.Components,
	}
}

// strict makes of an OpenAPI schema of Kubernetes a JSON Schema of draft 4, in place, and forbids unknown
// fields wherever the API server would drop them (custom) or wherever all are listed (Kubernetes' own).
// A field without a value is an error, except where it may be null: the API server reads most as if they
// were left out, but nobody who writes "annotations:" means that.
//
// What is not checked: rules in CEL (x-kubernetes-validations), sets and maps by a key, defaults, and what
// Kubernetes checks of its own objects in Go, such as names, ports, enums and quantities.
func strict(s schema, custom bool) {
	for _, name := range []string{"properties", "additionalProperties", "items"} {
		under(s[name], name == "properties", func(part schema) { strict(part, custom) })
	}
	for _, name := range []string{"allOf", "anyOf", "oneOf"} { // they repeat properties in order to bound them
		for _, part := range list(s[name]) {
			bounded(part.(schema))
		}
	}
	properties, listed := s["properties"].(schema)
	_, free := s["additionalProperties"]
	free = free || s["x-kubernetes-preserve-unknown-fields"] == true
	if s["x-kubernetes-embedded-resource"] == true {
		embedded(s, properties)
	}
	if !free && (listed || custom && s["type"] == "object") {
		s["additionalProperties"] = false
	}
	if s["x-kubernetes-int-or-string"] == true {
		s["type"] = []any{"integer", "string"}
	}
	if s["format"] == "int32" && s["minimum"] == nil && s["maximum"] == nil {
		s["minimum"], s["maximum"] = math.MinInt32, math.MaxInt32
	}
	if s["nullable"] == true {
		nullable(s)
	}
}

// under walks a schema, or one for each property.
func under(in any, each bool, walk func(schema)) {
	part, ok := in.(schema)
	switch {
	case !ok: // none, or additionalProperties: true
	case each:
		for _, property := range part {
			walk(property.(schema))
		}
	default:
		walk(part)
	}
}

func list(in any) []any { all, _ := in.([]any); return all }

// bounded translates what is within allOf, anyOf and oneOf. What their objects do not list is not forbidden.
func bounded(s schema) {
	for _, name := range []string{"properties", "additionalProperties", "items", "not"} {
		under(s[name], name == "properties", bounded)
	}
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		for _, part := range list(s[name]) {
			bounded(part.(schema))
		}
	}
	if s["nullable"] == true {
		nullable(s)
	}
}

// embedded makes s one of a whole object, whose apiVersion, kind and metadata are not listed.
func embedded(s, properties schema) {
	if properties == nil {
		properties = schema{}
		s["properties"] = properties
	}
	for name, kind := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
		properties[name] = schema{"type": kind}
	}
	s["required"] = append(list(s["required"]), "apiVersion", "kind")
}

func nullable(s schema) {
	switch kind := s["type"].(type) {
	case string:
		s["type"] = []any{kind, "null"}
	case []any:
		s["type"] = append(kind, "null")
	}
	if values := list(s["enum"]); values != nil {
		s["enum"] = append(values, nil)
	}
}
