package usage

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// medium is a kind of data other than text, with an estimate of its tokens: the bytes per token, and the
// least and most tokens.
type medium struct {
	kind        string // prefix of its media type
	bytes       int64
	least, most int64 // most is 0: any number
}

// media are the kinds; the last is for all others. They are estimates, because sizes of pictures and
// lengths of recordings are not read: the response has the true number.
//
// A picture: OpenAI counts 85 tokens and 170 for each tile of 512 pixels, which comes to about 1,445 at
// most; Anthropic a token for 750 pixels, up to about 1,600 (1.15 megapixels); Gemini 258 for a tile of
// 768 pixels. A JPEG has about half a byte for a pixel, so that 375 bytes are 750 pixels.
//
// A recording: Gemini counts 32 tokens a second, which is 16,000 bytes at 128 kbit/s. A film: 258 a
// picture a second and its sound, which is about 300,000 bytes at 2.4 Mbit/s.
//
// A page of a PDF is 1,500 to 3,000 tokens with Anthropic, and takes about 100 kB.
var media = []medium{
	{"image/", 375, 85, 1600},
	{"audio/", 500, 1, 0},
	{"video/", 1000, 1, 0},
	{"application/pdf", 40, 1, 0},
	{"multipart/form-data", 500, 1, 0}, // mostly recordings
	{"", 40, 1, 0},
}

// MediaTokens estimates the tokens of data with this media type and size in bytes.
func MediaTokens(kind string, size int64) int64 {
	for _, m := range media {
		if strings.HasPrefix(kind, m.kind) {
			n := max(size/m.bytes, m.least)
			if m.most > 0 {
				n = min(n, m.most)
			}
			return n
		}
	}
	return 0 // the last kind matches all
}

// magics are the bytes that identify kinds of data, at an offset.
var magics = []struct {
	from        int
	magic, kind string
}{
	{0, "\x89PNG\r\n\x1a\n", "image/png"},
	{0, "\xff\xd8\xff", "image/jpeg"},
	{0, "GIF8", "image/gif"},
	{8, "WEBP", "image/webp"},
	{0, "II*\x00", "image/tiff"},
	{0, "MM\x00*", "image/tiff"},
	{4, "ftyphei", "image/heic"},
	{4, "ftypmif1", "image/heic"},
	{4, "ftypavi", "image/avif"},
	{4, "ftypM4A", "audio/mp4"},
	{4, "ftyp", "video/mp4"},
	{0, "\x1aE\xdf\xa3", "video/webm"},
	{8, "AVI ", "video/avi"},
	{8, "WAVE", "audio/wav"},
	{0, "ID3", "audio/mpeg"},
	{0, "\xff\xfb", "audio/mpeg"},
	{0, "\xff\xf3", "audio/mpeg"},
	{0, "\xff\xf2", "audio/mpeg"},
	{0, "\xff\xf1", "audio/aac"},
	{0, "\xff\xf9", "audio/aac"},
	{0, "OggS", "audio/ogg"},
	{0, "fLaC", "audio/flac"},
	{0, "%PDF-", "application/pdf"},
}

// mediaHead is how much of a string is kept to tell whether it is data. A shorter string is text.
const mediaHead = 256

// stringReader counts the characters of a JSON string as they pass, and checks whether they are base64
// data.
type stringReader struct {
	head [mediaHead]byte
	n    int    // of head
	kind string // of the data
	data int64  // characters of base64
	text bool   // it is not data
}

func (s *stringReader) reset() { s.n, s.kind, s.data, s.text = 0, "", 0, false }

// add passes some characters.
func (s *stringReader) add(p []byte) {
	if s.text {
		return
	}
	if s.n < mediaHead {
		n := copy(s.head[s.n:], p)
		if s.n, p = s.n+n, p[n:]; s.n < mediaHead {
			return
		}
		kind, data, ok := dataOf(s.head[:])
		if s.kind, s.text = kind, !ok; s.text {
			return
		}
		s.count(data)
	}
	s.count(p)
}

// isBase64 has the characters of both alphabets; skipped has those that may stand between.
var isBase64, isSkipped = setOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"), setOf("=\r\n")

func setOf(chars string) (set [256]bool) {
	for _, c := range []byte(chars) {
		set[c] = true
	}
	return set
}

// count counts characters of base64. If there are others, the whole string is text.
func (s *stringReader) count(p []byte) {
	n := int64(0)
	for _, c := range p {
		if isBase64[c] {
			n++
		} else if !isSkipped[c] {
			s.text = true
			return
		}
	}
	s.data += n
}

// size returns the kind of the data and its bytes; not ok: the string is text.
func (s *stringReader) size() (kind string, size int64, ok bool) {
	return s.kind, s.data * 3 / 4, s.n == mediaHead && !s.text
}

// dataOf is the media type of the data that a string begins with, and where the data begins; not ok: it is
// text.
func dataOf(head []byte) (kind string, data []byte, ok bool) {
	if len(head) > 5 && strings.EqualFold(string(head[:5]), "data:") {
		declared, data, _ := bytes.Cut(head[5:], []byte(","))
		kind, ok := strings.CutSuffix(strings.ToLower(string(declared)), ";base64")
		kind, _, _ = strings.Cut(kind, ";")
		return kind, data, ok
	}
	const first = 24 // a whole number of bytes
	var raw [first]byte
	n, err := base64.StdEncoding.Decode(raw[:], standard(head[:first]))
	if err != nil {
		return "", nil, false
	}
	for _, m := range magics {
		if bytes.HasPrefix(raw[m.from:n], []byte(m.magic)) {
			return m.kind, head, true
		}
	}
	return "", nil, false
}

// standard is base64 in the standard alphabet.
func standard(text []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("-"), []byte("+")), []byte("_"), []byte("/"))
}
