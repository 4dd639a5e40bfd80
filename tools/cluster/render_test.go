package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

const chart = "../../deploy/chart"

// aRelease is a rendering of the chart with files of deploy/values.
func aRelease(values ...string) rendering {
	r := rendering{chart: chart, name: "shop", namespace: "front"}
	for _, name := range values {
		r.values = append(r.values, filepath.Join("../../deploy/values", name))
	}
	return r
}

// uses are the files of values in deploy/values, each with those that it needs.
func uses(t *testing.T) map[string]rendering {
	t.Helper()
	files, err := filepath.Glob("../../deploy/values/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files of values, %v", len(files), err)
	}
	all := map[string]rendering{"the least": {chart: chart, name: "shop", namespace: "front", set: []string{"gateway.upstream=http://shop:80"}}}
	for _, file := range files {
		name := filepath.Base(file)
		r := aRelease(name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "add a file of a use") {
			r = aRelease("gateway.yaml", name)
		}
		all[name] = r
	}
	return all
}

func (r rendering) must(t *testing.T) rendered {
	t.Helper()
	out, err := r.render()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// linted is what helm lint has to say, but for advice: that there should be an icon.
func linted(t *testing.T, r rendering) (messages []support.Message) {
	t.Helper()
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	given, err := r.merge()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.RunAll(chart, given, r.namespace, lint.WithKubeVersion(version)).Messages {
		if m.Severity >= support.WarningSev {
			messages = append(messages, m)
		}
	}
	return messages
}

// helm lint has nothing to say about the chart with any file of values, and would have.
func TestLint(t *testing.T) {
	t.Parallel()
	for name, r := range uses(t) {
		for _, m := range linted(t, r) {
			t.Errorf("%s: %v", name, m)
		}
	}
	wrong := rendering{set: []string{"replica=2", "gateway.upstream=http://shop:80"}}
	if found := fmt.Sprint(linted(t, wrong)); !strings.Contains(found, "replica") {
		t.Errorf("a value that is not known: %s", found)
	}
}

// Each file of values makes objects that fit their schemas, and notes.
func TestValues(t *testing.T) {
	t.Parallel()
	for name, r := range uses(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := r.must(t)
			validate(t, out.objects)
			if !strings.Contains(out.notes, "helm -n front test shop") {
				t.Errorf("notes: %s", out.notes)
			}
		})
	}
}

// Values are merged as helm does it: files in order, then single values, and null takes a default away.
func TestRender(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(file, []byte("replicas: 7\nresources: {limits: null}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := aRelease("gateway.yaml")
	r.values = append(r.values, file)
	r.set = []string{"stop.delaySeconds=9"}
	out := r.must(t)
	deployment := only(t, out, "Deployment")
	spec := deployment.fields["spec"].(map[string]any)
	if spec["replicas"] != int64(7) || strings.Contains(deployment.text, "limits:") || !strings.Contains(deployment.text, "value: 9s") {
		t.Errorf("%s", deployment.text)
	}
	for i := 1; i < len(out.objects); i++ {
		if out.objects[i-1].file > out.objects[i].file {
			t.Errorf("%v comes before %v", out.objects[i-1], out.objects[i])
		}
	}
	for _, wrong := range []struct {
		r    rendering
		says string
	}{
		{rendering{chart: chart, name: "shop", set: []string{"replicas=many", "gateway.upstream=http://a"}}, "replicas"},
		{rendering{chart: chart, name: "shop"}, "gateway.upstream: say where"},
		{rendering{chart: chart, name: "Shop"}, "release name"},
		{rendering{chart: chart, name: "shop", values: []string{"none.yaml"}}, "none.yaml"},
	} {
		if _, err := wrong.r.render(); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%v: %v: want %q", wrong.r, err, wrong.says)
		}
	}
}

// only is the one object of a kind.
func only(t *testing.T, r rendered, kind string) (found object) {
	t.Helper()
	n := 0
	for _, o := range r.objects {
		if o.kind() == kind {
			found = o
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d objects of kind %s", n, kind)
	}
	return found
}
