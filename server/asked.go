package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/stintdev/stint/httplimit"
)

// Asked is a request that a proxy asks about by another protocol than HTTP, such as gRPC.
type Asked struct {
	// Call is what the proxy called with: its context, its RemoteAddr and TLS, and in its Header
	// Stint-Token and Traceparent. The context has http.LocalAddrContextKey. Nothing else of it
	// is read.
	Call *http.Request
	// Original is the client's request as the proxy received it: Method, RequestURI, Host and
	// Header, and as RemoteAddr the address of the connection on which it came to the proxy. Its
	// client is found as the gateway finds it: if trusted_proxies have that address, in
	// X-Forwarded-For or in the header that client_header names.
	Original *http.Request
	// Attrs are rules.Input.Attrs.
	Attrs map[string]any

	// Passes is set if the request may pass, and Verdict if rules have decided it.
	Passes  bool
	Verdict Verdict

	err error // why the caller may not ask
}

type askedKey struct{}

// askedOf returns what r asks by another protocol; nil: it came by HTTP.
func askedOf(r *http.Request) *Asked {
	a, _ := r.Context().Value(askedKey{}).(*Asked)
	return a
}

// Authorizer returns a function that decides like /v1/authorize: with the same callers, bounds,
// rules and answers. It sets Passes and Verdict, and writes the answer: the headers for the
// client if the request may pass, else the refusal of the gateway. A client of gRPC is refused
// as package httplimit.GRPC says. An error means that the caller may not ask. It says why, and
// nothing was decided.
//
// The function may be used from many goroutines at once.
func (s *Server) Authorizer() func(http.ResponseWriter, *Asked) error {
	calls := httplimit.GRPC(s.authorizing(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		askedOf(r).Passes = true
	})))
	return func(w http.ResponseWriter, a *Asked) error {
		call := a.Call.WithContext(context.WithValue(a.Call.Context(), askedKey{}, a))
		// A page in a browser cannot make this call, so it may name any host; Envoy names its
		// cluster.
		call.Host = "localhost"
		if err := s.mayAuthorize(call); err != nil {
			return err
		}
		call.Header = call.Header.Clone()
		call.Header["Content-Type"] = a.Original.Header["Content-Type"]
		call.ProtoMajor = 2
		calls.ServeHTTP(w, call)
		return a.err
	}
}

// askedOriginal is original of a call that is Asked.
func (s *Server) askedOriginal(r *http.Request) (*http.Request, error) {
	a := askedOf(r)
	o := a.Original
	if err := checkSaid(o.Method, o.RequestURI, "the method", "the path"); err != nil {
		return nil, err
	}
	if o.RemoteAddr == "" { // all would count as one client
		return nil, errors.New("the proxy must send the client's address")
	}
	clients := s.clients()
	if clients.Header == "" {
		clients.Header = "X-Forwarded-For"
	}
	return originalOf(r, o, clients, clients.Addr(o)), nil
}
