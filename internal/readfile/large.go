package readfile

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Large is a file that is too large to be read every few seconds only to see whether it has changed. It is
// read again if its size, its time or the file behind its name has changed: a file that replaces it by a
// rename, or by a swapped link, is another one. What is not a regular file is always read.
type Large struct {
	Path string
	// Most is the most bytes that it may have.
	Most int64

	info   fs.FileInfo // of the last reading; nil: it must be read
	seen   [sha256.Size]byte
	failed string // the error of the last reading
}

// tick is how long after its last change a file may change again with the same time. File systems differ; the
// coarsest have 2 seconds.
const tick = 4 * time.Second

// Read returns the contents, or why they cannot be read, and whether they differ from the last reading. If it
// sees that the file has not changed, it does not read it, and returns nothing, unless always is true.
func (f *Large) Read(always bool) (data []byte, changed bool, err error) {
	info, err := os.Stat(f.Path)
	if err == nil && !always && f.same(info) {
		return nil, false, nil
	}
	f.info = nil
	read := time.Now()
	if err == nil {
		data, err = UpTo(f.Path, f.Most+1)
	}
	if err == nil && int64(len(data)) > f.Most {
		data, err = nil, fmt.Errorf("%s: larger than %d MiB", f.Path, f.Most>>20)
	}
	if err != nil {
		changed = err.Error() != f.failed
		f.failed = err.Error()
		return nil, changed, err
	}
	digest := sha256.Sum256(data)
	changed = digest != f.seen || f.failed != ""
	f.seen, f.failed = digest, ""
	if info.Mode().IsRegular() && info.ModTime().Before(read.Add(-tick)) {
		f.info = info
	}
	return data, changed, nil
}

func (f *Large) same(info fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime())
}
