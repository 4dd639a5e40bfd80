package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/internal/yamlnode"
)

const (
	maxFiles = 1_000
	// maxTogether bounds the bytes of all files together.
	maxTogether = 64 << 20
	// mostReadings bounds the readings of a directory that keeps changing.
	mostReadings = 10
)

// File is a file of rules, as read: its Data, and a Name for errors.
type File struct {
	Name string
	Data []byte
	// Envoy means that the file is one of Envoy's rate limit service: a domain and descriptors.
	Envoy bool
	// MergeDomain lets several files of Envoy's form have one domain.
	MergeDomain bool
}

// Read reads the file at path or, if that is a directory, all regular files directly in it
// whose names end in .yaml or .yml and do not begin with a dot, in the order of their names.
// It follows links. A directory without such files is an error.
//
// A mounted ConfigMap (it has a link ..data, through which Kubernetes replaces all files at once) is read in
// one version, and other files there are ignored. Any other directory is read until two readings in a row
// agree. That detects most updates under way, but not all: to replace several files at once, swap a link to
// their directory.
func Read(path string) ([]File, error) {
	return readSettled(path, func() (listing, error) { return listFiles(path) })
}

// readSettled reads the files that list finds, again until nothing changes meanwhile.
func readSettled(path string, list func() (listing, error)) ([]File, error) {
	var last error
	for range mostReadings {
		at, err := list()
		if err != nil {
			last = err
			continue
		}
		files, err := at.read()
		if err != nil {
			last = err
			continue
		}
		if at.directory == "" {
			return files, nil
		}
		again, err := list()
		if err != nil || again.directory != at.directory {
			last = err
			continue
		}
		if at.atOnce {
			return files, nil
		}
		if second, err := again.read(); err == nil && sameFiles(files, second) {
			return files, nil
		}
		last = nil
	}
	if last == nil {
		last = fmt.Errorf("rules: %s: it keeps changing while it is read", path)
	}
	return nil, last
}

func sameFiles(a, b []File) bool {
	return slices.EqualFunc(a, b, func(a, b File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) })
}

// listing is the files at a path, not yet read.
type listing struct {
	// directory is where the files lie, with links resolved; empty: path is a file.
	directory string
	// atOnce means that a change of any file also changes directory.
	atOnce bool
	// names are the files' names as the user knows them; paths are where they lie, with links to directories
	// resolved.
	names, paths []string
	infos        []os.FileInfo
	longest      int64 // file, in bytes
}

func (s *listing) add(name, path string, info os.FileInfo) {
	s.names, s.paths, s.infos = append(s.names, name), append(s.paths, path), append(s.infos, info)
}

func listFiles(path string) (listing, error) {
	info, err := os.Stat(path)
	if err != nil {
		return listing{}, fmt.Errorf("rules: %w", err)
	}
	if !info.IsDir() {
		return listing{names: []string{path}, paths: []string{path}, infos: []os.FileInfo{info}, longest: yamlnode.MaxFile}, nil
	}
	s := listing{longest: yamlnode.MaxFile}
	s.directory, s.atOnce, err = resolve(path)
	if err != nil {
		return listing{}, fmt.Errorf("rules: %w", err)
	}
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return listing{}, fmt.Errorf("rules: %w", err)
	}
	for _, e := range entries {
		if !isRulesName(e.Name()) {
			continue
		}
		at := filepath.Join(s.directory, e.Name())
		info, err := os.Stat(at)
		if err != nil { // a broken link, too: its rules must not be lost silently
			return listing{}, fmt.Errorf("rules: %w", err)
		}
		if info.Mode().IsRegular() {
			s.add(filepath.Join(path, e.Name()), at, info)
		}
	}
	if len(s.names) == 0 {
		return listing{}, fmt.Errorf("rules: directory %s: no file in it ends in .yaml or .yml", path)
	}
	return s, s.check(path)
}

// resolve returns where the files of a directory lie, with links resolved. atOnce means that the directory is
// a mounted ConfigMap.
func resolve(path string) (directory string, atOnce bool, err error) {
	directory, err = filepath.EvalSymlinks(filepath.Join(path, "..data"))
	if errors.Is(err, fs.ErrNotExist) {
		directory, err = filepath.EvalSymlinks(path)
		return directory, false, err
	}
	return directory, true, err
}

// check bounds the files of the directory at path.
func (s *listing) check(path string) error {
	together := int64(0)
	for _, info := range s.infos {
		together += info.Size()
	}
	switch {
	case len(s.names) > maxFiles:
		return fmt.Errorf("rules: directory %s: %d files: at most %d", path, len(s.names), maxFiles)
	case together > maxTogether:
		return fmt.Errorf("rules: directory %s: its files have %d bytes together: at most %d", path, together, maxTogether)
	}
	return nil
}

func isRulesName(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

func (s *listing) same(t *listing) bool {
	return s.directory == t.directory && slices.Equal(s.names, t.names) &&
		slices.EqualFunc(s.infos, t.infos, func(a, b os.FileInfo) bool {
			return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
		})
}

func (s *listing) read() ([]File, error) {
	files := make([]File, 0, len(s.names))
	for i, name := range s.names {
		data, err := read(s.paths[i], s.longest)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: name, Data: data})
	}
	return files, nil
}

// read reads one byte more than allowed, to see that a file is too large.
func read(path string, longest int64) ([]byte, error) {
	data, err := readfile.UpTo(path, longest+1)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return data, nil
}
