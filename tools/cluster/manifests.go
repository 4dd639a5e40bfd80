package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// ofManifests is the chart that deploy/manifests is made from, with one of its values files after another.
func ofManifests(root string, values ...string) rendering {
	r := rendering{chart: filepath.Join(root, "deploy/chart"), name: "stint", namespace: "default"}
	for _, name := range values {
		r.values = append(r.values, filepath.Join(root, "tools/cluster", name))
	}
	return r
}

const rulesHead = `# yaml-language-server: $schema=https://raw.githubusercontent.com/stintdev/stint/main/docs/stint.schema.json
# Rules and settings: docs/rules.md, docs/settings.md. Made for a start: edit it, and apply the folder again.
# Rules are in force about a minute later, without a restart. Settings under "server" need
# kubectl rollout restart deployment stint.
`

// manifests returns the files of deploy/manifests that are made, by their paths in deploy. Those that are not made
// are the kustomization.yaml files and what redis changes of the Deployment.
func manifests(root string) (map[string][]byte, error) {
	base, err := plainObjects(ofManifests(root, "manifests.yaml"))
	if err != nil {
		return nil, err
	}
	fleet, err := plainObjects(ofManifests(root, "manifests.yaml", "manifests-redis.yaml"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	maps.Copy(files, inFolder("manifests/base", base))
	for name, data := range inFolder("manifests/redis", fleet) {
		if _, ok := files[path.Join("manifests/base", path.Base(name))]; !ok {
			files[name] = data
		}
	}
	return files, nil
}

// inFolder are the objects in a file for each template.
func inFolder(folder string, objects []object) map[string][]byte {
	files := map[string][]byte{}
	for _, o := range objects {
		name, text := path.Join(folder, path.Base(o.file)), strings.TrimSpace(o.text)+"\n"
		if o.kind() == "ConfigMap" {
			// A file of its own, which people edit.
			data := o.fields["data"].(map[string]any)
			files[path.Join(folder, "stint.yaml")] = []byte(rulesHead + data["stint.yaml"].(string))
			continue
		}
		if len(files[name]) > 0 {
			text = "---\n" + text
		}
		files[name] = append(files[name], text...)
	}
	return files
}

// ofHelm are lines that say what is true of a release of Helm only. The sum of settings would change with no
// edit of stint.yaml.
var ofHelm = regexp.MustCompile(`(?m)^ *(helm\.sh/chart: .*|app\.kubernetes\.io/managed-by: Helm|# Source: .*|# Settings are read at the start only.*|checksum/settings: .*)\n`)

// plainObjects renders a chart without its hooks and without what only Helm reads.
func plainObjects(r rendering) ([]object, error) {
	out, err := r.render()
	if err != nil {
		return nil, err
	}
	var all []object
	for _, o := range out.objects {
		if isHook(o) {
			continue
		}
		o.text = ofHelm.ReplaceAllString(o.text, "")
		if o.fields, err = read(o.text); err != nil {
			return nil, fmt.Errorf("%s: %w", o.file, err)
		}
		all = append(all, o)
	}
	return all, nil
}

func isHook(o object) bool { return text(o.fields, "metadata", "annotations", "helm.sh/hook") != "" }
