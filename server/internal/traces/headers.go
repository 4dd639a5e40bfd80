package traces

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
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
	read, err := config.ParseHeaders(contents[0])
	if err != nil {
		return false, fmt.Errorf("traces: %s: %w", h.file.Paths[0], err)
	}
	h.now.Store(&read)
	return changed, nil
}
