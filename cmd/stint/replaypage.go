package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/cmd/stint/internal/replaypage"
)

// canWrite finds out before a log is read, which may take long, that a file cannot be made.
func (r *replayed) canWrite() error {
	if r.suggested != "" {
		if r.html != "" && filepath.Clean(r.suggested) == filepath.Clean(r.html) {
			return errUsage{errors.New("--suggested and --html want different files")}
		}
		if _, err := onlyFile(r.rules); err != nil {
			return err
		}
	}
	return cmp.Or(absent("--suggested", r.suggested), absent("--html", r.html))
}

// absent says why a flag's file cannot be made. An empty path is no file.
func absent(flag, path string) error {
	switch path {
	case "":
		return nil
	case "-":
		return errUsage{fmt.Errorf("%s: want a file: standard output has the report", flag)}
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", flag, &fs.PathError{Op: "create", Path: path, Err: syscall.EEXIST})
	}
	in := filepath.Dir(path)
	if info, err := os.Stat(in); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s: %s is not a directory", flag, in)
	}
	return nil
}

// writeNew writes a file, which must not be there. If it cannot be written whole, it is not there afterwards.
func writeNew(path string, data []byte) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	if err = cmp.Or(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// writePage writes the page of a report to a file, which must not be there.
func writePage(path string, report *replay.Report) error {
	var page bytes.Buffer
	if err := replaypage.Write(&page, report); err != nil {
		return err
	}
	return writeNew(path, page.Bytes())
}
