//go:build cluster

package apiserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/stintdev/stint/internal/await"
)

// An object is any object of the API.
type object = unstructured.Unstructured

// parse returns the objects of a YAML text. Documents that are no objects, such as the configuration of
// another program, are left out.
func parse(t *testing.T, text []byte) (all []*object) {
	t.Helper()
	documents := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		o := &object{}
		if err == nil {
			err = yaml.UnmarshalStrict(document, &o.Object) // strict: no key twice
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if o.GetAPIVersion() != "" && o.GetKind() != "" {
			all = append(all, o)
		}
	}
}

func read(t *testing.T, file string) []*object {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// of is where the server keeps objects like o. It gives o the namespace, unless it has one or its kind has none.
func (c *cluster) of(o *object, namespace string) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	resource := c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource, nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	return resource.Namespace(o.GetNamespace()), nil
}

// apply is what "kubectl apply --server-side --validate=strict" does: an unknown field is an error.
func (c *cluster) apply(t *testing.T, o *object, namespace string) error {
	resource, err := c.of(o, namespace)
	if err != nil {
		return err
	}
	data, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = resource.Patch(t.Context(), o.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
	return err
}

// mustApply applies objects, in order, without an error and without a warning.
func (c *cluster) mustApply(t *testing.T, namespace string, objects ...*object) {
	t.Helper()
	c.warnings.take()
	for _, o := range objects {
		err := c.apply(t, o, namespace)
		if warned := c.warnings.take(); err != nil || warned != nil {
			t.Errorf("%s %s: %v %q", o.GetKind(), o.GetName(), err, warned)
		}
	}
}

// remove deletes objects, and waits until they are gone.
func (c *cluster) remove(t *testing.T, namespace string, objects ...*object) {
	t.Helper()
	now, background := int64(0), metav1.DeletePropagationBackground
	for _, o := range slices.Backward(objects) {
		resource, err := c.of(o, namespace)
		if err == nil {
			err = resource.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background})
		}
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		await.Until(t, o.GetKind()+" "+o.GetName()+" is gone", func() bool { return c.stored(t, namespace, o) == nil })
	}
}

// stored is what the server has of an object, without what differs when it is made anew, or nil.
func (c *cluster) stored(t *testing.T, namespace string, o *object) map[string]any {
	t.Helper()
	resource, err := c.of(o, namespace)
	if err != nil {
		t.Fatal(err)
	}
	got, err := resource.Get(t.Context(), o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(got.Object, "status")
	for _, field := range []string{"resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(got.Object, "metadata", field)
	}
	if o.GetKind() == "Service" {
		unstructured.RemoveNestedField(got.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(got.Object, "spec", "clusterIPs")
	}
	return got.Object
}

// namespace makes a namespace that refuses pods outside the restricted standard, and warns of what would make them.
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	c.mustApply(t, "", &object{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": name, "labels": map[string]any{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"},
	}}}, &object{Object: map[string]any{ // which a controller makes in a cluster
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": name},
	}})
	return name
}

// pods are those that controllers would make of objects: admission looks at them, and only warns of the others.
func pods(t *testing.T, objects []*object) (all []*object) {
	t.Helper()
	for _, o := range objects {
		template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
		if o.GetKind() == "Pod" {
			template, found = o.DeepCopy().Object, true
		} else if o.GetKind() != "Deployment" && o.GetKind() != "Job" {
			continue
		}
		if !found || err != nil {
			t.Fatalf("%s %s has no template: %v", o.GetKind(), o.GetName(), err)
		}
		pod := &object{Object: template}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetName(o.GetName() + "-tried")
		all = append(all, pod)
	}
	return all
}
