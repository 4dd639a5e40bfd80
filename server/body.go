package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/usage"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/internal/inflight"
)

// maxBody is how much of the body of a request is read for rules, in bytes.
const maxBody = 1 << 20

// body is the body of a request through the gateway, as rules read it. It is read when a rule
// first looks at it, and then passes on as it came.
type body struct {
	s       *Server
	request *http.Request
	writer  http.ResponseWriter

	read   bool           // what follows is known
	share  inflight.Share // of the memory of bodies; freed returns it
	freed  sync.Once
	values inflight.Share  // the same, for values while rules look at them
	data   []byte          // all of it; nil: there is none, or it cannot be read
	json   *usage.Document // of data; nil: nothing has been looked up
	wrong  error           // why nothing can be looked up
	failed error           // why the request cannot go on
}

// brokenBody is the error of a body that did not come as its request says.
type brokenBody struct {
	status int
	detail string
}

// Error returns a text for the log.
func (b *brokenBody) Error() string { return b.detail }

// Unwrap says that the client is at fault.
func (b *brokenBody) Unwrap() error { return stint.ErrRequest }

// Refuse answers the request.
func (b *brokenBody) Refuse(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
	httplimit.Problem(w, r, b.status, b.detail)
}

var (
	errLateBody   = &brokenBody{http.StatusRequestTimeout, "The request's body did not arrive in time."}
	errBrokenBody = &brokenBody{http.StatusBadRequest, "The request's body is malformed or ends too early."}
	errLongBody   = unreadable("it is longer than %d MiB", maxBody>>20)
	errZippedBody = unreadable("it has a Content-Encoding")
	errCharset    = unreadable("its charset is not UTF-8")
	errNoJSON     = unreadable("it is no JSON")
)

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", rules.ErrUnreadable, fmt.Errorf(format, args...))
}

// Lookup is for rules.Body.
func (b *body) Lookup(path []string) (value any, ok bool, err error) {
	b.load()
	b.parse()
	if b.wrong != nil || b.json == nil {
		return nil, false, b.wrong
	}
	return b.json.Lookup(path)
}

// Each is for rules.Body.
func (b *body) Each(path []string, f func(rules.Lookup) error) error {
	b.load()
	b.parse()
	if b.wrong != nil || b.json == nil {
		return b.wrong
	}
	return b.json.Each(path, func(d *usage.Document) error { return f(d.Lookup) })
}

// parse reads data as JSON, and takes the memory of its values.
func (b *body) parse() {
	if b.data == nil || b.json != nil || b.wrong != nil {
		return
	}
	size := decodedSize(len(b.data), func(c string) int { return bytes.Count(b.data, []byte(c)) })
	if len(b.data) > smallBody && b.values.Take(size) != nil {
		b.failed = b.s.overloadedByBytes()
		b.wrong = b.failed
		return
	}
	var err error
	if b.json, err = usage.Parse(b.data); err != nil {
		b.wrong = unreadable("%w", err)
	}
}

// overloadedByBytes counts a request for which there is not enough memory, and returns the error
// that refuses it.
func (s *Server) overloadedByBytes() error {
	s.metrics.overloadedBytes.Inc()
	s.sampled.overloaded("bytes")
	return &httplimit.Overloaded{RetryAfter: time.Second}
}

// Len is for rules.Body.
func (b *body) Len() int64 {
	n := b.request.ContentLength
	switch {
	case n != 0 && errors.Is(unlikeJSON(b.request.Header), errZippedBody):
		return -1
	case n >= 0:
		return n
	}
	if b.load(); b.data != nil {
		return int64(len(b.data))
	}
	return -1
}

// load reads the body, whatever its type: upstreams differ in which types they look at. What is longer
// than maxBody stays in the request.
func (b *body) load() {
	if b.read {
		return
	}
	b.read = true
	b.share, b.values = b.s.admission.bytes.Share(b.request), b.s.admission.bytes.Share(b.request)
	from := b.request.Body
	if from == nil || from == http.NoBody {
		return
	}
	why := unlikeJSON(b.request.Header)
	if b.request.ContentLength > maxBody {
		why = errLongBody
	}
	if why != nil && b.request.ContentLength > 0 {
		b.wrong = why
		return
	}
	data, err := b.take(from, why != nil)
	switch {
	case err != nil:
		b.failed, b.wrong = err, err
	case len(data) == 0:
	case why != nil:
		b.wrong = why
	case !beginsAsJSON(data):
		b.wrong = errNoJSON
	case len(data) > maxBody:
		b.wrong = errLongBody
	default:
		b.data = data
	}
	b.request.Body = &replayed{io.MultiReader(&beginning{data, b.free}, from), from}
}

// unlikeJSON is why an upstream reads other text in a body than its bytes are in UTF-8; nil: it does
// not.
func unlikeJSON(h http.Header) error {
	for _, encoding := range h["Content-Encoding"] {
		if !strings.EqualFold(strings.TrimSpace(encoding), "identity") {
			return errZippedBody
		}
	}
	for _, text := range h["Content-Type"] {
		_, parameters, _ := mime.ParseMediaType(text)
		switch charset := strings.ToLower(parameters["charset"]); {
		case charset == "" && !strings.Contains(strings.ToLower(text), "charset"), charset == "utf-8", charset == "utf8", charset == "us-ascii":
		default: // or one that is malformed
			return errCharset
		}
	}
	return nil
}

// beginsAsJSON reports whether data may be the beginning of a JSON value.
func beginsAsJSON(data []byte) bool {
	data = bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n")
	return len(data) == 0 || bytes.IndexByte([]byte(`{["-0123456789tfn`), data[0]) >= 0
}

// take reads from until its end, or one byte more than maxBody; or only as far as needed to know that
// it does not begin as JSON, or, if it is in vain, that it is not empty. The client must keep pace.
func (b *body) take(from io.ReadCloser, inVain bool) ([]byte, error) {
	up := &upload{ReadCloser: from}
	if patience := b.s.settings.BodyTimeout; patience > 0 {
		control := http.NewResponseController(b.writer)
		up.pace = newPace(patience, func() {
			b.s.metrics.stalledUploads.Inc()
			_ = control.SetReadDeadline(longAgo)
		})
		defer up.pace.stop()
	}
	var data bytes.Buffer
	limited := b.share.Reader(io.LimitReader(up, maxBody+1))
	_, err := io.CopyN(&data, limited, 1)
	if err == nil && !inVain && (data.Bytes()[0] == 0xef || beginsAsJSON(data.Bytes())) {
		_, err = data.ReadFrom(limited)
	}
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return data.Bytes(), nil
	case errors.Is(err, inflight.ErrNoRoom):
		return nil, b.s.overloadedByBytes()
	case up.pace.isExpired():
		return nil, errLateBody
	}
	return nil, errBrokenBody
}

// replayed is a body whose beginning was read before.
type replayed struct {
	io.Reader
	io.Closer
}

// beginning is what was read of a body before. It calls read once when all of it was read again, and
// keeps nothing then.
type beginning struct {
	rest []byte
	read func()
}

// Read is for io.Reader.
func (b *beginning) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) > 0 {
		return n, nil
	}
	if b.rest = nil; b.read != nil {
		b.read()
		b.read = nil
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// decided drops what only rules need, and returns the memory of values.
func (b *body) decided() {
	if b.read {
		b.values.Refund()
		b.data, b.json = nil, nil
	}
}

// free returns the memory of the body: when it was passed on, or when the request ends.
func (b *body) free() { b.freed.Do(b.share.Refund) }

// askForUsage asks the upstream to say at the end of a stream what it used, if one of the rules says
// so: the client's own word is that it does not matter to it. Servers may refuse an option that they do
// not know, so a body is changed only where the endpoint and the form of the body say that this one does.
func (b *body) askForUsage(all []*rules.Rule, e rules.Endpoint) {
	field, wanted := e.Asks(), false
	for _, r := range all {
		wanted = wanted || r.Tokens.IncludeUsage && r.Mode == rules.Enforce
	}
	if !wanted || field == "" {
		return
	}
	b.load()
	b.parse()
	if b.wrong != nil || b.json == nil {
		return
	}
	from, to, ok := b.json.Span([]string{field})
	if !ok || from == to || b.data[from] != '[' && (field != "prompt" || b.data[from] != '"') {
		return // it is no request that the endpoint takes
	}
	if stream, _, err := b.json.Lookup([]string{"stream"}); err == nil && stream == true {
		b.setUsage()
	}
}

// setUsage sets stream_options.include_usage in the body that passes on.
func (b *body) setUsage() {
	asked, found, err := b.json.Lookup([]string{"stream_options", "include_usage"})
	options, _, _ := b.json.Lookup([]string{"stream_options"})
	fields, isObject := options.(map[string]any)
	switch {
	case err != nil || asked == true:
	case found:
		from, to, _ := b.json.Span([]string{"stream_options", "include_usage"})
		b.replace(from, to, "true")
	case isObject && len(fields) == 0:
		from, to, _ := b.json.Span([]string{"stream_options"})
		b.replace(from, to, `{"include_usage":true}`)
	case isObject:
		from, _, _ := b.json.Span([]string{"stream_options"})
		b.replace(from+1, from+1, `"include_usage":true,`)
	case b.json.Has("stream_options"):
		from, to, _ := b.json.Span([]string{"stream_options"})
		b.replace(from, to, `{"include_usage":true}`)
	default:
		start := b.json.Start()
		b.replace(start, start, `"stream_options":{"include_usage":true},`)
	}
}

// replace has other text pass on in place of a part of the body.
func (b *body) replace(from, to int, text string) {
	rest := b.request.Body.(*replayed).Closer.(io.ReadCloser) // for the trailers
	b.request.Body = &replayed{io.MultiReader(bytes.NewReader(b.data[:from:from]), strings.NewReader(text), &beginning{b.data[to:], b.free}, rest), rest}
	if b.request.ContentLength >= 0 {
		b.request.ContentLength += int64(len(text) - (to - from))
		b.request.Header["Content-Length"] = []string{strconv.FormatInt(b.request.ContentLength, 10)}
	}
}
