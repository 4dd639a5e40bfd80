package main

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// build is kubectl kustomize: the objects of a folder with a kustomization.yaml.
func build(folder string) (all []object, err error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, err
	}
	for _, r := range made.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		fields, err := read(string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, object{file: folder, text: string(text), fields: fields})
	}
	return all, nil
}

// What the chart makes can be changed by an overlay of kustomize, as people do with plain manifests.
func TestBuild(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := ""
	out := aRelease("gateway.yaml").must(t)
	for _, o := range out.objects {
		all += "---\n" + o.text + "\n"
	}
	file("all.yaml", all)
	file("kustomization.yaml", "resources: [all.yaml]\nnamespace: back\nreplicas: [{name: shop-stint, count: 5}]\n")
	objects, err := build(folder)
	if err != nil || len(objects) != len(out.objects) {
		t.Fatalf("%d objects of %d, %v", len(objects), len(out.objects), err)
	}
	validate(t, objects)
	deployment := only(t, rendered{objects: objects}, "Deployment")
	if deployment.fields["spec"].(map[string]any)["replicas"] != int64(5) || text(deployment.fields, "metadata", "namespace") != "back" {
		t.Errorf("%s", deployment.text)
	}
	if _, err := build(t.TempDir()); err == nil {
		t.Error("a folder without kustomization.yaml is built")
	}
}
