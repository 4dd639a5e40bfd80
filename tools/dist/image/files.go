package main

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"encoding/pem"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	programPath = "/usr/bin/stint"
	configPath  = "/etc/stint/stint.yaml"
	// userID is the user and the group, the same as in other images without a shell.
	userID = 65532
)

// The packages' file listens on loopback, which nobody reaches in a container. Variables in the image would
// fix that, but they would also override a mounted file's settings.
//
//go:embed stint.yaml
var settings []byte

// file is a file of a layer: a folder if its name ends in a slash, another name for an earlier file if it has
// a target.
type file struct {
	name, target string
	mode, owner  int64
	data         []byte
}

// baseFiles are the files beside the program. They have no time zone database: the program has its own.
func baseFiles(license []byte) []file {
	users := fmt.Sprintf("root:x:0:0:root:/root:/sbin/nologin\nstint:x:%d:%[1]d:Stint:/var/lib/stint:/sbin/nologin\n", userID)
	groups := fmt.Sprintf("root:x:0:\nstint:x:%d:\n", userID)
	return []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte(groups)},
		{name: "etc/passwd", mode: 0o644, data: []byte(users)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{name: "etc/stint/", mode: 0o755},
		{name: strings.TrimPrefix(configPath, "/"), mode: 0o644, data: settings},
		{name: "usr/", mode: 0o755},
		{name: "usr/share/", mode: 0o755},
		{name: "usr/share/doc/", mode: 0o755},
		{name: "usr/share/doc/stint/", mode: 0o755},
		{name: "usr/share/doc/stint/LICENSE", mode: 0o644, data: license},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/stint/", mode: 0o700, owner: userID}, // a new volume there takes its owner and mode
	}
}

// programFiles has the program, also under the name with which the image of envoyproxy/ratelimit is run. That
// is not a symbolic link, which some unpackers of images leave out if it leads upward.
func programFiles(binary []byte) []file {
	path := strings.TrimPrefix(programPath, "/")
	return []file{
		{name: "bin/", mode: 0o755},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: path, mode: 0o755, data: binary},
		{name: "bin/ratelimit", mode: 0o755, target: path},
	}
}

// authorities are Mozilla's, in PEM. They come from a module, so that go.sum determines them: the build
// machine's would differ from machine to machine. Authorities that are trusted only for old certificates are
// left out, because PEM cannot express that.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return all.Bytes()
}

// archive is a tar of files, all with the time at.
func archive(files []file, at time.Time) ([]byte, error) {
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: int(f.owner), Gid: int(f.owner), ModTime: at, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		switch {
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		case f.target != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.target
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return data.Bytes(), err
}

// opener reads data again and again.
func opener(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}
