package main

import (
	"os"
	"testing"
)

// The commands write the files of examples/monitoring, as the file of their rules says.
func TestGenerate(t *testing.T) {
	t.Chdir("../../examples/monitoring")
	for file, what := range map[string]string{"stint-alerts.yml": "prometheus", "dashboard.json": "grafana"} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code, out, errs := call("", "generate", what, "stint.yaml", "--selector", `job="stint"`)
		if code != 0 || out != string(want) {
			t.Errorf("%s: exit %d, %s, and not %s", what, code, errs, file)
		}
	}
}
