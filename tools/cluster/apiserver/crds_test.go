//go:build cluster

package apiserver

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stintdev/stint/internal/await"
)

// definitions are modules with CustomResourceDefinitions, as module cluster has them.
func definitions(t *testing.T) (all []struct {
	Module, Hash string
	Files        []string
}) {
	t.Helper()
	text, err := os.ReadFile("../definitions.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fetch returns the folder of a module.
func fetch(t *testing.T, module, hash string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // in no module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*")
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if wrong := json.Unmarshal(out, &got); wrong != nil || err != nil || got.Sum != hash {
		t.Fatalf("%s: %v %v %s, its hash is %s", module, err, wrong, got.Error, got.Sum)
	}
	return got.Dir
}

// define installs the definitions of those with whom Stint runs.
func (c *cluster) define(t *testing.T) {
	t.Helper()
	var all []*object
	for _, d := range definitions(t) {
		if d.Files == nil { // Kubernetes itself
			continue
		}
		folder := fetch(t, d.Module, d.Hash)
		for _, pattern := range d.Files {
			files, err := filepath.Glob(filepath.Join(folder, pattern))
			if err != nil || files == nil {
				t.Fatalf("%s has no %s: %v", d.Module, pattern, err)
			}
			for _, file := range files {
				all = append(all, read(t, file)...)
			}
		}
	}
	for _, o := range all {
		// A warning about a definition is no fault of ours.
		if err := c.apply(t, o, ""); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	for _, o := range all {
		if o.GetKind() == "CustomResourceDefinition" {
			await.Until(t, o.GetName()+" is established", func() bool { return c.established(t, o) })
		}
	}
	c.warnings.take()
	c.kinds.Reset()
}

func (c *cluster) established(t *testing.T, o *object) bool {
	t.Helper()
	resource, err := c.of(o, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := resource.Get(t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
