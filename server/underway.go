package server

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/stintdev/stint/internal/room"
)

// underWay bounds the bytes that all requests under way make this instance keep, of which
// one client cannot take all.
type underWay struct {
	room   *room.Room // half of them: each place is a byte; nil: any number
	client func(*http.Request) netip.Addr
	// easy is how many requests may be under way before their headers are reckoned:
	// those of so many take half of what there is, and room is the other half.
	easy int64
}

func newUnderWay(bytes int64, client func(*http.Request) netip.Addr) *underWay {
	u := &underWay{client: client, easy: bytes / 2 / mostHeaders}
	if bytes > 0 {
		u.room = room.Of(bytes / 2)
	}
	return u
}

const (
	// mostHeaders is what headers of 64 KiB take once they are read, if they are few.
	mostHeaders = 72 << 10
	// headerLine is what a line of headers takes beside its text.
	headerLine = 128
	// readFactor is how many bytes a byte of a body takes while it is read into a
	// buffer that grows.
	readFactor = 2
	// smallBody is the size of bodies that are not reckoned: instance.in_flight bounds
	// their number.
	smallBody = 4 << 10
)

// decodedBytes is how many bytes there will be of a body of JSON once it is decoded, at most:
// far more than it has, if it is [{"":0},{"":0}]. TestBytesOfBodies compares.
func decodedBytes(body string) int64 {
	const object, list, value = 450, 48, 32
	return int64(len(body) + object*strings.Count(body, "{") + list*strings.Count(body, "[") + value*strings.Count(body, ","))
}

// errNoBytes means that there is no room for what a request brings.
var errNoBytes = errors.New("no room for more bytes under way")

// headers takes what the headers of r take, where so many requests under way make that
// worth knowing.
func (u *underWay) headers(r *http.Request, now int64) (held room.Place, ok bool) {
	if u.room == nil || now <= u.easy {
		return held, true
	}
	var n int64
	for name, lines := range r.Header {
		for _, line := range lines {
			n += int64(len(name)+len(line)) + headerLine
		}
	}
	return held, u.room.Add(&held, n, r, u.client) == room.None
}

// give refunds what headers took.
func (u *underWay) give(held room.Place) {
	if u.room != nil {
		u.room.Leave(held)
	}
}

// share is what one request has taken of what there is.
type share struct {
	of      *underWay
	request *http.Request
	held    room.Place
}

// take takes so much more. What no other shares is there for one request, also where that
// takes more than there is to be.
func (s *share) take(n int64) error {
	m := s.of.room
	if m == nil || n == 0 || m.Add(&s.held, n, s.request, s.of.client) == room.None || m.AddAlone(&s.held, n) {
		return nil
	}
	return errNoBytes
}

// refund returns all of it.
func (s *share) refund() {
	s.of.give(s.held)
	s.held = room.Place{}
}

// countedBody is a body that takes room as its bytes come, and ends with errNoBytes where
// there is none.
type countedBody struct {
	io.Reader
	share *share
}

// Read implements io.Reader.
func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if wrong := b.share.take(int64(n) * readFactor); wrong != nil {
		return 0, wrong
	}
	return n, err
}
