package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// file is one of a Log's.
type file struct {
	path   string
	size   int64 // 0: it is no regular file
	latest int64 // µs since 1970 that times without a year do not exceed
	inDir  bool  // it was found in a directory that was given
	stream io.ReadCloser
}

// isPipe reports whether the file can be read but once.
func (f *file) isPipe() bool { return f.stream != nil }

// findFiles returns the files at paths, and in directories there, each once.
func findFiles(paths []string, o Options) ([]*file, error) {
	f := &finder{pipe: o.Pipe, latest: o.Now.UnixMicro() + day, known: map[look][]fs.FileInfo{}}
	for i, path := range paths {
		if path == "-" && slices.Contains(paths[:i], "-") {
			continue
		}
		if err := f.find(path, o.Stdin); err != nil {
			closeAll(f.files)
			return nil, err
		}
	}
	if len(f.files) == 0 {
		return nil, errors.New("there is no file to read")
	}
	return f.files, nil
}

const day = 24 * 3600 * second

// finder finds files.
type finder struct {
	files  []*file
	latest int64 // of what is no regular file
	known  map[look][]fs.FileInfo
	pipe   func(io.Reader) io.Reader
}

// look is what files must share to be one.
type look struct{ size, changed int64 }

func (f *finder) find(path string, stdin io.Reader) error {
	if path == "-" {
		f.files = append(f.files, &file{path: path, stream: io.NopCloser(stdin), latest: f.latest})
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		f.add(path, info, false)
		return nil
	case info.IsDir():
		return f.inDir(path + string(filepath.Separator)) // also if it is a link
	}
	pipe, err := os.Open(path)
	if err == nil {
		f.files = append(f.files, &file{path: path, stream: stream{f.pipe(pipe), pipe}, latest: f.latest})
	}
	return err
}

// inDir finds the files of a directory and of those in it, but not behind links to directories.
func (f *finder) inDir(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path != dir: // it will be skipped, and named
			f.files = append(f.files, &file{path: path, inDir: true})
			return fs.SkipDir
		case err != nil || e.IsDir():
			return err
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			f.add(path, info, true)
		}
		return nil
	})
}

func (f *finder) add(path string, info fs.FileInfo, inDir bool) {
	as := look{info.Size(), info.ModTime().UnixMicro()}
	if slices.ContainsFunc(f.known[as], func(k fs.FileInfo) bool { return os.SameFile(k, info) }) {
		return
	}
	f.known[as] = append(f.known[as], info)
	f.files = append(f.files, &file{path: path, size: info.Size(), latest: as.changed + day, inDir: inDir})
}

// stream is a pipe that is read through another reader.
type stream struct {
	io.Reader
	io.Closer
}

func closeAll(files []*file) {
	for _, f := range files {
		if f.stream != nil {
			f.stream.Close()
		}
	}
}

// content is the text of a file, without its compression.
type content struct {
	io.Reader
	close func() error
}

// open opens a file. How many bytes are read is added to count; nil: it is not.
func (f *file) open(count *atomic.Int64) (*content, error) {
	from := f.stream
	if from == nil {
		opened, err := os.Open(f.path)
		if err != nil {
			return nil, err
		}
		from = opened
	}
	c, err := decompress(bufio.NewReaderSize(&counter{from, count}, 64<<10))
	if err != nil {
		from.Close()
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	inner := c.close
	c.close = func() error {
		inner()
		return from.Close()
	}
	return c, nil
}

// counter counts the bytes that are read; count may be nil.
type counter struct {
	io.Reader
	count *atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.count != nil {
		c.count.Add(int64(n))
	}
	return n, err
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// mostWindow bounds the memory that a zstd file may ask for.
const mostWindow = 128 << 20

// decompress recognises a compressed text by its first bytes.
func decompress(r *bufio.Reader) (*content, error) {
	first, err := r.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(first, gzipMagic):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return &content{Reader: z, close: z.Close}, nil
	case bytes.HasPrefix(first, zstdMagic):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return &content{Reader: z, close: func() error { z.Close(); return nil }}, nil
	}
	return &content{Reader: r, close: func() error { return nil }}, nil
}
