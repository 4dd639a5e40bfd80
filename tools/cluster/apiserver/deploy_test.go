//go:build cluster

package apiserver

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const deploy = "../../../deploy/"

// An API server takes all of deploy: the chart with each file of values, its upgrades and rollbacks, the plain
// manifests, and the examples for the programs of others.
func TestDeploy(t *testing.T) {
	c := start(t)
	c.define(t)
	t.Run("refused", func(t *testing.T) { refused(t, c) })
	all := uses(t)
	for i, use := range all {
		t.Run(use.name, func(t *testing.T) { release(t, c, use, all[(i+1)%len(all)]) })
	}
	t.Run("manifests", func(t *testing.T) { manifests(t, c) })
	t.Run("examples", func(t *testing.T) { examples(t, c) })
}

// A use is files of values for helm, in order.
type use struct {
	name  string
	files []string
}

func (u use) flags() (all []string) {
	for _, file := range u.files {
		all = append(all, "--values="+deploy+"values/"+file)
	}
	return all
}

// uses are the files of values: those that are whole, and those that are added to another.
func uses(t *testing.T) (all []use) {
	t.Helper()
	entries, err := os.ReadDir(deploy + "values")
	if err != nil || len(entries) < 4 {
		t.Fatalf("deploy/values: %v, %v", entries, err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		text, err := os.ReadFile(deploy + "values/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "add a file of a use:") {
			all = append(all, use{"gateway-" + name, []string{"gateway.yaml", entry.Name()}})
			continue
		}
		all = append(all, use{name, []string{entry.Name()}}, use{name + "-in-production", []string{entry.Name(), "production.yaml"}})
	}
	return all
}

// release installs a use, upgrades it to another, rolls that back, and uninstalls it, by helm.
func release(t *testing.T, c *cluster, from, to use) {
	ns := c.namespace(t, from.name)
	// Without hooks: helm waits until their Jobs have run, and nothing runs here.
	helm := func(args ...string) string { return c.helm(t, ns, args...) }
	helm(append([]string{"install", "stint", deploy + "chart", "--no-hooks"}, from.flags()...)...)
	first := parse(t, []byte(helm("get", "manifest", "stint")))
	if len(first) < 4 {
		t.Fatalf("only %d objects are installed", len(first))
	}
	var installed []map[string]any
	for _, o := range first {
		installed = append(installed, c.stored(t, ns, o))
	}
	admitted(t, c, ns, append(first, parse(t, []byte(helm("get", "hooks", "stint")))...))

	helm(append([]string{"upgrade", "stint", deploy + "chart", "--no-hooks"}, to.flags()...)...)
	second := parse(t, []byte(helm("get", "manifest", "stint")))
	admitted(t, c, ns, append(second, parse(t, []byte(helm("get", "hooks", "stint")))...))

	helm("rollback", "stint", "1", "--no-hooks")
	for i, o := range first {
		if got := c.stored(t, ns, o); installed[i] == nil || !reflect.DeepEqual(got, installed[i]) {
			t.Errorf("%s %s is after the rollback\n%v\nand was\n%v", o.GetKind(), o.GetName(), got, installed[i])
		}
	}
	helm("uninstall", "stint", "--no-hooks")
	for _, o := range append(first, second...) {
		if c.stored(t, ns, o) != nil {
			t.Errorf("%s %s is there after helm uninstall", o.GetKind(), o.GetName())
		}
	}
}

// admitted makes the hooks among a release's objects, and the pods of all, without an unknown field or a warning,
// and deletes them again.
func admitted(t *testing.T, c *cluster, ns string, objects []*object) {
	t.Helper()
	var hooks []*object
	for _, o := range objects {
		if _, hook := o.GetAnnotations()["helm.sh/hook"]; hook {
			hooks = append(hooks, o)
		}
	}
	made := pods(t, objects)
	if len(made) == 0 {
		t.Error("there are no pods")
	}
	made = append(hooks, made...)
	c.mustApply(t, ns, made...)
	c.remove(t, ns, made...)
}

func manifests(t *testing.T, c *cluster) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), deploy+"manifests")
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	ns := c.namespace(t, "manifests")
	objects := parse(t, text)
	if len(objects) < 4 {
		t.Errorf("only %d objects", len(objects))
	}
	c.mustApply(t, ns, append(objects, pods(t, objects)...)...)
}

func examples(t *testing.T, c *cluster) {
	files, err := filepath.Glob(deploy + "examples/*.yaml")
	if err != nil || files == nil {
		t.Fatalf("there are no deploy/examples: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			objects := read(t, file)
			ns := c.namespace(t, "example-"+name)
			for _, o := range objects {
				if other := o.GetNamespace(); other != "" && other != ns {
					c.namespace(t, other)
				}
			}
			c.mustApply(t, ns, append(objects, pods(t, objects)...)...)
		})
	}
}
