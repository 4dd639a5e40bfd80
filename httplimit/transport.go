package httplimit

import (
	"net/http"
	"strings"
	"sync"

	"github.com/stintdev/stint"
)

// Transport is an http.RoundTripper that keeps outgoing requests within a limit, by
// default a separate one for each host. Requests wait for their turn as long as their
// context allows (see stint.Limiter.WaitN), or are refused. A request that is refused or
// cannot be decided is not sent. A Transport is safe for concurrent use. Do not copy it
// or change its fields after first use.
//
// If Limit is held, such as "20 in_flight", a request holds its unit until the body of its response
// is closed, is read to its end, or fails; until its context ends; or until Base returns an error. A
// connection that changed its protocol (101) holds until its body is closed. Then the unit is charged,
// but for an in-flight limit, which charges nothing.
//
// Each redirect that an http.Client follows counts as a request. Transport ignores the
// server's Retry-After.
type Transport struct {
	// Limit is required. Give it a name if the Limiter's Store is shared; see By.
	Limit *stint.Limit
	// Limiter decides. Like By, Transport asks a stint.Networked Store through its
	// Fallback. nil: a Limiter in memory.
	Limiter *stint.Limiter
	// Key returns the key that a request counts under. nil: the URL's host in lower case, with
	// the port unless it is the scheme's default.
	Key Key
	// Anonymous says what becomes of requests whose key is "". The zero Anonymous refuses them.
	Anonymous stint.Anonymous
	// Refuse makes RoundTrip return a *stint.RefusedError instead of waiting. It does
	// not wait for a leaky bucket's delay either.
	Refuse bool
	// Base sends the requests that pass. nil: http.DefaultTransport.
	Base http.RoundTripper

	memory stint.Limiter
	once   sync.Once
	in     *stint.Limiter // Limiter with its fallback, or memory
}

// RoundTrip implements http.RoundTripper. It returns the errors of Base and of
// stint.Limiter, and *stint.RefusedError. It panics if Limit is nil.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.Limit == nil {
		panic("httplimit: a Transport needs a Limit")
	}
	held, err := t.take(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must, even where it fails
		}
		return nil, err
	}
	if held == nil {
		return t.base().RoundTrip(r)
	}
	return t.holding(r, &heldCall{ctx: r.Context(), held: held})
}

// holding sends r, which holds h.
func (t *Transport) holding(r *http.Request, h *heldCall) (resp *http.Response, err error) {
	defer func() {
		if resp == nil { // also if Base panics
			h.end()
		}
	}()
	if resp, err = t.base().RoundTrip(r); resp != nil {
		h.until(resp)
	}
	return resp, err
}

// take waits until r may be sent, or refuses it. It returns what r holds; nil: nothing.
func (t *Transport) take(r *http.Request) (*stint.Reservation, error) {
	t.once.Do(func() {
		if t.in = &t.memory; t.Limiter != nil {
			stint.Internal().WarnUnnamed("httplimit", t.Limiter, t.Limit)
			t.in = stint.Internal().WithFallback(t.Limiter)
		}
	})
	key := t.Key
	if key == nil {
		key = host
	}
	k, err := stint.Internal().Counted(t.Anonymous, key(r))
	if k == "" {
		return nil, err
	}
	return stint.Internal().TakeOrWait(r.Context(), t.in, &stint.Request{Asks: []stint.Ask{{Key: k, Limit: t.Limit}}}, t.Refuse)
}

// CloseIdleConnections closes the idle connections of Base, if it can; see
// http.Client.CloseIdleConnections.
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

// usualPorts are left out, so that a host has one key.
var usualPorts = map[string]string{"http": ":80", "https": ":443"}

func host(r *http.Request) string {
	if r.URL == nil {
		return "" // Base returns the error
	}
	h := strings.ToLower(r.URL.Host)
	if port, ok := usualPorts[r.URL.Scheme]; ok {
		h = strings.TrimSuffix(h, port)
	}
	return h
}
