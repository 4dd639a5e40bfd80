package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// A monitor is what is checked of a ServiceMonitor.
type monitor struct {
	Spec struct {
		Selector  metav1.LabelSelector
		Endpoints []struct{ Port string }
	}
}

// A podTemplate is a pod that an object makes.
type podTemplate struct {
	of   object
	meta metav1.ObjectMeta
	spec corev1.PodSpec
}

// A release is what is checked of the objects of one release together.
type release struct {
	objects  []object
	pods     []podTemplate // the first is the Deployment's
	services []corev1.Service
	problems []string
}

// problems says what does not fit together in a release of one Deployment. exist are the names of ConfigMaps,
// Secrets and ServiceAccounts that the values say are there.
func problems(objects []object, exist ...string) []string {
	r := &release{objects: objects}
	r.readPods()
	switch {
	case len(r.problems) > 0:
		return r.problems
	case len(r.pods) == 0 || r.pods[0].of.kind() != "Deployment":
		return []string{"there is no Deployment"}
	}
	for _, o := range objects {
		r.names(o)
		r.selectors(o)
	}
	for _, p := range r.pods {
		r.ports(p)
		r.mounts(p, exist)
		r.restricted(p)
	}
	r.stops(r.pods[0])
	return r.problems
}

func (r *release) problem(of object, format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("%v: ", of)+fmt.Sprintf(format, args...))
}

// as reads o as its type in Go, which finds quantities that are none, too.
func (r *release) as(o object, typed any) bool {
	err := yaml.UnmarshalStrict([]byte(o.text), typed)
	if err != nil {
		r.problem(o, "%v", err)
	}
	return err == nil
}

func (r *release) readPods() {
	for _, o := range r.objects {
		switch o.kind() {
		case "Deployment":
			var d appsv1.Deployment
			r.as(o, &d)
			r.pods = slices.Insert(r.pods, 0, podTemplate{o, d.Spec.Template.ObjectMeta, d.Spec.Template.Spec})
		case "Job":
			var j batchv1.Job
			r.as(o, &j)
			r.pods = append(r.pods, podTemplate{o, j.Spec.Template.ObjectMeta, j.Spec.Template.Spec})
		case "Pod":
			var p corev1.Pod
			r.as(o, &p)
			r.pods = append(r.pods, podTemplate{o, p.ObjectMeta, p.Spec})
		case "Service":
			var s corev1.Service
			r.as(o, &s)
			r.services = append(r.services, s)
		}
	}
}

func (r *release) names(o object) {
	for _, wrong := range validation.IsDNS1123Label(o.name()) {
		r.problem(o, "the name %s: %s", o.name(), wrong)
	}
	given, _ := o.fields["metadata"].(map[string]any)["labels"].(map[string]any)
	r.labels(o, given)
	same := func(other object) bool {
		return other.apiVersion() == o.apiVersion() && other.kind() == o.kind() && other.name() == o.name()
	}
	if first := slices.IndexFunc(r.objects, same); r.objects[first].text != o.text {
		r.problem(o, "there are two of the name")
	}
}

func (r *release) labels(o object, given map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, wrong := range append(validation.IsQualifiedName(name), validation.IsValidLabelValue(fmt.Sprint(given[name]))...) {
			r.problem(o, "the label %s: %v: %s", name, given[name], wrong)
		}
	}
}

// selectors checks that what selects pods selects the Deployment's and no others, and that ports are its own.
func (r *release) selectors(o object) {
	switch o.kind() {
	case "Deployment":
		var d appsv1.Deployment
		if r.as(o, &d) {
			r.selects(o, d.Spec.Selector)
			for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
				r.selects(o, spread.LabelSelector)
			}
		}
	case "Service":
		var s corev1.Service
		if r.as(o, &s) {
			r.selects(o, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
			for _, port := range s.Spec.Ports {
				r.leads(o, port.TargetPort)
			}
		}
	case "PodDisruptionBudget":
		var b policyv1.PodDisruptionBudget
		if r.as(o, &b) {
			r.selects(o, b.Spec.Selector)
		}
	case "NetworkPolicy":
		var n networkingv1.NetworkPolicy
		if r.as(o, &n) {
			r.selects(o, &n.Spec.PodSelector)
			for _, in := range n.Spec.Ingress {
				for _, port := range in.Ports {
					r.leads(o, *port.Port)
				}
			}
		}
	case "HorizontalPodAutoscaler":
		r.scales(o)
	case "ServiceMonitor":
		r.monitors(o)
	}
}

func (r *release) selects(o object, of *metav1.LabelSelector) {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil || selector.Empty() {
		r.problem(o, "the selector %v: %v", of, err)
		return
	}
	for i, p := range r.pods {
		if is := selector.Matches(labels.Set(p.meta.Labels)); is != (i == 0) {
			r.problem(o, "the selector meets the pod of %v: %t", p.of, is)
		}
	}
}

// leads checks that the Deployment has a port.
func (r *release) leads(o object, to intstr.IntOrString) {
	if !has(r.pods[0].spec.Containers, to) {
		r.problem(o, "no container has the port %v", &to)
	}
}

func has(containers []corev1.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return p.Name != "" && p.Name == port.StrVal || p.ContainerPort == port.IntVal
		})
	})
}

func (r *release) scales(o object) {
	var h autoscalingv2.HorizontalPodAutoscaler
	if !r.as(o, &h) {
		return
	}
	to, deployment := h.Spec.ScaleTargetRef, r.pods[0].of
	if to.Name != deployment.name() || to.Kind != deployment.kind() || to.APIVersion != deployment.apiVersion() {
		r.problem(o, "it scales %v", to)
	}
	if _, set := deployment.fields["spec"].(map[string]any)["replicas"]; set {
		r.problem(o, "the Deployment has replicas, to which each upgrade would set it back")
	}
}

func (r *release) monitors(o object) {
	var m monitor
	if err := yaml.Unmarshal([]byte(o.text), &m); err != nil {
		r.problem(o, "%v", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		r.problem(o, "%v", err)
		return
	}
	met := slices.DeleteFunc(slices.Clone(r.services), func(s corev1.Service) bool { return !selector.Matches(labels.Set(s.Labels)) })
	if len(met) != 1 {
		r.problem(o, "the selector meets %d Services", len(met)) // each pod would count twice, or never
		return
	}
	for _, e := range m.Spec.Endpoints {
		if !slices.ContainsFunc(met[0].Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == e.Port }) {
			r.problem(o, "the Service has no port %s", e.Port)
		}
	}
}

func (r *release) ports(p podTemplate) {
	seen := map[any]bool{}
	for _, c := range p.spec.Containers {
		for _, wrong := range validation.IsDNS1123Label(c.Name) {
			r.problem(p.of, "the container %s: %s", c.Name, wrong)
		}
		for _, port := range c.Ports {
			for _, wrong := range append(validation.IsValidPortName(port.Name), validation.IsValidPortNum(int(port.ContainerPort))...) {
				r.problem(p.of, "the port %s: %s", port.Name, wrong)
			}
			if seen[port.Name] || seen[port.ContainerPort] {
				r.problem(p.of, "the port %s, %d is there twice", port.Name, port.ContainerPort)
			}
			seen[port.Name], seen[port.ContainerPort] = true, true
		}
		for what, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			switch {
			case probe == nil && p.of.kind() == "Deployment":
				r.problem(p.of, "%s has no %s probe", c.Name, what)
			case probe != nil && !has([]corev1.Container{c}, probe.HTTPGet.Port):
				r.problem(p.of, "the %s probe asks the port %v", what, &probe.HTTPGet.Port)
			}
		}
	}
}

// restricted checks the Pod Security Standard restricted.
func (r *release) restricted(p podTemplate) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		r.problem(p.of, "%v", err)
		return
	}
	for _, result := range checks.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &p.meta, &p.spec) {
		if !result.Allowed {
			r.problem(p.of, "%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
	for _, c := range p.spec.Containers { // more than restricted asks for
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			r.problem(p.of, "%s may write to the root file system", c.Name)
		}
	}
	if auto := p.spec.AutomountServiceAccountToken; auto == nil || *auto {
		r.problem(p.of, "it has a token of the API server")
	}
	given := map[string]any{}
	for name, value := range p.meta.Labels {
		given[name] = value
	}
	r.labels(p.of, given)
}

// stops checks that Kubernetes does not kill a pod that still drains.
func (r *release) stops(p podTemplate) {
	var sum time.Duration
	for _, name := range []string{"STINT_SERVER_STOP_DELAY", "STINT_SERVER_STOP_TIMEOUT"} {
		env := p.spec.Containers[0].Env
		i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
		if i < 0 {
			r.problem(p.of, "%s is not set", name)
			continue
		}
		d, err := time.ParseDuration(env[i].Value)
		if err != nil {
			r.problem(p.of, "%s: %v", name, err)
		}
		sum += d
	}
	if grace := p.spec.TerminationGracePeriodSeconds; grace == nil || time.Duration(*grace)*time.Second <= sum {
		r.problem(p.of, "it stops within %v, and is killed before", sum)
	}
}

// mounts checks that what a pod reads is made by the release, or exists.
func (r *release) mounts(p podTemplate, exist []string) {
	is := func(kind, name string) {
		made := slices.ContainsFunc(r.objects, func(o object) bool { return o.kind() == kind && o.name() == name })
		if !made && !slices.Contains(exist, name) {
			r.problem(p.of, "nobody makes the %s %s", kind, name)
		}
	}
	volumes := map[string]bool{}
	for _, v := range p.spec.Volumes {
		if volumes[v.Name] {
			r.problem(p.of, "the volume %s is there twice", v.Name)
		}
		volumes[v.Name] = true
		for _, wrong := range validation.IsDNS1123Label(v.Name) {
			r.problem(p.of, "the volume %s: %s", v.Name, wrong)
		}
		if v.ConfigMap != nil {
			is("ConfigMap", v.ConfigMap.Name)
		}
		if v.Secret != nil {
			is("Secret", v.Secret.SecretName)
		}
	}
	is("ServiceAccount", p.spec.ServiceAccountName)
	paths, used := map[string]bool{}, map[string]bool{}
	for _, c := range p.spec.Containers {
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] || paths[m.MountPath] {
				r.problem(p.of, "the mount of %s at %s has no volume, or its path is there twice", m.Name, m.MountPath)
			}
			paths[m.MountPath], used[m.Name] = true, true
			if m.SubPath != "" {
				r.problem(p.of, "%s does not follow changes, by subPath", m.MountPath)
			}
		}
		for _, e := range c.Env {
			if from := e.ValueFrom; from != nil && from.SecretKeyRef != nil {
				is("Secret", from.SecretKeyRef.Name)
			}
		}
		r.paths(p, c, paths)
	}
	if len(used) != len(volumes) {
		r.problem(p.of, "of %d volumes, %d are mounted", len(volumes), len(used))
	}
}

// paths checks that arguments and variables name files in what is mounted.
func (r *release) paths(p podTemplate, c corev1.Container, mounted map[string]bool) {
	texts := slices.Clone(c.Args)
	for _, e := range c.Env {
		texts = append(texts, e.Value)
	}
	for _, text := range texts {
		for _, root := range []string{"/etc/", "/run/", "/var/"} {
			for _, part := range strings.Split(text, root)[1:] {
				path := root + part[:strings.IndexAny(part+"&", "&? ,")]
				folder := path[:strings.LastIndex(path, "/")]
				if !mounted[path] && !mounted[folder] {
					r.problem(p.of, "%s: nothing is mounted at %s", text, path)
				}
			}
		}
	}
}
