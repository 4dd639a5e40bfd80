package traces

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/stintdev/stint/internal/readfile"
)

// headers adds the headers of a file to requests. They are secret.
type headers struct {
	next http.RoundTripper
	file readfile.Watched
	now  atomic.Pointer[http.Header]
}

func newHeaders(file string, next http.RoundTripper) *headers {
	h := &headers{next: next}
	if file != "" {
		h.file.Paths = []string{file}
	}
	h.now.Store(&http.Header{})
	return h
}

// RoundTrip implements http.RoundTripper.
func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range *h.now.Load() {
		r.Header[name] = values
	}
	return h.next.RoundTrip(r)
}

func (h *headers) reload(asked bool) (bool, error) {
	if h.file.Paths == nil {
		return false, nil
	}
	contents, changed, err := h.file.Read()
	if !changed && !asked {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("traces: %w", err)
	}
	read, err := parseHeaders(contents[0])
	if err != nil {
		return false, fmt.Errorf("traces: %s: %w", h.file.Paths[0], err)
	}
	h.now.Store(&read)
	return changed, nil
}

// parseHeaders reads a line "Name: value" for each header. Empty lines and those that begin
// with # do not count. Errors have nothing of the text.
func parseHeaders(text []byte) (http.Header, error) {
	h := http.Header{}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("line %d: want a header, such as Authorization: Bearer TOKEN", n)
		}
		h.Add(name, value)
	}
	for _, name := range [...]string{"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Host", "Connection"} {
		if h[name] != nil {
			return nil, errors.New("the header " + name + " belongs to the protocol")
		}
	}
	return h, nil
}
