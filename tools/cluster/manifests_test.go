package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What is made is what the generator makes now. In deploy/manifests nothing else is but what is written by hand.
func TestMade(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{}
	for _, make := range []func(string) (map[string][]byte, error){ofChart, manifests} {
		part, err := make("../..")
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(files, part)
	}
	for path, want := range files {
		if got, err := os.ReadFile(filepath.Join("../../deploy", path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("deploy/%s is not what is made now (%v): run make deploy", path, err)
		}
	}
	byHand := []string{"manifests/kustomization.yaml", "manifests/base/kustomization.yaml", "manifests/redis/kustomization.yaml", "manifests/redis/store.yaml"}
	err := fs.WalkDir(os.DirFS("../../deploy"), "manifests", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && files[path] == nil && !slices.Contains(byHand, path) {
			t.Errorf("deploy/%s is made no more: remove it", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Both folders give valid objects, which are those of the chart for the same values.
func TestManifests(t *testing.T) {
	t.Parallel()
	for folder, values := range map[string][]string{".": {"manifests.yaml"}, "redis": {"manifests.yaml", "manifests-redis.yaml"}} {
		objects, err := build(filepath.Join("../../deploy/manifests", folder))
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		validate(t, objects)
		got, want := map[string]any{}, map[string]any{}
		for _, o := range objects {
			got[o.kind()+" "+o.name()] = likened(t, o)
			if strings.Contains(o.text, "helm") || strings.Contains(o.text, "Helm") {
				t.Errorf("%v tells of Helm:\n%s", o, o.text)
			}
		}
		for _, o := range ofManifests("../..", values...).must(t).objects {
			if !isHook(o) {
				want[o.kind()+" "+o.name()] = likened(t, o)
			}
		}
		if len(got) != len(objects) || len(got) != len(want) {
			t.Errorf("%s: %d objects, the chart has %d", folder, len(objects), len(want))
		}
		for name := range want {
			if !reflect.DeepEqual(got[name], want[name]) {
				a, _ := yaml.Marshal(got[name])
				b, _ := yaml.Marshal(want[name])
				t.Errorf("%s: %s is\n%s\nthe chart has\n%s", folder, name, a, b)
			}
		}
	}
}

// likened is an object without labels of its own and of Helm, without the sum of settings, and with its
// lists of named things sorted.
func likened(t *testing.T, o object) any {
	t.Helper()
	fields, err := read(o.text)
	if err != nil {
		t.Fatal(err)
	}
	if data, ok := fields["data"].(map[string]any); ok && o.kind() == "ConfigMap" {
		if data["stint.yaml"], err = read(data["stint.yaml"].(string)); err != nil {
			t.Fatal(err)
		}
	}
	delete(fields["metadata"].(map[string]any), "labels")
	var walk func(in any)
	walk = func(in any) {
		switch v := in.(type) {
		case map[string]any:
			delete(v, "helm.sh/chart")
			delete(v, "app.kubernetes.io/managed-by")
			delete(v, "checksum/settings")
			for _, part := range v {
				walk(part)
			}
		case []any:
			for _, part := range v {
				walk(part)
			}
			slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
		}
	}
	walk(fields)
	return fields
}

// nameOf is the name of a thing in a list, or "".
func nameOf(in any) string {
	fields, _ := in.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}
