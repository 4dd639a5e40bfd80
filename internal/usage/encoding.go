package usage

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// decoding undoes an encoding. free is called when the decoded data are no longer needed.
type decoding func(*source) (decoded io.Reader, free func(), err error)

// decodings are by the names of encodings, as Content-Encoding has them.
var decodings = map[string]decoding{"gzip": gunzip, "x-gzip": gunzip, "deflate": inflate, "br": unbrotli, "zstd": unzstd}

// Decodes reports whether a Reader can read a body of this encoding, a name in Accept-Encoding.
func Decodes(encoding string) bool {
	encoding = strings.ToLower(encoding)
	return encoding == "identity" || decodings[encoding] != nil
}

// mostEncodings is how many encodings a body may have, one within the other: each of them takes
// memory.
const mostEncodings = 4

// decodingsOf returns the decodings of a Content-Encoding, in its order.
func decodingsOf(contentEncoding string) (all []decoding, err error) {
	for _, name := range Codings([]string{contentEncoding}) {
		d := decodings[strings.ToLower(name)]
		if d == nil || len(all) == mostEncodings {
			return nil, fmt.Errorf("content encoding %.60q: want gzip, deflate, br, zstd or none, at most %d of them", contentEncoding, mostEncodings)
		}
		all = append(all, d)
	}
	return all, nil
}

// A body that grows by more than mostGrowth when it is decoded is not read beyond fewDecoded bytes:
// it may be an attack.
const (
	mostGrowth = 200
	fewDecoded = 16 << 20
)

// decoded returns a function that returns the parts of s decoded by d. They end where s is
// malformed. wire is the body as it was sent: with several encodings, none may grow much beyond
// that.
func (r *Reader) decoded(d decoding, s, wire *source) (more func() []byte) {
	var from io.Reader
	var buffer []byte
	total := 0
	return func() []byte {
		if r.done {
			return nil
		}
		if from == nil {
			var free func()
			var err error
			if from, free, err = d(s); err != nil {
				r.decodingFailed(err)
				return nil
			}
			r.free = append(r.free, free)
			buffer = make([]byte, 4<<10)
		}
		for {
			n, err := from.Read(buffer)
			total += n
			if total > fewDecoded && total/mostGrowth > wire.read {
				r.fail(errors.New("the compressed body grows too much"))
				return nil
			}
			if n > 0 {
				return buffer[:n]
			}
			if err != nil {
				r.decodingFailed(err)
				return nil
			}
		}
	}
}

// decodingFailed records err unless the body has ended, perhaps early.
func (r *Reader) decodingFailed(err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		r.fail(fmt.Errorf("the compressed body cannot be read: %w", err))
	}
}

func gunzip(s *source) (io.Reader, func(), error) {
	z, err := gzip.NewReader(s)
	return z, func() {}, err
}

// inflate undoes deflate, which is zlib in the standard and often without its header in
// practice. It does not check the sum at the end.
func inflate(s *source) (io.Reader, func(), error) {
	first, err := s.ReadByte()
	if err != nil {
		return nil, nil, err
	}
	second, err := s.ReadByte()
	if err != nil {
		return nil, nil, err
	}
	const dictionary = 0x20
	if !isZlib(first, second) || second&dictionary != 0 {
		s.back = append(s.back, first, second)
	}
	return flate.NewReader(s), func() {}, nil
}

// isZlib reports whether data with these first bytes has the zlib header.
func isZlib(first, second byte) bool {
	const deflated = 8
	return first&0xf == deflated && (int(first)<<8|int(second))%31 == 0
}

var brotliReaders = sync.Pool{New: func() any { return brotli.NewReader(nil) }}

// unbrotli takes as much memory as the window that the body asks for, at most 16 MiB.
func unbrotli(s *source) (io.Reader, func(), error) {
	b := brotliReaders.Get().(*brotli.Reader)
	err := b.Reset(s)
	return b, func() {
		if b.Reset(nil) == nil {
			brotliReaders.Put(b)
		}
	}, err
}

// mostWindow is the largest window of zstd, by RFC 9659.
const mostWindow = 8 << 20

// zstdDecoders are pooled, because a decoder allocates its window at once. With a concurrency of
// one they have no goroutines.
var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow))
	if err != nil {
		panic(err) // the options are wrong
	}
	return d
}}

func unzstd(s *source) (io.Reader, func(), error) {
	d := zstdDecoders.Get().(*zstd.Decoder)
	err := d.Reset(s)
	return d, func() {
		if d.Reset(nil) == nil {
			zstdDecoders.Put(d)
		}
	}, err
}
