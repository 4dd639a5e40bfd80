package server

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// underWay bounds the bytes that all requests under way make this instance keep.
type underWay struct {
	most int64 // 0: any number
	held atomic.Int64
	// easy is how many requests may be under way before their headers are reckoned:
	// those of so many take half of what there is, and most is the other half.
	easy int64
}

func newUnderWay(bytes int64) *underWay {
	return &underWay{most: bytes / 2, easy: bytes / 2 / mostHeaders}
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

func (u *underWay) take(n int64) bool {
	if u.most == 0 || n == 0 {
		return true
	}
	if u.held.Add(n) > u.most {
		u.held.Add(-n)
		return false
	}
	return true
}

func (u *underWay) give(n int64) {
	if u.most > 0 {
		u.held.Add(-n)
	}
}

// headers takes what the headers of r take, where so many requests under way make that
// worth knowing.
func (u *underWay) headers(r *http.Request, now int64) (held int64, ok bool) {
	if u.most == 0 || now <= u.easy {
		return 0, true
	}
	for name, lines := range r.Header {
		for _, line := range lines {
			held += int64(len(name)+len(line)) + headerLine
		}
	}
	return held, u.take(held)
}

// share is what one request has taken of what there is.
type share struct {
	of   *underWay
	held int64
}

// take takes so much more. What no other shares is there for one request, also where that
// takes more than there is to be.
func (s *share) take(n int64) error {
	switch {
	case s.of.take(n):
	case s.of.held.Load() == s.held:
		s.of.held.Add(n)
	default:
		return errNoBytes
	}
	s.held += n
	return nil
}

// giveBack returns all of it.
func (s *share) giveBack() {
	s.of.give(s.held)
	s.held = 0
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
