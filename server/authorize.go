package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/internal/auth"
)

// originals are the headers in which proxies describe the request that they ask
// about. Which of them asks is told by the one that holds the URI. If you add one,
// add a proxy to examples/ that is tested with it.
var originals = [...]struct{ method, uri, host string }{
	{"X-Original-Method", "X-Original-Uri", "X-Original-Host"},    // nginx
	{"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"}, // Caddy, Traefik, HAProxy
}

// aboutConnection are headers that say nothing of the original request: they
// belong to a connection, or say what the original is in other ways.
//
// What a Connection header names besides is kept. Most proxies copy that header to
// nobody, so that it arrives only where a client's is passed on by mistake; there,
// it would hide from the rules whatever header the client names in it.
var aboutConnection = [...]string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	"Forwarded", "X-Real-Ip",
	auth.TokenHeader,
}

type originalRequest struct{}

// authorize answers proxies that ask whether a request may pass before they pass
// it on: nginx (auth_request), Caddy and Traefik (forward_auth), HAProxy; see
// examples/. It takes any method and does not read the body.
//
// The original request is in X-Original-Method, X-Original-URI and X-Original-Host,
// or in X-Forwarded-Method, X-Forwarded-Uri and X-Forwarded-Host. Where the host's
// header is missing, it is Host. A call that has both URIs, or one twice, is
// refused with 400 and not decided by precedence: proxies pass on headers that they
// do not know, so that one of the two is probably a client's, who would thus choose
// what to be counted as. The client is in X-Forwarded-For or what client_header
// names; see httplimit.Clients. All other headers are the original's.
//
// All this is believed of trusted_proxies only. Who else asks gets 403, and so does who
// may not use the check API.
//
// The answer is 200 without a body, or what the gateway would refuse with, and the
// headers of the decision in both. nginx knows 2xx, 401 and 403 only, and makes 500
// of all else: with ?deny_status=403, refusals of every kind are 403, and their
// real status is in X-Stint-Status.
func (s *Server) authorize() http.Handler {
	decide := httplimit.Middleware{
		Decide: func(r *http.Request, hold time.Duration) (httplimit.Answer, error) {
			return s.decideHTTP(r.Context().Value(originalRequest{}).(*http.Request), hold)
		},
		Dialect:  s.settings.Dialect,
		MaxHeld:  int(s.settings.MaxHeld),
		MaxHold:  s.settings.MaxHold,
		Client:   s.clientOf,
		Degraded: s.settings.DegradedHeader,

		Violations: s.settings.ViolationsHeader,
	}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	}))
	calls := s.capped(s.proxyAsks(decide))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Caddy appends the original's query to ours, so that others are let be.
		if q := r.URL.Query(); q.Get("deny_status") == "403" {
			w = &denial403{ResponseWriter: w}
		} else if q.Has("deny_status") {
			httplimit.Problem(w, r, http.StatusBadRequest, "deny_status must be 403.")
			return
		}
		if who, err := s.checkCallers.Authenticate(r, auth.Proxy); err != nil {
			s.sampled.refusedCaller(s.checkCallers, r, who, err)
			httplimit.Problem(w, r, http.StatusForbidden, err.Detail) // not 401: it is not the client who lacks a token
			return
		}
		calls.ServeHTTP(w, r)
	})
}

// proxyAsks has the request decided that a trusted proxy asks about.
func (s *Server) proxyAsks(decide http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clients := s.clients(); !clients.Believes(r) {
			s.notice(r)
			const text = "/v1/authorize was called by a proxy that is not in trusted_proxies, and refused"
			s.sampled.log(slog.LevelWarn, text, text, "address", r.RemoteAddr)
			// The answer leaves out the address, for it may reach the client.
			httplimit.Problem(w, r, http.StatusForbidden, "This proxy is not trusted: list its address in trusted_proxies of the rules.")
			return
		}
		original, err := s.original(r)
		if err != nil {
			s.metrics.badRequests.Inc()
			httplimit.Problem(w, r, http.StatusBadRequest, "The original request is unknown: "+err.Error()+".")
			return
		}
		decide.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), originalRequest{}, original)))
	})
}

// original is the request that a trusted proxy asks about, as if its client had
// connected directly. Errors are for who sets up the proxy, and hold nothing that
// was sent.
func (s *Server) original(r *http.Request) (*http.Request, error) {
	names := originals[0]
	target, err := oneLine(r.Header, names.uri)
	if err != nil {
		return nil, err
	}
	for _, other := range originals[1:] {
		second, err := oneLine(r.Header, other.uri)
		switch {
		case err != nil:
			return nil, err
		case second == "":
		case target != "":
			return nil, fmt.Errorf("%s and %s are both given; the proxy must remove the one that it does not send", names.uri, other.uri)
		default:
			names, target = other, second
		}
	}
	if target == "" {
		return nil, fmt.Errorf("the proxy must send %s or %s", originals[0].uri, originals[1].uri)
	}
	method, err := oneLine(r.Header, names.method)
	if err != nil {
		return nil, err
	}
	if method == "" {
		return nil, fmt.Errorf("with %s, the proxy must send %s", names.uri, names.method)
	}
	if _, err := rules.ReadMethod(method); err != nil {
		return nil, fmt.Errorf("%s has characters that are not allowed in a method", names.method)
	}
	host, err := oneLine(r.Header, names.host)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = r.Host
	}
	if _, err := rules.ReadTarget(target); err != nil {
		return nil, fmt.Errorf("%s is not a request target, such as /a%%20b?c=d", names.uri)
	}
	clients := s.clients()
	if clients.Header == "" {
		clients.Header = "X-Forwarded-For"
	}
	if r.Header.Values(clients.Header) == nil { // all would count as one client, the proxy
		return nil, fmt.Errorf("the proxy must send the client's address in %s", clients.Header)
	}
	o := (&http.Request{
		Method:     method,
		RequestURI: target,
		Host:       host,
		Header:     originalHeader(r.Header),
		RemoteAddr: socket(clients.Addr(r)),
	}).WithContext(r.Context())
	o.Header.Del(clients.Header) // Addr has read it
	return o, nil
}

// oneLine is the value of a header that must not be given twice; "": it is not
// given.
func oneLine(h http.Header, name string) (string, error) {
	switch lines := h[name]; len(lines) {
	case 0:
		return "", nil
	case 1:
		return lines[0], nil
	default:
		return "", errors.New(name + " is given twice")
	}
}

// originalHeader is h without aboutConnection, X-Original-* and X-Forwarded-*.
func originalHeader(h http.Header) http.Header {
	kept := make(http.Header, len(h))
	for name, lines := range h {
		if !strings.HasPrefix(name, "X-Original-") && !strings.HasPrefix(name, "X-Forwarded-") {
			kept[name] = lines
		}
	}
	for _, name := range aboutConnection {
		delete(kept, name)
	}
	return kept
}

// socket is addr as a RemoteAddr; that of no address is "".
func socket(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return net.JoinHostPort(addr.String(), "0")
}

// denial403 answers 403 in place of every status from 400.
type denial403 struct {
	http.ResponseWriter
}

func (d *denial403) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		d.Header().Set("X-Stint-Status", fmt.Sprint(status))
		status = http.StatusForbidden
	}
	d.ResponseWriter.WriteHeader(status)
}
