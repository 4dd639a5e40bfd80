package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// kubernetes is the version that charts are rendered for, and whose API objects are checked by.
const kubernetes = "v1.36.3"

// A rendering says what to render, as the flags of helm template do.
type rendering struct {
	chart           string // the chart's folder
	name, namespace string // of the release
	values          []string
	set             []string // such as replicas=2, which come after values
	apis            []string // those the cluster has besides Kubernetes' own, such as monitoring.coreos.com/v1
	revision        int      // 0: the first, an install; otherwise an upgrade
}

// A rendered chart is what helm would send to the API server, and what it would print.
type rendered struct {
	objects []object // hooks and tests among them, by file
	notes   string
}

// An object is one that a cluster may be asked to create.
type object struct {
	file   string // where it comes from, such as stint/templates/service.yaml
	text   string // in YAML
	fields map[string]any
}

func (o object) apiVersion() string { return text(o.fields, "apiVersion") }
func (o object) kind() string       { return text(o.fields, "kind") }
func (o object) name() string       { return text(o.fields, "metadata", "name") }

func (o object) String() string { return fmt.Sprintf("%s: %s %s", o.file, o.kind(), o.name()) }

// text is the string at path, or "".
func text(fields map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		fields, _ = fields[name].(map[string]any)
	}
	s, _ := fields[path[len(path)-1]].(string)
	return s
}

// render does what action.Install of Helm does for helm template. That package would bring in clients of
// clusters and of registries, which take minutes to compile.
func (r rendering) render() (rendered, error) {
	chart, err := loader.Load(r.chart)
	if err != nil {
		return rendered{}, err
	}
	if err := chartutil.ValidateReleaseName(r.name); err != nil {
		return rendered{}, err
	}
	given, err := r.merge()
	if err != nil {
		return rendered{}, err
	}
	if err := chartutil.ProcessDependencies(chart, given); err != nil {
		return rendered{}, err
	}
	capabilities, err := r.capabilities()
	if err != nil {
		return rendered{}, err
	}
	if wants := chart.Metadata.KubeVersion; wants != "" && !chartutil.IsCompatibleRange(wants, capabilities.KubeVersion.String()) {
		return rendered{}, fmt.Errorf("%s is for Kubernetes %s, not %s", r.chart, wants, kubernetes)
	}
	values, err := util.ToRenderValues(chart, given, common.ReleaseOptions{
		Name: r.name, Namespace: r.namespace, Revision: max(r.revision, 1), IsInstall: r.revision <= 1, IsUpgrade: r.revision > 1,
	}, capabilities)
	if err != nil {
		return rendered{}, err
	}
	files, err := engine.Engine{}.RenderWithContext(context.Background(), chart, values)
	if err != nil {
		return rendered{}, err
	}
	notes := chart.Name() + "/templates/NOTES.txt"
	out := rendered{notes: files[notes]}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") { // those of subcharts are not printed
			delete(files, name)
		}
	}
	out.objects, err = sorted(files)
	return out, err
}

// merge merges the values that are given.
func (r rendering) merge() (map[string]any, error) {
	given := map[string]any{}
	for _, name := range r.values {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		more, err := loader.LoadValues(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		given = loader.MergeMaps(given, more)
	}
	for _, value := range r.set {
		if err := strvals.ParseInto(value, given); err != nil {
			return nil, fmt.Errorf("%s: %w", value, err)
		}
	}
	return given, nil
}

func (r rendering) capabilities() (*common.Capabilities, error) {
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, err
	}
	c := common.DefaultCapabilities.Copy()
	c.KubeVersion = *version
	c.APIVersions = slices.Concat(c.APIVersions, r.apis)
	return c, nil
}

// sorted reads the objects in files.
func sorted(files map[string]string) ([]object, error) {
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var all []object
	for _, m := range manifests {
		all = append(all, object{file: m.Name, text: m.Content})
	}
	for _, h := range hooks {
		all = append(all, object{file: h.Path, text: h.Manifest})
	}
	slices.SortStableFunc(all, func(a, b object) int { return strings.Compare(a.file, b.file) })
	for i := range all {
		if all[i].fields, err = read(all[i].text); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].file, err)
		}
	}
	return all, nil
}

// read reads an object in YAML. A name that is there twice is an error. Whole numbers are int64.
func read(manifest string) (fields map[string]any, err error) {
	data, err := yaml.YAMLToJSONStrict([]byte(manifest))
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	return fields, err
}
