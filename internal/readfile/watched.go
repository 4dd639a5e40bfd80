package readfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// Watched are small files that belong together. Their contents show whether they have changed, not
// their times: Kubernetes swaps a link two directories up, and a pair may be written within one tick.
type Watched struct {
	Paths []string
	seen  [sha256.Size]byte // of the last contents; a digest, because they may be secret
}

// MaxSize is the size of the largest file that is read, in bytes.
const MaxSize = 1 << 20

// Read returns the contents of each file, or why one cannot be read, and whether they differ from
// the last reading.
func (f *Watched) Read() (contents [][]byte, changed bool, err error) {
	digest := sha256.New()
	var errs []error
	for _, path := range f.Paths {
		data, err := readSmall(path)
		if err != nil {
			errs = append(errs, err)
		}
		fmt.Fprintf(digest, "%d %v\n", len(data), err)
		digest.Write(data)
		contents = append(contents, data)
	}
	before := f.seen
	digest.Sum(f.seen[:0])
	return contents, f.seen != before, errors.Join(errs...)
}

func readSmall(path string) ([]byte, error) {
	data, err := UpTo(path, MaxSize+1)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%s: larger than 1 MiB", path)
	}
	return data, nil
}
