package usage

import (
	"bufio"
	"compress/flate"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// maxCodings is how many codings the body of a request may have. Each is a decoder.
const maxCodings = 3

// DecoderMemory estimates the most memory that decoders of these codings take.
func DecoderMemory(codings []string) (bytes int64) {
	for _, coding := range codings {
		switch strings.ToLower(coding) {
		case "br":
			bytes += 18 << 20
		case "zstd":
			bytes += mostWindow + 2<<20
		default:
			bytes += 64 << 10
		}
	}
	return bytes
}

// NewDecoder returns a reader that decodes a content coding of from. Its Read fails if anything
// follows the coded data. The error is not nil if the name is unknown.
func NewDecoder(coding string, from io.Reader) (io.Reader, error) {
	coding = strings.ToLower(strings.TrimSpace(coding))
	open := decodings[coding]
	if coding == "deflate" {
		open = inflateWhole
	}
	if open == nil {
		return nil, fmt.Errorf("content encoding %.60q: want gzip, deflate, br or zstd", coding)
	}
	d := &decoder{open: open}
	d.in.more = partsOf(from, make([]byte, 4<<10), &d.failed)
	return d, nil
}

// decoder opens the decoder of a coding at the first Read, because opening reads from the input. An
// error is permanent.
type decoder struct {
	open   decoding
	in     source
	from   io.Reader
	free   func()
	failed error // why reading in ended
	err    error
}

// Read is for io.Reader.
func (d *decoder) Read(p []byte) (n int, err error) {
	if d.from == nil && d.err == nil {
		d.from, d.free, d.err = d.open(&d.in)
	}
	if d.err == nil {
		n, d.err = d.from.Read(p)
		if errors.Is(d.err, io.EOF) && d.in.peek() != end {
			d.err = errors.New("data follows the compressed body")
		}
	}
	if d.err != nil && d.free != nil {
		d.free()
		d.free = nil
	}
	if d.err != nil && d.failed != nil {
		d.err = d.failed
	}
	return n, d.err
}

// inflateWhole is inflate, and checks the sum at the end of the body, if there is one.
func inflateWhole(s *source) (io.Reader, func(), error) {
	first, err := s.ReadByte()
	if err != nil {
		return nil, nil, err
	}
	second, err := s.ReadByte()
	if s.back = append(s.back, first); err != nil {
		return flate.NewReader(s), func() {}, nil
	}
	if s.back = append(s.back, second); isZlib(first, second) {
		z, err := zlib.NewReader(s)
		return z, func() {}, err
	}
	return flate.NewReader(s), func() {}, nil
}

// Codings returns the content codings in the lines of a Content-Encoding, in the order in which they
// were applied.
func Codings(lines []string) (codings []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" && !strings.EqualFold(name, "identity") {
				codings = append(codings, name)
			}
		}
	}
	return codings
}

// Decode returns a reader that decodes these codings of from. It reads no more than most bytes, and
// stops if they grow too much (see mostGrowth).
func Decode(from io.Reader, codings []string, most int64) (io.Reader, error) {
	if len(codings) == 0 {
		return from, nil
	}
	if len(codings) > maxCodings {
		return nil, fmt.Errorf("it has %d content encodings, want at most %d", len(codings), maxCodings)
	}
	g := &growth{raw: &counted{Reader: from}, most: most}
	g.from = g.raw
	for i := len(codings) - 1; i >= 0; i-- {
		var err error
		if g.from, err = NewDecoder(codings[i], g.from); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// growth bounds the decoded bytes.
type growth struct {
	from       io.Reader
	raw        *counted
	most, read int64
}

// Read is for io.Reader.
func (g *growth) Read(p []byte) (int, error) {
	n, err := g.from.Read(p)
	g.read += int64(n)
	switch {
	case g.read > g.most:
		return 0, fmt.Errorf("it is longer than %d MiB", g.most>>20)
	case g.read > fewDecoded && g.read/mostGrowth > g.raw.n:
		return 0, errors.New("the compressed body grows too much")
	}
	return n, err
}

// counted counts the bytes read.
type counted struct {
	io.Reader
	n int64
}

// Read is for io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// ReadableCharset reports whether JSON in this charset can be read by its bytes: ASCII characters have
// their ASCII bytes, which are not part of other characters, or it is UTF-16 or UTF-32, which UTF8
// detects. An empty name is readable.
func ReadableCharset(name string) bool {
	switch name = strings.ToLower(name); name {
	case "", "utf8", "us-ascii", "ascii", "koi8-r", "koi8-u", "macintosh", "euc-jp", "euc-kr":
		return true
	}
	for _, family := range []string{"utf-8", "utf-16", "utf-32", "iso-8859-", "iso8859-", "latin", "windows-125", "cp125"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return false
}

// UTF8 returns a reader that converts JSON text in UTF-16 or UTF-32 to UTF-8; changed says that it
// does. Text in another charset stays as it is. JSON begins with an ASCII character, so its first zeros
// show the form (RFC 4627, 3), or with a byte order mark.
func UTF8(from io.Reader) (text io.Reader, changed bool) {
	in := bufio.NewReaderSize(from, 16)
	first, _ := in.Peek(4)
	form := wideForm(first)
	if form == nil {
		return in, false
	}
	return form.NewDecoder().Reader(in), true
}

// wideForm returns UTF-16 or UTF-32, by the first four bytes of JSON; nil: neither.
func wideForm(b []byte) encoding.Encoding {
	const (
		little16, big16 = unicode.LittleEndian, unicode.BigEndian
		little32, big32 = utf32.LittleEndian, utf32.BigEndian
	)
	zero := func(i int) bool { return b[i] == 0 }
	switch {
	case len(b) < 4:
		return nil
	case b[0] == 0xff && b[1] == 0xfe && zero(2) && zero(3), !zero(0) && zero(1) && zero(2) && zero(3):
		return utf32.UTF32(little32, utf32.UseBOM)
	case zero(0) && zero(1):
		return utf32.UTF32(big32, utf32.UseBOM)
	case b[0] == 0xff && b[1] == 0xfe, !zero(0) && zero(1):
		return unicode.UTF16(little16, unicode.UseBOM)
	case b[0] == 0xfe && b[1] == 0xff, zero(0):
		return unicode.UTF16(big16, unicode.UseBOM)
	}
	return nil
}
