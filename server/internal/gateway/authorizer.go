package gateway

import (
	"errors"
	"maps"
	"net/http"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/door"
)

// Authorizer returns a function that decides like Authorize; see server.Server.Authorizer.
func (g *Gateway) Authorizer() func(http.ResponseWriter, *door.Asked) error {
	calls := httplimit.GRPC(g.authorizing(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		door.AskedOf(r).Passes = true
	})))
	return func(w http.ResponseWriter, a *door.Asked) error {
		own := &door.AskedCall{Asked: a}
		call := a.Call.WithContext(own.With(a.Call.Context()))
		// A page in a browser cannot make this call, so it may name any host; Envoy names its
		// cluster.
		call.Host = "localhost"
		if err := g.mayAuthorize(call); err != nil {
			return err
		}
		call.Header, call.ProtoMajor = headerOfCall(a), 2
		calls.ServeHTTP(w, call)
		return own.Err
	}
}

// headerOfCall returns the header that the call would have by HTTP: the original's, whose size counts in
// server.instance.in_flight_bytes, and the caller's own fields.
func headerOfCall(a *door.Asked) http.Header {
	h := make(http.Header, len(a.Original.Header)+1)
	maps.Copy(h, a.Original.Header)
	for _, name := range [...]string{auth.TokenHeader, "Traceparent", "Tracestate"} {
		delete(h, name)
		if lines := a.Call.Header[name]; lines != nil {
			h[name] = lines
		}
	}
	return h
}

// MaxHeaderBytes bounds the headers of a request, in bytes.
const MaxHeaderBytes = 64 << 10

// askedOriginal is the method original for a call that is Asked.
func (g *Gateway) askedOriginal(r *http.Request) (*http.Request, error) {
	a := door.AskedOf(r)
	o := a.Original
	if err := checkSaid(o.Method, o.RequestURI, "the method", "the path"); err != nil {
		return nil, err
	}
	size := 0
	for name, lines := range o.Header {
		for _, line := range lines {
			size += len(name) + len(line)
		}
	}
	if size > MaxHeaderBytes { // the call would have failed by HTTP
		return nil, errors.New("its headers are larger than 64 KiB")
	}
	if o.RemoteAddr == "" { // all would count as one client
		return nil, errors.New("the proxy must send the client's address")
	}
	clients := g.Clients()
	if clients.Header == "" {
		clients.Header = "X-Forwarded-For"
	}
	return originalOf(r, o, clients, clients.Addr(o)), nil
}
