package main

import (
	"bytes"
	"io"
	"os"
	"testing"
)

// docs/stint.schema.json is what stint schema prints.
func TestSchema(t *testing.T) {
	const file = "../../docs/stint.schema.json"
	var out bytes.Buffer
	if code := run(t.Context(), []string{"schema"}, nil, &out, io.Discard); code != 0 {
		t.Fatal("exit", code)
	}
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || !bytes.Equal(is, out.Bytes()) {
		t.Errorf("%s is not what stint schema prints; -update rewrites it: %v", file, err)
	}
}
