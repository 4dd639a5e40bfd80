package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Helm reads all numbers of values as floats. Stint reads those of the rendered file as the whole numbers
// that they were.
func TestNumbers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rules := func(amounts ...string) rendering {
		file := filepath.Join(folder, strings.Join(amounts, "_")+".yaml")
		text := "config:\n  rules:\n    - name: client\n      key: client.ip\n      limits:\n"
		for i, amount := range amounts {
			text += "        - {amount: " + amount + ", period: " + []string{"1m", "1h", "1d"}[i] + "}\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := aRelease("gateway.yaml")
		r.values = append(r.values, file)
		return r
	}
	var file string
	for _, o := range rules("4503599580000000", "1000000", "1e6").must(t).objects {
		if o.kind() == "ConfigMap" {
			file = text(o.fields, "data", "stint.yaml")
		}
	}
	path := filepath.Join(folder, "stint.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./cmd/stint", "explain", "--json", "--client", "192.0.2.1", "--config", path)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	var explained struct {
		Rules []struct {
			Limits []struct{ Capacity json.Number }
		}
	}
	if err := json.Unmarshal(out, &explained); err != nil || len(explained.Rules) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []string
	for _, l := range explained.Rules[0].Limits {
		got = append(got, l.Capacity.String())
	}
	if want := []string{"4503599580000000", "1000000", "1000000"}; !slices.Equal(got, want) {
		t.Errorf("amounts %v: want %v\n%s", got, want, file)
	}
	if _, err := rules("9007199254740991").render(); err == nil || !strings.Contains(err.Error(), "amount") {
		t.Errorf("an amount that is too great: %v", err)
	}
}
