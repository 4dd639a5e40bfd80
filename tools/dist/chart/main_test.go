package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// The archive has each file of the chart once, in the folder stint, and its version in Chart.yaml.
func TestPack(t *testing.T) {
	chart, at := os.DirFS("../../../deploy/chart"), time.Unix(1e9, 0)
	var packed bytes.Buffer
	if err := pack(&packed, chart, "0.0.0-0123456789ab+dirty", at); err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if _, twice := got[header.Name]; err != nil || twice || header.Mode != 0o644 || !header.ModTime.Equal(at) {
			t.Errorf("%s: %v, twice %v, mode %o, time %v", header.Name, err, twice, header.Mode, header.ModTime)
		}
		got[header.Name] = string(text)
	}
	about := got["stint/Chart.yaml"]
	for _, line := range []string{`version: "0.0.0-0123456789ab+dirty"`, `appVersion: "0.0.0-0123456789ab+dirty"`, "name: stint"} {
		if !strings.Contains("\n"+about, "\n"+line+"\n") {
			t.Errorf("Chart.yaml lacks %s:\n%s", line, about)
		}
	}
	n := 0
	err = fs.WalkDir(chart, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		text, err := fs.ReadFile(chart, name)
		if name != "Chart.yaml" && got["stint/"+name] != string(text) {
			t.Errorf("%s is not in the archive as it is", name)
		}
		return err
	})
	if err != nil || n != len(got) || n < 10 {
		t.Errorf("the chart has %d files, the archive %d, %v", n, len(got), err)
	}
}

// The modes and times of the chart's files do not matter.
func TestSameBytes(t *testing.T) {
	var all []string
	for _, file := range []fstest.MapFile{{Mode: 0o600, ModTime: time.Unix(1, 0)}, {Mode: 0o755, ModTime: time.Unix(2, 0)}} {
		file.Data = []byte("version: 0.0.0\nappVersion: latest\n")
		var packed bytes.Buffer
		if err := pack(&packed, fstest.MapFS{"Chart.yaml": &file}, "0.1.0", time.Unix(3, 0)); err != nil {
			t.Fatal(err)
		}
		all = append(all, packed.String())
	}
	if all[0] != all[1] {
		t.Error("two archives of one chart differ")
	}
	if err := pack(io.Discard, fstest.MapFS{"Chart.yaml": {Data: []byte("version: 0.0.0\n")}}, "0.1.0", time.Unix(3, 0)); err == nil {
		t.Error("a chart without appVersion is packed")
	}
}

func TestSemantic(t *testing.T) {
	for version, want := range map[string]string{
		"0.1.0":                    "0.1.0",
		"0.1.0-rc.1":               "0.1.0-rc.1",
		"0.0.0-012345678901":       "0.0.0-g012345678901",
		"0.0.0-012345678901+dirty": "0.0.0-g012345678901+dirty",
		"0.0.0-112345678901":       "0.0.0-112345678901",
		"0.0.0-01234567890a":       "0.0.0-01234567890a",
	} {
		if got := semantic(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
