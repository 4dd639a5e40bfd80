// Package inflight bounds the memory that requests in flight take: their headers, and their
// bodies as they are read.
package inflight

import (
	"errors"
	"io"
	"net/http"
	"net/netip"

	"github.com/stintdev/stint/internal/room"
)

// Bytes bounds the bytes that all requests in flight keep in memory. One client cannot take all
// of them. It may be used from many goroutines at once.
type Bytes struct {
	room   *room.Room // half of the bytes, one place a byte; nil: any number
	client func(*http.Request) netip.Addr
	// uncounted is how many requests may be in flight before their headers are counted. Their
	// headers take up to half of the bytes, and room is the other half.
	uncounted int64
}

// NewBytes bounds requests to this many bytes; 0: any number. client is the address for which a request
// counts.
func NewBytes(bytes int64, client func(*http.Request) netip.Addr) *Bytes {
	b := &Bytes{client: client, uncounted: bytes / 2 / mostHeaders}
	if bytes > 0 {
		b.room = room.Of(bytes / 2)
	}
	return b
}

// NewUndivided bounds bodies to this many bytes. One client can take all of them.
func NewUndivided(bytes int64) *Bytes { return &Bytes{room: room.Undivided(bytes)} }

const (
	// mostHeaders is the memory of 64 KiB of headers in few lines.
	mostHeaders = 72 << 10
	// headerLine is the memory of a header line beside its text.
	headerLine = 128
	// readFactor is the memory that a byte of a body takes while it is read into a buffer that
	// grows.
	readFactor = 2
)

// ErrNoRoom means that there is no room for the bytes of a request.
var ErrNoRoom = errors.New("no room for more bytes in flight")

// Taken is how many bytes are taken, without uncounted headers.
func (b *Bytes) Taken() int64 { return b.room.Taken() }

// Headers takes the memory of r's headers, if enough requests are in flight for headers to be counted. ok is
// false if there is no room.
func (b *Bytes) Headers(r *http.Request, inFlight int64) (held room.Place, ok bool) {
	if b.room == nil || inFlight <= b.uncounted {
		return held, true
	}
	var n int64
	for name, lines := range r.Header {
		for _, line := range lines {
			n += int64(len(name)+len(line)) + headerLine
		}
	}
	return held, b.room.Add(&held, n, r, b.client) == room.None
}

// Refund returns what Headers took.
func (b *Bytes) Refund(held room.Place) {
	if b.room != nil {
		b.room.Leave(held)
	}
}

// Share is the share of one request. One goroutine may use it at a time.
type Share struct {
	of      *Bytes
	request *http.Request
	held    room.Place
}

// Share is the share of r, which has taken nothing yet.
func (b *Bytes) Share(r *http.Request) Share { return Share{of: b, request: r} }

// Take takes n more bytes, or returns ErrNoRoom. While no other request has a share, one of any
// size fits.
func (s *Share) Take(n int64) error {
	m := s.of.room
	if m == nil || n == 0 || m.Add(&s.held, n, s.request, s.of.client) == room.None || m.AddAlone(&s.held, n) {
		return nil
	}
	return ErrNoRoom
}

// Refund returns the whole share.
func (s *Share) Refund() {
	s.of.Refund(s.held)
	s.held = room.Place{}
}

// Reader reads from r, and takes room as bytes arrive. It fails with ErrNoRoom if there is
// none.
func (s *Share) Reader(r io.Reader) io.Reader { return &reader{r, s} }

type reader struct {
	io.Reader
	share *Share
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.share.Take(int64(n) * readFactor); full != nil {
		return 0, full
	}
	return n, err
}
