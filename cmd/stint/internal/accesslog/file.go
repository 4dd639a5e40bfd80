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

// findFiles returns the files at paths, each once.
func findFiles(paths []string, o Options) (files []*file, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	var known []fs.FileInfo
	const day = 24 * 3600 * second
	add := func(path string, info fs.FileInfo, inDir bool) {
		for _, k := range known {
			if os.SameFile(k, info) {
				return
			}
		}
		known = append(known, info)
		files = append(files, &file{path: path, size: info.Size(), latest: info.ModTime().UnixMicro() + day, inDir: inDir})
	}
	for _, path := range paths {
		if path == "-" && slices.ContainsFunc(files, func(f *file) bool { return f.path == "-" }) {
			continue
		}
		if path == "-" {
			files = append(files, &file{path: path, stream: io.NopCloser(o.Stdin), latest: o.Now.UnixMicro() + day})
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return files, err
		}
		switch {
		case info.Mode().IsRegular():
			add(path, info, false)
		case info.IsDir():
			entries, err := os.ReadDir(path)
			if err != nil {
				return files, err
			}
			for _, e := range entries {
				name := filepath.Join(path, e.Name())
				if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
					add(name, info, true)
				}
			}
		default:
			pipe, err := os.Open(path)
			if err != nil {
				return files, err
			}
			files = append(files, &file{path: path, stream: pipe, latest: o.Now.UnixMicro() + day})
		}
	}
	if len(files) == 0 {
		return nil, errors.New("there is no file to read")
	}
	return files, nil
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
