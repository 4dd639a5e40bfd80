// Command image writes the OCI image of stint, for the platforms of the given programs, as an OCI image
// layout:
//
//	image dist/image LICENSE dist/stint_linux_amd64 dist/stint_linux_arm64
//
// The same programs give the same bytes. The version and the time are those that Go wrote into the programs.
package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: image LAYOUT LICENSE PROGRAM...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(to, license string, programs []string) error {
	var r release
	var err error
	if r.license, err = os.ReadFile(license); err != nil {
		return err
	}
	for i, path := range programs {
		p, about, err := readProgram(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if i > 0 && about != r.source {
			return fmt.Errorf("%s is of %v, %s of %v", programs[0], r.source, path, about)
		}
		r.source = about
		r.programs = append(r.programs, p)
	}
	digest, err := r.write(to)
	if err == nil {
		fmt.Printf("%s: version %s, %s\n", to, r.version, digest)
	}
	return err
}

// readProgram reads a Go program and its source.
func readProgram(path string) (p program, about source, err error) {
	if p.binary, err = os.ReadFile(path); err != nil {
		return p, about, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return p, about, err
	}
	about.version = cmp.Or(info.Main.Version, "(devel)")
	os, at := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			os = s.Value
		case "GOARCH":
			p.architecture = s.Value
		case "vcs.revision":
			about.revision = s.Value
		case "vcs.time":
			at = s.Value
		}
	}
	if os != "linux" {
		return p, about, errors.New("it is for " + cmp.Or(os, "an unknown system") + ": want linux")
	}
	if about.created = epoch; at != "" { // otherwise it was built without a repository
		about.created, err = time.Parse(time.RFC3339, at)
	}
	return p, about, err
}

// epoch is the time of files without a time.
var epoch = time.Unix(0, 0).UTC()
