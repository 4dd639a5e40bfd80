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
	// MaxFiles is how many files a directory of rules may have.
	MaxFiles = 1_000
	// maxTogether is how much they may hold, in bytes. Without it, those that are
	// each small enough could fill the memory.
	maxTogether = 64 << 20
	// mostReadings is how often a directory that keeps changing is read.
	mostReadings = 10
)

// Read reads the file at path or, where that is a directory, all regular files
// directly in it whose names end in .yaml or .yml and do not begin with a dot, by
// any links, in the order of their names. A directory without any is an error.
//
// Files of a directory go together: where it is a mounted ConfigMap (it has a link
// ..data, through which Kubernetes replaces all files at once), they are of one
// version of it, and what else lies there is not looked at. Elsewhere it is read
// until two readings in a row agree, which catches most of an update under way and
// cannot catch all: replace several files by swapping a link to their directory.
func Read(path string) ([]File, error) {
	var last error
	for range mostReadings {
		at, err := look(path)
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
		again, err := look(path)
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
		last = fmt.Errorf("rules: %s: it changes all the time, so that no two readings of it agree", path)
	}
	return nil, last
}

func sameFiles(a, b []File) bool {
	return slices.EqualFunc(a, b, func(a, b File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) })
}

// sight is what lies at a path, not yet read.
type sight struct {
	// directory is where the files lie, by no links; empty: path is a file.
	directory string
	// atOnce means that a change of any file is one of directory.
	atOnce bool
	// names are the files', as the user knows them, and infos theirs.
	names []string
	infos []os.FileInfo
}

// look finds the files at path.
func look(path string) (sight, error) {
	info, err := os.Stat(path)
	if err != nil {
		return sight{}, fmt.Errorf("rules: %w", err)
	}
	if !info.IsDir() {
		return sight{names: []string{path}, infos: []os.FileInfo{info}}, nil
	}
	s := sight{atOnce: true}
	s.directory, err = filepath.EvalSymlinks(filepath.Join(path, "..data"))
	if errors.Is(err, fs.ErrNotExist) {
		s.atOnce = false
		s.directory, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return sight{}, fmt.Errorf("rules: %w", err)
	}
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return sight{}, fmt.Errorf("rules: %w", err)
	}
	together := int64(0)
	for _, e := range entries {
		if !isRulesName(e.Name()) {
			continue
		}
		info, err := os.Stat(filepath.Join(s.directory, e.Name()))
		if err != nil { // a link to nowhere, too: its rules must not be lost silently
			return sight{}, fmt.Errorf("rules: %w", err)
		}
		if info.Mode().IsRegular() {
			s.names, s.infos = append(s.names, filepath.Join(path, e.Name())), append(s.infos, info)
			together += info.Size()
		}
	}
	switch {
	case len(s.names) == 0:
		return sight{}, fmt.Errorf("rules: directory %s: no file in it ends in .yaml or .yml", path)
	case len(s.names) > MaxFiles:
		return sight{}, fmt.Errorf("rules: directory %s: %d files: at most %d", path, len(s.names), MaxFiles)
	case together > maxTogether:
		return sight{}, fmt.Errorf("rules: directory %s: its files have %d bytes together: at most %d", path, together, maxTogether)
	}
	return s, nil
}

func isRulesName(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

// same tells whether nothing seems to have changed since t was seen.
func (s *sight) same(t *sight) bool {
	return s.directory == t.directory && slices.Equal(s.names, t.names) &&
		slices.EqualFunc(s.infos, t.infos, func(a, b os.FileInfo) bool {
			return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
		})
}

func (s *sight) read() ([]File, error) {
	files := make([]File, 0, len(s.names))
	for _, name := range s.names {
		path := name
		if s.directory != "" {
			path = filepath.Join(s.directory, filepath.Base(name))
		}
		data, err := read(path)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, data})
	}
	return files, nil
}

// read reads no more of a file than shows that it is too large.
func read(path string) ([]byte, error) {
	data, err := readfile.UpTo(path, yamlnode.MaxFile+1)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return data, nil
}
