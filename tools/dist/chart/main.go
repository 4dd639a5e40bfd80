// Command chart packs a Helm chart, as helm package does, with a version of the program in place of its own:
//
//	chart deploy/chart 0.1.0 bin/chart/stint_chart.tgz
//
// All files have the time SOURCE_DATE_EPOCH, so that the same chart gives the same bytes, which helm package
// does not promise.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: chart FOLDER VERSION FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(folder, version, to string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	var packed bytes.Buffer
	if err := pack(&packed, os.DirFS(folder), version, time.Unix(seconds, 0)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, packed.Bytes(), 0o644)
}

// pack writes the archive. Helm wants all files in a folder that has the chart's name.
func pack(to io.Writer, chart fs.FS, version string, at time.Time) error {
	zipped, _ := gzip.NewWriterLevel(to, gzip.BestCompression)
	archive := tar.NewWriter(zipped)
	err := fs.WalkDir(chart, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(chart, name)
		if err == nil && name == "Chart.yaml" {
			text, err = versioned(text, version)
		}
		if err != nil {
			return err
		}
		header := tar.Header{Name: path.Join("stint", name), Mode: 0o644, Size: int64(len(text)), ModTime: at}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		_, err = archive.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

var versionLine = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// versioned is a Chart.yaml with the version in its two lines.
func versioned(text []byte, version string) ([]byte, error) {
	if n := len(versionLine.FindAll(text, -1)); n != 2 {
		return nil, fmt.Errorf("%d lines of Chart.yaml have version or appVersion, want 2", n)
	}
	return versionLine.ReplaceAll(text, []byte(`$1: "`+semantic(version)+`"`)), nil
}

var leadingZero = regexp.MustCompile(`^0\.0\.0-0[0-9]+(\+|$)`)

// semantic is a version that Helm takes: a commit of digits alone is a number to it, which must not begin
// with 0.
func semantic(version string) string {
	if leadingZero.MatchString(version) {
		return strings.Replace(version, "-", "-g", 1)
	}
	return version
}
