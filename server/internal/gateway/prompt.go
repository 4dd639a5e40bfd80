package gateway

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/usage"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/rules"
)

// maxPrompt is the most bytes of a request's body that are read for tokens, and also the most after decoding.
// OpenAI takes 50 MB, Anthropic 32 MB and Gemini 20 MB.
const maxPrompt = 64 << 20

// prompt is a body as read for tokens: leniently, because the response has the count that matters. It is read
// as a stream, and only an outline of it is kept.
type prompt struct {
	scanned bool           // what follows is known
	outline *usage.Outline // nil: there is no body, or it cannot be read
	wrong   error          // why it cannot be read
	size    rules.Prompt
	codings []string // in which it came
	wide    bool     // it came in UTF-16 or UTF-32
}

// Prompt is for rules.Body.
func (b *body) Prompt() rules.Prompt {
	b.scan()
	return b.prompt.size
}

// Field is for rules.Body.
func (b *body) Field(path []string) (value any, ok bool, err error) {
	if b.scan(); b.prompt.outline == nil {
		return nil, false, b.prompt.wrong
	}
	return fieldOf(b.prompt.outline, path)
}

func fieldOf(o *usage.Outline, path []string) (value any, ok bool, err error) {
	value, ok, err = o.Lookup(path)
	return value, ok, orUnreadable(err)
}

// orUnreadable returns err in the form of rules.Body's errors.
func orUnreadable(err error) error {
	for _, known := range []error{nil, rules.ErrTwice, rules.ErrCase, rules.ErrTooLarge, rules.ErrUnreadable} {
		if errors.Is(err, known) {
			return err
		}
	}
	return unreadable("%w", err)
}

// Each is for rules.Body. It reads the body once more.
func (b *body) Each(path []string, f func(rules.Lookup) error) error {
	if _, ok, err := b.Field(path); err != nil || !ok {
		return err
	}
	again := b.again()
	again.read = nil
	text, err := b.decoded(again)
	if err != nil {
		return unreadable("%w", err)
	}
	return orUnreadable(usage.ReadElements(text, min(b.filled(), door.BufferSize), path, func(o *usage.Outline) error {
		return f(func(path []string) (any, bool, error) { return fieldOf(o, path) })
	}))
}

// passed is the Prompt of a forwarded body, as far as rules have looked at it.
func (b *body) passed() rules.Prompt {
	if b.prompt.scanned {
		return b.prompt.size
	}
	return rules.Prompt{Text: max(b.request.ContentLength, int64(len(b.data)))}
}

// scan reads the body for tokens.
func (b *body) scan() {
	p := &b.prompt
	if p.scanned {
		return
	}
	p.scanned = true
	if !b.begin() {
		return
	}
	p.codings = usage.Codings(b.request.Header["Content-Encoding"])
	if p.wrong = b.readPrompt(); p.wrong == nil {
		p.wrong = b.outline()
	}
	switch {
	case b.failed != nil:
		p.wrong = b.failed
	case p.outline != nil:
		p.size = rules.Prompt{Text: p.outline.Text, Media: p.outline.Media}
	case p.wrong != nil:
		p.size = b.unreadPrompt()
	}
}

// readPrompt reads all of a body that may be JSON. It returns why the body cannot be read.
func (b *body) readPrompt() error {
	charset := charsetOf(b.request.Header)
	_, coded := usage.Decode(nil, b.prompt.codings, 0)
	switch {
	case coded != nil:
		return unreadable("%w", coded)
	case b.request.ContentLength > maxPrompt:
		return errVeryLongBody
	case !usage.ReadableCharset(charset):
		return errCharset
	}
	b.fill(1)
	first := b.head.Bytes()
	switch {
	case b.failed != nil || len(first) == 0:
		return b.failed
	case len(b.prompt.codings) > 0:
	case isForm(b.request.Header) && first[0] == '-':
		return errNoJSON
	case first[0] >= 0xef || first[0] == 0 && strings.HasPrefix(charset, "utf-"): // perhaps a byte order mark, or UTF-16
	case !beginsAsJSON(first):
		return errNoJSON
	}
	if b.fill(maxPrompt + 1); b.failed == nil && b.filled() > maxPrompt {
		return errVeryLongBody
	}
	return b.failed
}

// outline reads the bytes in memory. It returns why they cannot be read.
func (b *body) outline() error {
	length := b.filled()
	if length == 0 {
		return nil
	}
	if b.share.Take(usage.DecoderMemory(b.prompt.codings)) != nil {
		b.failed = b.g.overloadedByBytes()
		return b.failed
	}
	again := b.again()
	again.read = nil
	text, err := b.decoded(again)
	if err == nil {
		b.prompt.outline, err = usage.ReadOutline(text, min(length, door.BufferSize))
	}
	if err != nil {
		return unreadable("%w", err)
	}
	if kept := b.prompt.outline.Bytes(); max(length, b.prompt.outline.Len) > door.SmallBody && b.values.Take(kept) != nil {
		b.prompt.outline = nil
		b.failed = b.g.overloadedByBytes()
	}
	return b.failed
}

// decoded returns a body without content codings, in UTF-8 or in a charset that contains ASCII.
func (b *body) decoded(from io.Reader) (text io.Reader, err error) {
	if text, err = usage.Decode(from, b.prompt.codings, maxPrompt); err != nil {
		return nil, err
	}
	text, b.prompt.wide = usage.UTF8(text)
	return text, nil
}

// unreadPrompt is the prompt of a body that cannot be read.
func (b *body) unreadPrompt() rules.Prompt {
	length := b.request.ContentLength
	if length < 0 && b.ended {
		length = b.filled()
	}
	switch {
	case isForm(b.request.Header):
		if length < 0 {
			length = maxBody
		}
		return rules.Prompt{Media: usage.MediaTokens("multipart/form-data", length)}
	case len(b.prompt.codings) > 0:
		length = -1
	}
	return rules.Prompt{Text: length}
}

var errVeryLongBody = unreadable("it is longer than %d MiB", maxPrompt>>20)

// isForm reports whether a body is a form with files.
func isForm(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media == "multipart/form-data"
}

// charsetOf is the declared charset of a body; empty: none, or it is malformed.
func charsetOf(h http.Header) string {
	_, parameters, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return strings.ToLower(parameters["charset"])
}

// setUsage sets stream_options.include_usage in the forwarded body.
func (b *body) setUsage() {
	json := b.prompt.outline
	const all = `{"include_usage":true}`
	asked, found, err := json.Lookup([]string{"stream_options", "include_usage"})
	options, _, _ := json.Lookup([]string{"stream_options"})
	_, isObject := options.(map[string]any)
	from, to, empty, ok := json.Span([]string{"stream_options"})
	switch {
	case asked == true, errors.Is(err, rules.ErrTwice), errors.Is(err, rules.ErrCase):
	case found:
		from, to, _, _ := json.Span([]string{"stream_options", "include_usage"})
		b.replace(from, to, "true")
	case err == nil && isObject && !empty:
		b.replace(from+1, from+1, `"include_usage":true,`)
	case ok:
		b.replace(from, to, all)
	default:
		b.replace(json.Start(), json.Start(), `"stream_options":`+all+`,`)
	}
}

// replace replaces a part of the forwarded body by text. The body is forwarded without content codings, and
// in UTF-8 if it came in UTF-16 or UTF-32. It is decoded again as it passes, so that it is in memory once.
func (b *body) replace(from, to int64, text string) {
	in, err := b.decoded(b.again())
	if err != nil {
		return // it was decoded before
	}
	b.request.Body = &replayed{io.MultiReader(io.LimitReader(in, from), strings.NewReader(text), &skipping{in, to - from}, b.rest), b.rest} // the last for the trailers
	h := b.request.Header
	for _, digest := range []string{"Content-Digest", "Content-Md5", "Digest", "Repr-Digest"} { // of what came
		delete(h, digest)
		delete(b.request.Trailer, digest)
	}
	if len(b.prompt.codings) > 0 {
		delete(h, "Content-Encoding")
	}
	if b.prompt.wide && charsetOf(h) != "" {
		media, parameters, _ := mime.ParseMediaType(h.Get("Content-Type"))
		parameters["charset"] = "utf-8"
		h.Set("Content-Type", mime.FormatMediaType(media, parameters))
	}
	if b.request.ContentLength >= 0 {
		b.request.ContentLength = b.prompt.outline.Len + int64(len(text)) - (to - from)
		h["Content-Length"] = []string{strconv.FormatInt(b.request.ContentLength, 10)}
	}
}

// skipping is a reader without its first bytes.
type skipping struct {
	io.Reader
	n int64
}

// Read is for io.Reader.
func (s *skipping) Read(p []byte) (int, error) {
	for s.n > 0 {
		n, err := s.Reader.Read(p[:min(int64(len(p)), s.n)])
		if s.n -= int64(n); err != nil {
			return 0, fmt.Errorf("the body cannot be changed: %w", err)
		}
	}
	return s.Reader.Read(p)
}
