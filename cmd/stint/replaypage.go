package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/cmd/stint/internal/replaypage"
)

// absent finds out before a log is read, which may take long, that a flag's file cannot be made. An empty path is
// no file.
func absent(flag, path string) error {
	if path == "" {
		return nil
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

// writeNew writes a file, which must not be there.
func writeNew(path string, data []byte) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return errors.Join(err, out.Close())
}

// writePage writes the page of a report to a file, which must not be there.
func writePage(path string, report *replay.Report) error {
	var page bytes.Buffer
	if err := replaypage.Write(&page, report); err != nil {
		return err
	}
	return writeNew(path, page.Bytes())
}
