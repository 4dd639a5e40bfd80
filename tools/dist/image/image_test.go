package main

import (
	"archive/tar"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var made = release{
	source: source{
		version: "v0.1.0+dirty", revision: "6eed565f7d0bfbb5f0a2b9f4bdb1b4d8dcb90d15",
		created: time.Date(2026, 11, 29, 3, 4, 5, 0, time.UTC),
	},
	license:  []byte("a licence"),
	programs: []program{{"amd64", []byte("for amd64")}, {"arm64", []byte("for arm64")}},
}

// write writes r into a folder of its own.
func write(t *testing.T, r *release) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "image")
	if _, err := r.write(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// images reads the images in a layout, whose index has one index of all architectures.
func images(t *testing.T, folder string) map[string]v1.Image {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := outer.IndexManifest()
	if err != nil || len(listed.Manifests) != 1 {
		t.Fatalf("%v, %v: want one index", listed, err)
	}
	index, err := outer.ImageIndex(listed.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if all[m.Platform.String()], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// list is what is in image, a line for each file, and the text of some.
func list(t *testing.T, image v1.Image) (lines []string, texts map[string]string) {
	t.Helper()
	all := mutate.Extract(image)
	defer all.Close()
	texts = map[string]string{}
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(lines)
			return lines, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(made.created) {
			t.Errorf("%s is of %v", h.Name, h.ModTime)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", h.FileInfo().Mode(), h.Uid, h.Name, h.Linkname)))
		texts[h.Name] = string(text)
	}
}

func TestImage(t *testing.T) {
	all := images(t, write(t, &made))
	if len(all) != 2 {
		t.Fatalf("%d images", len(all))
	}
	var layers [][]v1.Hash
	for _, platform := range []string{"linux/amd64", "linux/arm64/v8"} {
		image := all[platform]
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		if c.User != "65532:65532" || c.StopSignal != "SIGTERM" || len(c.Env) > 0 ||
			strings.Join(slices.Concat(c.Entrypoint, c.Cmd), " ") != "/usr/bin/stint serve --config /etc/stint/stint.yaml" ||
			strings.Join(c.Healthcheck.Test, " ") != "CMD /usr/bin/stint healthcheck --config /etc/stint/stint.yaml" {
			t.Errorf("%s: %+v", platform, c)
		}
		if !config.Created.Time.Equal(made.created) || config.OS != "linux" || !strings.HasPrefix(platform, "linux/"+config.Architecture) {
			t.Errorf("%s: %+v", platform, config)
		}
		for label, want := range map[string]string{"version": made.version, "revision": made.revision, "created": "2026-11-29T03:04:05Z", "licenses": "Apache-2.0"} {
			if got := c.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("%s: %s is %q", platform, label, got)
			}
		}
		lines, texts := list(t, image)
		if got := strings.Join(lines, "\n"); got != strings.TrimSpace(wantFiles) {
			t.Errorf("%s has:\n%s", platform, got)
		}
		if got := texts["usr/bin/stint"]; got != "for "+config.Architecture {
			t.Errorf("%s has a program %q", platform, got)
		}
		if !strings.Contains(texts["etc/passwd"], "\nstint:x:65532:65532:") || !strings.Contains(texts["etc/group"], "\nstint:x:65532:") {
			t.Errorf("users %q, groups %q", texts["etc/passwd"], texts["etc/group"])
		}
		checkAuthorities(t, texts["etc/ssl/certs/ca-certificates.crt"])
		layers = append(layers, config.RootFS.DiffIDs)
	}
	if len(layers[0]) != 2 || len(layers[1]) != 2 || layers[0][0] != layers[1][0] || layers[0][1] == layers[1][1] {
		t.Errorf("layers %v: want the first shared, and the second of its own", layers)
	}
}

const wantFiles = `
-rw-r--r-- 0 etc/group
-rw-r--r-- 0 etc/passwd
-rw-r--r-- 0 etc/ssl/certs/ca-certificates.crt
-rw-r--r-- 0 etc/stint/stint.yaml
-rw-r--r-- 0 usr/share/doc/stint/LICENSE
-rwxr-xr-x 0 bin/ratelimit usr/bin/stint
-rwxr-xr-x 0 usr/bin/stint
drwx------ 65532 var/lib/stint
drwxr-xr-x 0 bin
drwxr-xr-x 0 etc
drwxr-xr-x 0 etc/ssl
drwxr-xr-x 0 etc/ssl/certs
drwxr-xr-x 0 etc/stint
drwxr-xr-x 0 usr
drwxr-xr-x 0 usr/bin
drwxr-xr-x 0 usr/share
drwxr-xr-x 0 usr/share/doc
drwxr-xr-x 0 usr/share/doc/stint
drwxr-xr-x 0 var
drwxr-xr-x 0 var/lib
`

func checkAuthorities(t *testing.T, text string) {
	t.Helper()
	n := 0
	for rest := []byte(text); ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
	}
	if n < 50 {
		t.Errorf("%d authorities", n)
	}
}

func TestSameBytes(t *testing.T) {
	one, other := write(t, &made), write(t, &made)
	n := 0
	err := filepath.WalkDir(one, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		name, _ := filepath.Rel(one, path)
		a, err := os.ReadFile(path)
		b, otherErr := os.ReadFile(filepath.Join(other, name))
		if string(a) != string(b) {
			t.Errorf("%s differs", name)
		}
		return errors.Join(err, otherErr)
	})
	if err != nil || n != 10 { // oci-layout, two indexes; a manifest, a configuration and a layer of each; the shared layer
		t.Errorf("%d files, %v", n, err)
	}
}

func TestRefused(t *testing.T) {
	there := write(t, &made)
	if _, err := made.write(there); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second time: %v", err)
	}
	none := filepath.Join(there, "oci-layout") // no program
	if err := run(filepath.Join(t.TempDir(), "image"), none, []string{none}); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("no program: %v", err)
	}
}
