package check

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stintdev/stint/server/internal/openapitest"
)

// What requests may have and what answers have is what docs/check-api.yaml says, and no more.
// Problem details are compared where they are read; see checkAPI.
func TestCheckContract(t *testing.T) {
	doc, err := openapitest.Load("../../../docs/check-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.CompileAll(); err != nil {
		t.Error(err)
	}
	schema := func(name string) *openapi3.Schema { return doc.Components.Schemas[name].Value }
	ofSimulations := func(name string) bool { return name == "t_us" || name == "settle" || name == "renew" }
	descriptor := schema("Descriptor").Properties
	for what, c := range map[string]struct {
		schema *openapi3.Schema
		fields []string
	}{
		"Check":      {schema("Check"), slices.DeleteFunc(slices.Clone(inputFields), ofSimulations)},
		"Request":    {schema("Request"), requestFields},
		"Descriptor": {schema("Descriptor"), descriptorFields},
		"Entry":      {descriptor["entries"].Value.Items.Value, entryFields},
		"Limit":      {descriptor["limit"].Value, overrideFields},
		"Settlement": {schema("Settlement"), settleFields},
		"Renewal":    {schema("Renewal"), renewFields},
	} {
		if got, want := slices.Sorted(maps.Keys(c.schema.Properties)), slices.Sorted(slices.Values(c.fields)); !slices.Equal(got, want) {
			t.Errorf("%s has %s in the document, and %s in requests", what, got, want)
		}
		if open := c.schema.AdditionalProperties.Has; open == nil || *open {
			t.Errorf("%s: the document allows more members than requests may have", what)
		}
	}
	type decided struct {
		replyJSON
		Hold      string      `json:"hold,omitempty"`
		Decisions []namedJSON `json:"decisions"`
	}
	answers := openapitest.Comparison{TB: t}
	for name, of := range map[string]reflect.Type{
		"Decided": reflect.TypeFor[decided](),
		"DecidedOfList": reflect.TypeFor[struct {
			decided
			Status     int    `json:"status"`
			ID         string `json:"decision_id,omitempty"`
			RetryAfter int64  `json:"retry_after,omitempty"`
		}](),
		"Counted": reflect.TypeFor[struct {
			Outcome   string      `json:"outcome"`
			Decisions []endedJSON `json:"decisions"`
		}](),
	} {
		answers.Compare(name, of, schema(name))
	}
	if got, want := reflect.TypeFor[endJSON]().NumField(), 3; got != want {
		t.Errorf("an answer about a hold has %d members, want status, outcome and decisions", got)
	}
}
