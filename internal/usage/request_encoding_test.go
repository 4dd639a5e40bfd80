package usage_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/stintdev/stint/internal/usage"
)

// coders are keyed by content coding.
var coders = map[string]func(io.Writer) io.WriteCloser{
	"gzip":     func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"X-GZIP":   func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate":  func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"deflate ": func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 5); return f },
	"br":       func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 4) },
	"zstd":     func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
}

func coded(b []byte, coding string) []byte {
	var out bytes.Buffer
	w := coders[coding](&out)
	_, _ = w.Write(b)
	w.Close()
	return out.Bytes()
}

// What was coded is decoded, by one coding or several, and nothing else is.
func TestDecode(t *testing.T) {
	text := []byte(strings.Repeat(`{"stream": true, "messages": ["abc"]}`, 5000))
	decode := func(b []byte, most int64, codings ...string) (string, error) {
		r, err := usage.Decode(bytes.NewReader(b), codings, most)
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(r)
		return string(got), err
	}
	for one := range coders {
		b := coded(text, one)
		if got, err := decode(b, 1<<20, one); err != nil || got != string(text) {
			t.Errorf("%s: %d bytes, %v", one, len(got), err)
		}
		for name, bad := range map[string][]byte{"cut": b[:len(b)-5], "with more": append(b[:len(b):len(b)], "xyzzy"...), "plain": text} {
			if got, err := decode(bad, 1<<20, one); err == nil {
				t.Errorf("%s, %s: %d bytes", one, name, len(got))
			}
		}
		if _, err := decode(b, 1000, one); err == nil || !strings.Contains(err.Error(), "longer") {
			t.Errorf("%s, too long: %v", one, err)
		}
		bomb := coded(make([]byte, 40<<20), one)
		if _, err := decode(bomb, 64<<20, one); err == nil || !strings.Contains(err.Error(), "grows") {
			t.Errorf("%s: a bomb of %d bytes: %v", one, len(bomb), err)
		}
		for two := range coders {
			if got, err := decode(coded(b, two), 1<<20, one, two); err != nil || got != string(text) {
				t.Errorf("%s, %s: %d bytes, %v", one, two, len(got), err)
			}
		}
	}
	for _, codings := range [][]string{{"compress"}, {""}, {"gzip", "gzip", "gzip", "gzip"}} {
		if _, err := decode(text, 1<<20, codings...); err == nil {
			t.Errorf("%q was decoded", codings)
		}
	}
	if got := usage.Codings([]string{"gzip, identity", " br ,,"}); strings.Join(got, " ") != "gzip br" {
		t.Errorf("%q", got)
	}
}

// What cannot be decoded is no JSON, however often it is read, and does no harm.
func TestOutlineOfDamaged(t *testing.T) {
	for one := range coders {
		b := coded([]byte(`{"stream": true, "messages": ["abc"]}`), one)
		for cut := range b {
			r, err := usage.Decode(bytes.NewReader(b[:cut]), []string{one}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := usage.UTF8(r)
			if o, err := usage.ReadOutline(text, 100); err == nil {
				t.Errorf("%s, %d bytes of %d: %v", one, cut, len(b), o)
			}
			if n, err := r.Read(make([]byte, 10)); n > 0 || err == nil {
				t.Errorf("%s, %d bytes of %d: %d more, %v", one, cut, len(b), n, err)
			}
		}
	}
}

// JSON in UTF-16 and UTF-32 becomes UTF-8, with a byte order mark or without, and all else stays.
func TestUTF8(t *testing.T) {
	const text = `{"stream": true, "a": "ä€𝄞"}`
	wide := map[string]encoding.Encoding{}
	for name, mark := range map[string]unicode.BOMPolicy{"": unicode.IgnoreBOM, ", marked": unicode.UseBOM} {
		wide["UTF-16LE"+name], wide["UTF-16BE"+name] = unicode.UTF16(unicode.LittleEndian, mark), unicode.UTF16(unicode.BigEndian, mark)
	}
	for name, mark := range map[string]utf32.BOMPolicy{"": utf32.IgnoreBOM, ", marked": utf32.UseBOM} {
		wide["UTF-32LE"+name], wide["UTF-32BE"+name] = utf32.UTF32(utf32.LittleEndian, mark), utf32.UTF32(utf32.BigEndian, mark)
	}
	for name, e := range wide {
		b, err := e.NewEncoder().String(text)
		if err != nil {
			t.Fatal(name, err)
		}
		r, changed := usage.UTF8(strings.NewReader(b))
		if got, err := io.ReadAll(r); !changed || err != nil || string(got) != text {
			t.Errorf("%s: %q, %t, %v", name, got, changed, err)
		}
	}
	latin, _ := charmap.ISO8859_1.NewEncoder().String(`{"a": "ä"}`)
	for _, same := range []string{text, latin, "\ufeff" + text, "", "{}", "[1"} {
		r, changed := usage.UTF8(strings.NewReader(same))
		if got, err := io.ReadAll(r); changed || err != nil || string(got) != same {
			t.Errorf("%q: %q, %t, %v", same, got, changed, err)
		}
	}
	for name, want := range map[string]bool{"": true, "UTF-8": true, "utf-16le": true, "ISO-8859-15": true, "windows-1252": true, "shift_jis": false, "gbk": false, "utf-7": false, "ibm037": false} {
		if usage.ReadableCharset(name) != want {
			t.Errorf("%s: readable %t", name, !want)
		}
	}
}

// A decoder takes no more memory than what is reckoned for it, whatever window is declared.
func TestDecoderMemory(t *testing.T) {
	text := make([]byte, 24<<20)
	for i, x := 0, uint32(1); i < len(text); i++ {
		x = x*1664525 + 1013904223
		text[i] = byte(x >> 24)
	}
	for coding, b := range map[string][]byte{
		"gzip": coded(text, "gzip"),
		"br": func() []byte {
			var out bytes.Buffer
			w := brotli.NewWriterOptions(&out, brotli.WriterOptions{Quality: 2, LGWin: 24})
			_, _ = w.Write(text)
			w.Close()
			return out.Bytes()
		}(),
		"zstd": func() []byte {
			z, _ := zstd.NewWriter(nil, zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
			return z.EncodeAll(text, nil)
		}(),
	} {
		before := inUse()
		r, err := usage.Decode(bytes.NewReader(b), []string{coding}, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyN(io.Discard, r, 20<<20); err != nil {
			t.Fatal(coding, n, err)
		}
		took, most := inUse()-before, usage.DecoderMemory([]string{coding})
		if t.Logf("%s takes %d, at most %d", coding, took, most); took > most {
			t.Errorf("%s takes %d, want at most %d", coding, took, most)
		}
		_, _ = r.Read(make([]byte, 1))
	}
}
