package door

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/internal/decide"
)

// ClientOf is the address that r counts for. If a trusted proxy asks about a request, as by /v1/authorize, it
// is the address of that request's client.
func (d *Door) ClientOf(r *http.Request) netip.Addr {
	clients := d.Clients()
	if a := AskedOf(r); a != nil && clients.Believes(r) {
		r = a.Original
	}
	return clients.Addr(r)
}

// ClientKey is the client that ClientOf returns, as rules count it.
func (d *Door) ClientKey(r *http.Request) string {
	clients := d.Clients()
	return clients.Key(r)
}

// Clients finds the clients of requests.
func (d *Door) Clients() httplimit.Clients {
	set := d.Rules()
	return httplimit.Clients{Trusted: set.TrustedProxies, Header: d.Settings.ClientHeader, NAT64: set.NAT64}
}

// BelievesCaller reports whether r comes from a trusted proxy, so that it may say which trace
// it belongs to.
func (d *Door) BelievesCaller(r *http.Request) bool { return d.Clients().Believes(r) }

// Notice finds a proxy that is missing in trusted_proxies. It is logged once for each set of
// rules.
func (d *Door) Notice(r *http.Request) {
	set := d.Watch.Current()
	if len(set.TrustedProxies) > 0 {
		return
	}
	for _, name := range [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", http.CanonicalHeaderKey(d.Settings.ClientHeader)} {
		if r.Header[name] != nil {
			set.Forwarded(r.RemoteAddr, name)
			return
		}
	}
}

// Asked is a request that a proxy asks about by another protocol than HTTP, such as gRPC. Call
// and Original must be given.
type Asked struct {
	// Call is the proxy's own call: its context (with http.LocalAddrContextKey), RemoteAddr and TLS, and in
	// Header Stint-Token and Traceparent. Nothing else of it is read.
	Call *http.Request
	// Original is the client's request as the proxy received it: Method, RequestURI, Host and
	// Header, and as RemoteAddr the address of the connection on which it came to the proxy. Its client is
	// found as at the gateway: if that address is in trusted_proxies, X-Forwarded-For or the header that
	// client_header names has the client.
	Original *http.Request
	// Attrs are rules.Input.Attrs.
	Attrs map[string]any

	// Passes is set if the request may pass, and Verdict if rules have decided it.
	Passes  bool
	Verdict decide.Verdict
}

// AskedCall is an Asked while it is decided.
type AskedCall struct {
	*Asked
	Err error // why the caller may not ask
}

type askedKey struct{}

// With returns a context for a request that stands for a.
func (a *AskedCall) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, askedKey{}, a)
}

// AskedOf returns the call that r stands for; nil: r came by HTTP.
func AskedOf(r *http.Request) *AskedCall {
	a, _ := r.Context().Value(askedKey{}).(*AskedCall)
	return a
}
