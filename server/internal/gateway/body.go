package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/usage"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/rules"
)

const (
	// maxBody is the most bytes of a request's body that expressions read.
	maxBody = 1 << 20
	// bodyPart is the size of one read of a longer body.
	bodyPart = 256 << 10
)

// body is the body of a gateway request, as rules read it. It is read when a rule first looks at it, and is
// passed on unchanged. Expressions read it strictly, by Lookup: a client must not be able to hide a field
// from them. Tokens read it leniently; see prompt.
type body struct {
	g       *Gateway
	request *http.Request
	writer  http.ResponseWriter

	read   bool           // the shares are known
	share  inflight.Share // of the memory of bodies; freed returns it
	freed  sync.Once
	values inflight.Share // the same, for values while rules look at them

	head   bytes.Buffer  // the bytes read so far, up to maxBody+1
	tail   [][]byte      // the bytes read after that
	ended  bool          // there is no more
	rest   io.ReadCloser // the unread rest; nil: nothing was read
	failed error         // why the request cannot go on

	loaded bool            // what follows is known
	data   []byte          // all of it; nil: there is none, or it cannot be read
	json   *usage.Document // of data; nil: nothing has been looked up
	wrong  error           // why nothing can be looked up

	prompt prompt
}

// brokenBody is the error of a body that did not arrive as its request announced it.
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

// parse reads data as JSON, and takes the memory of its values.
func (b *body) parse() {
	if b.data == nil || b.json != nil || b.wrong != nil {
		return
	}
	size := door.DecodedSize(len(b.data), func(c string) int { return bytes.Count(b.data, []byte(c)) })
	if len(b.data) > door.SmallBody && b.values.Take(size) != nil {
		b.failed = b.g.overloadedByBytes()
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
func (g *Gateway) overloadedByBytes() error {
	g.Watch.Metrics.OverloadedBytes.Inc()
	g.Watch.Sampled.Overloaded("bytes")
	return &httplimit.Overloaded{RetryAfter: time.Second}
}

// begin makes the body ready to be read; not ok: the request has none.
func (b *body) begin() (ok bool) {
	if !b.read {
		b.read = true
		b.share, b.values = b.g.Admission.Bytes.Share(b.request), b.g.Admission.Bytes.Share(b.request)
	}
	return b.rest != nil || b.request.Body != nil && b.request.Body != http.NoBody
}

// load reads the body for expressions, whatever its type: upstreams differ in which types they look at. The
// part beyond maxBody stays in the request.
func (b *body) load() {
	if b.loaded {
		return
	}
	b.loaded = true
	if !b.begin() {
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
	b.fill(1)
	if first := b.head.Bytes(); why == nil && len(first) > 0 && (first[0] == 0xef || beginsAsJSON(first)) {
		b.fill(maxBody + 1)
	}
	data := b.head.Bytes()
	switch {
	case b.failed != nil:
		b.wrong = b.failed
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
}

// fill reads on until most bytes, or all, are in memory. The client must keep pace.
func (b *body) fill(most int64) {
	if b.ended || b.failed != nil || b.filled() >= most {
		return
	}
	if b.rest == nil {
		b.rest = b.request.Body
	}
	up := &upload{ReadCloser: b.rest}
	if patience := b.g.Settings.BodyTimeout; patience > 0 {
		control := http.NewResponseController(b.writer)
		up.pace = newPace(patience, func() {
			b.g.Watch.Metrics.StalledUploads.Inc()
			_ = control.SetReadDeadline(longAgo)
		})
		defer up.pace.stop()
	}
	err := b.take(up, most)
	switch {
	case err == nil:
	case errors.Is(err, inflight.ErrNoRoom):
		b.failed = b.g.overloadedByBytes()
	case up.pace.isExpired():
		b.failed = errLateBody
	default:
		b.failed = errBrokenBody
	}
	b.request.Body = &replayed{io.MultiReader(b.again(), b.rest), b.rest}
}

// filled is how many bytes are in memory.
func (b *body) filled() int64 {
	n := int64(b.head.Len())
	for _, part := range b.tail {
		n += int64(len(part))
	}
	return n
}

// again returns a reader of the bytes in memory, which are freed when it has read them.
func (b *body) again() *beginning {
	return &beginning{append([][]byte{b.head.Bytes()}, b.tail...), b.free}
}

// take reads on until most bytes are in memory. head holds most bodies whole. Longer ones continue in parts,
// so that nothing is copied.
func (b *body) take(from io.Reader, most int64) error {
	if room := min(most, maxBody+1) - int64(b.head.Len()); room > 0 {
		n, err := b.head.ReadFrom(b.share.Reader(io.LimitReader(from, room)))
		if err != nil {
			return err
		}
		b.ended = n < room
	}
	for n := b.filled(); !b.ended && n < most; n = b.filled() {
		size := min(bodyPart, most-n)
		if length := b.request.ContentLength; length >= 0 {
			size = min(size, max(length-n, 1)) // one more, to see the end
		}
		if err := b.share.Take(size); err != nil {
			return err
		}
		part, err := readPart(from, make([]byte, size))
		if len(part) > 0 {
			b.tail = append(b.tail, part)
		}
		if b.ended = errors.Is(err, io.EOF); err != nil && !b.ended {
			return err
		}
	}
	return nil
}

// readPart fills part as far as the body goes. io.ReadFull would not tell a body that breaks off from one
// that ends.
func readPart(from io.Reader, part []byte) ([]byte, error) {
	n := 0
	for n < len(part) {
		m, err := from.Read(part[n:])
		if n += m; err != nil {
			return part[:n], err
		}
	}
	return part, nil
}

// unlikeJSON returns why an upstream may read the body as other text than its bytes in UTF-8; nil: it does
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

// replayed is a body whose beginning was read before.
type replayed struct {
	io.Reader
	io.Closer
}

// beginning is the part of a body that was read before. It drops what has been read again, and calls read
// once at its end.
type beginning struct {
	parts [][]byte
	read  func()
}

// Read is for io.Reader.
func (b *beginning) Read(p []byte) (n int, err error) {
	for n == 0 && len(b.parts) > 0 && len(p) > 0 {
		n = copy(p, b.parts[0])
		b.parts[0] = b.parts[0][n:]
		for len(b.parts) > 0 && len(b.parts[0]) == 0 {
			b.parts[0], b.parts = nil, b.parts[1:]
		}
	}
	if len(b.parts) > 0 {
		return n, nil
	}
	if b.read != nil {
		b.read()
		b.read = nil
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// decided drops the data that only rules need, and returns the memory of values.
func (b *body) decided() {
	if b.read {
		b.values.Refund()
		b.data, b.json, b.prompt.outline = nil, nil, nil
		b.head, b.tail = bytes.Buffer{}, nil
	}
}

// free returns the memory of the body, when it was passed on or when the request ends.
func (b *body) free() { b.freed.Do(b.share.Refund) }

// askForUsage asks the upstream to report usage at the end of a stream, if a rule wants that, whatever the
// client's request says. Servers may refuse an option that they do not know, so a body is changed only where
// the endpoint and the form of the body show that this one knows it.
func (b *body) askForUsage(all []*rules.Rule, e rules.Endpoint) {
	field, wanted := e.Asks(), false
	for _, r := range all {
		wanted = wanted || r.Tokens.IncludeUsage && r.Mode == rules.Enforce
	}
	if !wanted || field == "" {
		return
	}
	b.scan()
	json := b.prompt.outline
	if json == nil {
		return
	}
	switch value, _, _ := json.Lookup([]string{field}); value.(type) {
	case []any:
	case string:
		if field != "prompt" {
			return
		}
	default:
		return // the endpoint does not take such a request
	}
	if stream, _, err := json.Lookup([]string{"stream"}); err == nil && isTrue(stream) {
		b.setUsage()
	}
}

// isTrue reports whether some server takes v for true: lenient ones in Python take more than true.
func isTrue(v any) bool {
	switch v := v.(type) {
	case string:
		return slices.Contains([]string{"1", "on", "t", "true", "y", "yes"}, strings.ToLower(v))
	case int64:
		return v == 1
	case float64:
		return v == 1
	}
	return v == true
}
