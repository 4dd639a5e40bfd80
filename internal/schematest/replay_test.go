package schematest

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The reports that the tests of stint replay expect are what their schema says.
func TestReplaySchema(t *testing.T) {
	read := func(file string) []byte {
		data, err := os.ReadFile(root + file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(read("docs/replay.schema.json")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("replay.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("replay.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	reports := 0
	for _, story := range strings.Split(string(read("cmd/stint/testdata/calls.txt")), "\n=== ") {
		call, out, _ := strings.Cut(story, "\n---\nexit 0\n")
		if !strings.Contains(call, "\nreplay\n") || !strings.HasPrefix(out, "{") {
			continue
		}
		reports++
		report, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
		if err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		if err := schema.Validate(report); err != nil {
			t.Errorf("%s: %v", call, err)
		}
		report.(map[string]any)["more"] = true
		if schema.Validate(report) == nil {
			t.Errorf("%s: the schema takes a field that it does not know", call)
		}
	}
	if reports < 2 {
		t.Errorf("only %d reports were found", reports)
	}
}
