package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// EnvoyFiles is a directory of files of Envoy's form, such as the runtime directory of
// envoyproxy/ratelimit. Its methods may be called from many goroutines at once.
type EnvoyFiles struct {
	// Path is the directory; it may be a link. Files in directories within it count, too, with any names.
	// Links within it to other directories do not count.
	Path string
	// IgnoreDotFiles leaves out files and directories whose names begin with a dot.
	IgnoreDotFiles bool
	// Link is the path of a symbolic link above the files, or equal to Path. A Watcher then waits
	// until it points elsewhere, and does not look at the files. Empty, or no link: it looks at them.
	Link string
	// MergeDomains is File.MergeDomain of the files.
	MergeDomains bool
	// MayBeEmpty has Read return a file without rules for a directory without a file.
	MayBeEmpty bool
}

// Read reads the files, in the order of their names. A directory without a file is an error, unless
// MayBeEmpty.
//
// A mounted ConfigMap is read in one version, as by the function Read. Any other directory is read until two
// readings in a row agree.
func (e *EnvoyFiles) Read() ([]File, error) {
	files, err := readSettled(e.Path, e.list)
	if err == nil && len(files) == 0 {
		return []File{{Name: e.Path, Data: []byte("rules: []")}}, nil
	}
	for i := range files {
		files[i].Envoy, files[i].MergeDomain = true, e.MergeDomains
	}
	return files, err
}

// look returns a listing that differs if the files must be read again.
func (e *EnvoyFiles) look() (listing, error) {
	if e.Link == "" {
		return e.list()
	}
	info, err := os.Lstat(e.Link)
	if err != nil {
		return listing{}, fmt.Errorf("rules: %w", err)
	}
	if info.Mode().Type() != os.ModeSymlink {
		return e.list()
	}
	to, err := filepath.EvalSymlinks(e.Link)
	if err != nil {
		return listing{}, fmt.Errorf("rules: %w", err)
	}
	return listing{directory: to}, nil
}

func (e *EnvoyFiles) list() (listing, error) {
	s := listing{longest: MaxEnvoyFile}
	info, err := os.Stat(e.Path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", e.Path)
	}
	if err == nil {
		s.directory, s.atOnce, err = resolve(e.Path)
	}
	if err == nil {
		err = e.walk(&s, e.Path, s.directory)
	}
	if err != nil {
		return listing{}, fmt.Errorf("rules: %w", err)
	}
	if len(s.names) == 0 && !e.MayBeEmpty {
		return listing{}, fmt.Errorf("rules: directory %s: there is no file in it", e.Path)
	}
	return s, s.check(e.Path)
}

// walk adds the files of a directory to s, under the name by which the user knows it.
func (e *EnvoyFiles) walk(s *listing, name, directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if len(s.names) > maxFiles {
			return nil // check reports it
		}
		if e.IgnoreDotFiles && strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		inner, at := filepath.Join(name, entry.Name()), filepath.Join(directory, entry.Name())
		if entry.IsDir() {
			within, _, err := resolve(at) // it may be a ConfigMap of its own
			if err == nil {
				err = e.walk(s, inner, within)
			}
			if err != nil {
				return err
			}
			s.atOnce = false
			continue
		}
		info, err := os.Stat(at)
		if err != nil { // a broken link, too: its rules must not be lost silently
			return err
		}
		if info.Mode().IsRegular() {
			s.add(inner, at, info)
		}
	}
	return nil
}
