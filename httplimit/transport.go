package httplimit

import (
	"net/http"
	"strings"
	"sync"

	"github.com/stintdev/stint"
)

// Transport is a http.RoundTripper that keeps outgoing requests within a limit,
// by default for each host by itself. Requests wait for their turn, as long as
// their context allows, or are refused; see stint.Limiter.WaitN for the waiting.
// A request that is refused, or that cannot be decided about, is not sent. A
// Transport may be used from many goroutines at once, must not be copied once
// used, and its fields must not be changed then.
//
// An http.Client sends, and this counts, each redirect as a request of its own.
// What the server's Retry-After says is not looked at.
type Transport struct {
	// Limit must be given, with a name where the Limiter's Store is shared; see By.
	Limit *stint.Limit
	// Limiter decides; as by By, a stint.Networked Store is asked through its Fallback.
	// nil: one in memory.
	Limiter *stint.Limiter
	// Key says what a request counts for; "": it is not limited. nil: the URL's
	// host in lower case, with the port if it is not the scheme's usual one.
	Key Key
	// Refuse makes RoundTrip return a *stint.RefusedError instead of waiting. A
	// leaky bucket's delay is then not waited for either.
	Refuse bool
	// Base sends what may be sent. nil: http.DefaultTransport.
	Base http.RoundTripper

	memory stint.Limiter
	once   sync.Once
	in     *stint.Limiter // Limiter, with its fallback
}

// RoundTrip implements http.RoundTripper. Its errors are those of Base, those of
// stint.Limiter, and *stint.RefusedError. It panics if Limit is missing.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.Limit == nil {
		panic("httplimit: a Transport needs a Limit")
	}
	if err := t.pass(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must, even where it fails
		}
		return nil, err
	}
	return t.base().RoundTrip(r)
}

func (t *Transport) pass(r *http.Request) error {
	t.once.Do(func() {
		if t.in = &t.memory; t.Limiter != nil {
			warnUnnamed(t.Limiter, t.Limit)
			t.in = t.Limiter.WithFallback()
		}
	})
	limiter, key := t.in, t.Key
	if key == nil {
		key = host
	}
	k := key(r)
	switch {
	case k == "":
		return nil
	case !t.Refuse:
		return limiter.Wait(r.Context(), k, t.Limit)
	}
	d, err := limiter.Allow(r.Context(), k, t.Limit)
	if err == nil && !d.Allowed {
		err = &stint.RefusedError{Decision: d}
	}
	return err
}

// CloseIdleConnections passes on http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// usualPorts are left out of a host, so that it has one key.
var usualPorts = map[string]string{"http": ":80", "https": ":443"}

func host(r *http.Request) string {
	if r.URL == nil {
		return "" // Base has the error for it
	}
	h := strings.ToLower(r.URL.Host)
	if port, ok := usualPorts[r.URL.Scheme]; ok {
		h = strings.TrimSuffix(h, port)
	}
	return h
}
