package main

import "testing"

func TestModuleOf(t *testing.T) {
	modules := []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk", "go.yaml.in/yaml/v2"}
	for function, want := range map[string]string{
		"main.main": ours,
		"github.com/stintdev/stint.(*Limiter).Allow":                    ours,
		"github.com/stintdev/stint/server.init":                         ours,
		"go.opentelemetry.io/otel/sdk/trace.init":                       "go.opentelemetry.io/otel/sdk",
		"go.opentelemetry.io/otel/semconv/v1%2e43%2e0.init":             "go.opentelemetry.io/otel",
		"go.opentelemetry.io/otelother.init":                            "the standard library",
		"type:.eq.go.yaml.in/yaml/v2.mark":                              "go.yaml.in/yaml/v2",
		"slices.SortFunc[go.shape.[]go.yaml.in/yaml/v2.a,go.shape.int]": "the standard library",
		"vendor/golang.org/x/net/idna.init":                             "the standard library",
		"aeshashbody":                                                   "the standard library",
	} {
		if got := moduleOf(function, modules); got != want {
			t.Errorf("%s is of %s, want %s", function, got, want)
		}
	}
}
