package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// byChart are the settings that the chart sets by variables, as paths in the section server. They are no
// values, because variables would override them.
var byChart = []string{
	"admin.listen", "check_listen", "envoy.directory", "envoy.directory_link", "envoy.listen", "listen",
	"probe_listen", "state_dir", "stop_delay", "stop_timeout", "store",
}

// selector names the instances of a release in alerts and in the dashboard. The chart puts the release's own
// names into its place.
const selector = `namespace="STINT_NAMESPACE",job="STINT_JOB"`

// ofChart returns the files of the chart that are made, by their paths in deploy. root is the repository.
func ofChart(root string) (map[string][]byte, error) {
	values, err := os.ReadFile(filepath.Join(root, "tools/cluster/values.schema.json"))
	if err != nil {
		return nil, err
	}
	config, err := os.ReadFile(filepath.Join(root, "docs/stint.schema.json"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if files["chart/values.schema.json"], err = valuesSchema(values, config); err != nil {
		return nil, err
	}
	for path, kind := range map[string]string{"chart/files/alerts.yaml": "prometheus", "chart/files/dashboard.json": "grafana"} {
		if files[path], err = generate(root, kind); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// generate runs stint generate for rules without alerts of their own.
func generate(root, kind string) ([]byte, error) {
	cmd := exec.Command("go", "run", "./cmd/stint", "generate", kind, "--selector", selector, "tools/cluster/no-alerts.yaml")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("stint generate %s: %w: %s", kind, err, problems.String())
	}
	return out, nil
}

// schema is a part of a JSON Schema.
type schema = map[string]any

// valuesSchema is the schema of the chart's values: its own, and in config that of rules and settings.
func valuesSchema(values, config []byte) ([]byte, error) {
	var whole, file, fleet schema
	for _, read := range []struct {
		data []byte
		to   *schema
	}{{values, &whole}, {config, &file}, {config, &fleet}} {
		if err := json.Unmarshal(read.data, read.to); err != nil {
			return nil, err
		}
	}
	defs := whole["$defs"].(schema)
	maps.Copy(defs, file["$defs"].(schema))
	for _, part := range []schema{file, fleet} {
		for _, name := range []string{"$schema", "$id", "$defs"} {
			delete(part, name)
		}
	}
	delete(fleet["properties"].(schema), "server") // each instance's own
	for _, path := range byChart {
		if err := remove(file, strings.Split("server."+path, ".")); err != nil {
			return nil, err
		}
	}
	defs["config"], defs["fleet"] = file, fleet
	plain(whole)
	out, err := json.MarshalIndent(whole, "", " ")
	return append(out, '\n'), err
}

// remove removes the property at path.
func remove(s schema, path []string) error {
	properties, _ := s["properties"].(schema)
	next, ok := properties[path[0]].(schema)
	switch {
	case !ok:
		return fmt.Errorf("the schema of settings has no %s", strings.Join(path, "."))
	case len(path) > 1:
		return remove(next, path[1:])
	}
	delete(properties, path[0])
	return nil
}

// plain leaves out what only editors read.
func plain(in any) {
	switch v := in.(type) {
	case schema:
		for _, name := range slices.Collect(maps.Keys(v)) {
			if name == "markdownDescription" {
				delete(v, name)
			} else {
				plain(v[name])
			}
		}
	case []any:
		for _, part := range v {
			plain(part)
		}
	}
}
