package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// program is stint for one architecture, named as by Go and OCI.
type program struct {
	architecture string
	binary       []byte
}

// source is the source of the programs.
type source struct {
	version, revision string
	created           time.Time
}

// release is the input of one image for several architectures.
type release struct {
	source
	license  []byte
	programs []program
}

// write writes the layout into the folder to, which must not have one, and returns the digest of the
// index of all architectures.
func (r *release) write(to string) (digest v1.Hash, err error) {
	if _, err := os.Stat(to); err == nil {
		return digest, fmt.Errorf("%s is there already: remove it first", to)
	}
	base, err := r.layer(baseFiles(r.license))
	if err != nil {
		return digest, err
	}
	index := mutate.Annotations(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), r.labels()).(v1.ImageIndex)
	for _, p := range r.programs {
		image, err := r.image(base, p)
		if err != nil {
			return digest, fmt.Errorf("%s: %w", p.architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: p.platform()}})
	}
	if digest, err = index.Digest(); err != nil {
		return digest, err
	}
	path, err := layout.Write(to, empty.Index)
	if err != nil {
		return digest, err
	}
	tag := strings.NewReplacer("+", "-", "(", "", ")", "").Replace(strings.TrimPrefix(r.version, "v")) // as tags allow
	return digest, path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}))
}

// image is base and p.
func (r *release) image(base v1.Layer, p program) (v1.Image, error) {
	own, err := r.layer(programFiles(p.binary))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		v1.Layer
		of string
	}{{base, "certificates, users and the file of settings"}, {own, programPath}} {
		image, err = mutate.Append(image, mutate.Addendum{Layer: l.Layer, History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: l.of}})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: r.created}
	config.OS, config.Architecture, config.Variant = "linux", p.architecture, p.platform().Variant
	config.Config = r.config()
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

func (p program) platform() *v1.Platform {
	platform := &v1.Platform{OS: "linux", Architecture: p.architecture}
	if p.architecture == "arm64" {
		platform.Variant = "v8"
	}
	return platform
}

// config is how to run the image.
func (r *release) config() v1.Config {
	return v1.Config{
		User:         fmt.Sprintf("%d:%[1]d", userID), // a number, for Kubernetes' runAsNonRoot to see that it is not root
		Entrypoint:   []string{programPath},
		Cmd:          []string{"serve", "--config", configPath},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8083/tcp": {}}, // the ports that the file opens to others
		Labels:       r.labels(),
		StopSignal:   "SIGTERM",
		// Only Docker uses it. It asks whether the process runs, not whether it is ready: while Redis is
		// down, not all containers should be restarted.
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", programPath, "healthcheck", "--config", configPath},
			Interval: 30 * time.Second, Timeout: 5 * time.Second, StartPeriod: 10 * time.Second, Retries: 3,
		},
	}
}

// labels are OCI's annotations.
func (r *release) labels() map[string]string {
	all := map[string]string{
		"title":         "Stint",
		"description":   "A distributed rate limiter: a gateway, a check API, and Envoy's rate limit service",
		"url":           "https://github.com/stintdev/stint",
		"source":        "https://github.com/stintdev/stint",
		"documentation": "https://github.com/stintdev/stint/tree/main/docs",
		"licenses":      "Apache-2.0",
		"version":       r.version,
		"created":       r.created.UTC().Format(time.RFC3339),
	}
	if r.revision != "" {
		all["revision"] = r.revision
	}
	labels := map[string]string{}
	for name, text := range all {
		labels["org.opencontainers.image."+name] = text
	}
	return labels
}

// layer is a layer of files with the time of the source.
func (r *release) layer(files []file) (v1.Layer, error) {
	data, err := archive(files, r.created)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(opener(data), tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
}
