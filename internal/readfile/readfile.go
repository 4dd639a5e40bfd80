// Package readfile reads configured files that others may replace at any time, with any
// content.
package readfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// patience is how long a pipe, or another file that is not regular, may take to end.
const patience = 10 * time.Second

// UpTo reads at most most bytes. It does not wait for a pipe's writer, and reads from a pipe for at
// most 10 seconds. A pipe without data is an error, as is a directory.
func UpTo(path string, most int64) ([]byte, error) { return upTo(path, most, patience) }

func upTo(path string, most int64, patience time.Duration) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe waits for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		// Files without deadlines, such as /dev/null, do not block.
		_ = f.SetReadDeadline(time.Now().Add(patience))
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s: it is not a regular file, and its text does not end within %s", path, patience)
	case err != nil:
		return nil, err
	case len(data) == 0 && info.Mode()&fs.ModeNamedPipe != 0:
		return nil, fmt.Errorf("%s: it is a pipe that nobody writes to", path)
	}
	return data, nil
}
