package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// examples are the files of deploy/examples, and the file in deploy/values that each goes with; "": it needs
// no chart.
var examples = map[string]string{
	"envoy-gateway.yaml": "",
	"gateway.yaml":       "gateway.yaml",
	"ingress-nginx.yaml": "check-ingress.yaml",
	"istio.yaml":         "envoy.yaml",
	"traefik.yaml":       "check-ingress.yaml",
}

// documents reads the objects in a file.
func documents(name, text string) (all []object, err error) {
	for _, part := range regexp.MustCompile(`(?m)^---\n`).Split(text, -1) {
		fields, err := read(part)
		if err != nil {
			return nil, err
		}
		all = append(all, object{file: name, text: part, fields: fields})
	}
	return all, nil
}

// at is the value at path, or nil.
func at(fields map[string]any, path ...string) any {
	var value any = fields
	for _, name := range path {
		inner, _ := value.(map[string]any)
		value = inner[name]
	}
	return value
}

// The objects of deploy/examples fit the schemas of their kinds, and the Services of Stint that they name, with
// their ports, are those that the chart makes with the values that go with them.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/examples/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(examples) {
		t.Errorf("%d files, want %d", len(files), len(examples))
	}
	for name, values := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile("../../deploy/examples/" + name)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := documents(name, string(data))
			if err != nil {
				t.Fatal(err)
			}
			validate(t, objects)
			var asks []string
			for _, o := range objects {
				asks = append(asks, backends(o.fields)...)
			}
			if values == "" {
				if image := "image: ghcr.io/stintdev/stint:"; !strings.Contains(string(data), image) {
					t.Errorf("it has no %s", image)
				}
				if len(asks) > 0 {
					t.Errorf("it names %q of a chart that it does not need", asks)
				}
				return
			}
			out := rendering{chart: chart, name: "stint", namespace: "default", values: []string{"../../deploy/values/" + values}}.must(t)
			has := services(out.objects)
			if len(asks) == 0 {
				t.Error("it names no Service of Stint")
			}
			for _, ask := range asks {
				if !slices.Contains(has, ask) {
					t.Errorf("it names %s; with %s, the chart makes %q", ask, values, has)
				}
			}
			if !strings.Contains(string(data), "deploy/values/"+values) {
				t.Errorf("its comment does not name deploy/values/%s", values)
			}
		})
	}
}

// services are the Services in objects, each as NAME:PORT and NAME:the port's name.
func services(objects []object) (all []string) {
	for _, o := range objects {
		if o.kind() != "Service" {
			continue
		}
		for _, port := range list(at(o.fields, "spec", "ports")) {
			port := port.(map[string]any)
			for _, p := range []string{"port", "name"} {
				all = append(all, o.name()+":"+fmt.Sprint(port[p]))
			}
		}
	}
	return all
}

var (
	hostAndPort = regexp.MustCompile(`\b(stint[a-z-]*)\.default\.svc\.cluster\.local:(\d+)`)
	istioName   = regexp.MustCompile(`outbound\|(\d+)\|\|(stint[a-z-]*)\.default\.svc\.cluster\.local`)
)

// backends are the Services of the release "stint" that are named in v, as services returns them: hosts
// with ports in text, clusters of Istio, and backends of Ingresses and routes.
func backends(v any) (all []string) {
	switch v := v.(type) {
	case string:
		for _, found := range hostAndPort.FindAllStringSubmatch(v, -1) {
			all = append(all, found[1]+":"+found[2])
		}
		for _, found := range istioName.FindAllStringSubmatch(v, -1) {
			all = append(all, found[2]+":"+found[1])
		}
	case []any:
		for _, one := range v {
			all = append(all, backends(one)...)
		}
	case map[string]any:
		if name, port := text(v, "name"), v["port"]; port != nil && strings.HasPrefix(name, "stint") {
			if inner, ok := port.(map[string]any); ok { // {name: http} or {number: 80}
				port = cmp.Or(inner["name"], inner["number"])
			}
			all = append(all, name+":"+fmt.Sprint(port))
		}
		for _, one := range v {
			all = append(all, backends(one)...)
		}
	}
	return all
}
