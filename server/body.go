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
	"github.com/stintdev/stint/internal/httpfield"
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
	data   []byte          // all of it; nil: it is not JSON, as its type and its beginning show
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
	errLongBody   = fmt.Errorf("the body is longer than %d MiB", maxBody>>20)
	errZippedBody = errors.New("the body is compressed")
)

// Lookup is for rules.Body.
func (b *body) Lookup(path []string) (value any, ok bool, err error) {
	b.load()
	b.parse()
	if b.wrong != nil || b.json == nil {
		return nil, false, b.wrong
	}
	if value, ok, err = b.json.Lookup(path); err != nil {
		err = fmt.Errorf("the body cannot be read: %w", err)
	}
	return value, ok, err
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
		b.wrong = fmt.Errorf("the body cannot be read: %w", err)
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
	if n := b.request.ContentLength; n >= 0 {
		return n
	}
	if b.load(); b.data != nil {
		return int64(len(b.data))
	}
	return -1
}

// load reads the body if it may be JSON. What is longer than maxBody stays in the request.
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
	declared := httpfield.IsJSON(b.request.Header)
	switch {
	case !declared && neverJSON(b.request.Header.Get("Content-Type")):
		return
	case declared && b.request.Header["Content-Encoding"] != nil:
		b.wrong = errZippedBody
		return
	case declared && b.request.ContentLength > maxBody:
		b.wrong = errLongBody
		return
	}
	data, err := b.take(from, declared)
	switch {
	case err != nil:
		b.failed, b.wrong = err, err
	case !declared && !beginsAsJSON(data):
	case len(data) > maxBody:
		b.wrong = errLongBody
	default:
		b.data = data
	}
	b.request.Body = &replayed{io.MultiReader(&beginning{data, b.free}, from), from}
}

// neverJSON reports whether a body of this type is not looked at. Others are, even if they are
// declared to be something else, because some upstreams take JSON of any type.
func neverJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	for _, prefix := range [...]string{"application/grpc", "multipart/", "image/", "audio/", "video/", "font/"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

// beginsAsJSON reports whether data may be the beginning of an object or a list.
func beginsAsJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) == 0 || data[0] == '{' || data[0] == '['
}

// take reads from until its end, or one byte more than maxBody; or, if it does not begin as JSON
// and is not declared to be JSON, as far as that needs. The client must keep pace.
func (b *body) take(from io.ReadCloser, declared bool) ([]byte, error) {
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
	if err == nil && (declared || beginsAsJSON(data.Bytes())) {
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

// askForUsage asks an OpenAI upstream to say at the end of a stream what it used, if one of the
// rules says so and the client has not decided that itself.
func (b *body) askForUsage(all []*rules.Rule) {
	wanted := false
	for _, r := range all {
		wanted = wanted || r.Tokens.IncludeUsage && r.Mode == rules.Enforce
	}
	if !wanted {
		return
	}
	b.load()
	b.parse()
	if b.wrong != nil || b.json == nil || b.json.Has("stream_options") {
		return
	}
	stream, _, err := b.json.Lookup([]string{"stream"})
	if err != nil || stream != true || !b.json.Has("messages") && !b.json.Has("prompt") {
		return // the other APIs say it unasked, or do not know the option
	}
	const option = `"stream_options":{"include_usage":true},`
	start := b.json.Start()
	rest := b.request.Body.(*replayed).Closer.(io.ReadCloser) // for the trailers
	b.request.Body = &replayed{io.MultiReader(bytes.NewReader(b.data[:start:start]), strings.NewReader(option), &beginning{b.data[start:], b.free}, rest), rest}
	if b.request.ContentLength >= 0 {
		b.request.ContentLength += int64(len(option))
		b.request.Header["Content-Length"] = []string{strconv.FormatInt(b.request.ContentLength, 10)}
	}
}
