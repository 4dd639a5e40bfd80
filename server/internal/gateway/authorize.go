package gateway

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
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/rules"
)

// originals are the headers in which proxies describe the original request. The set whose URI
// header is present is used. If you add one, add a proxy to examples/ that is tested with it.
var originals = [...]struct{ method, uri, host string }{
	{"X-Original-Method", "X-Original-Uri", "X-Original-Host"},    // nginx
	{"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"}, // Caddy, Traefik, HAProxy
}

// aboutConnection are headers that are not the original request's: they belong to a connection, or describe
// the original in another way.
//
// Other headers that Connection names are kept. Most proxies do not forward Connection, so it
// arrives only if a client's is forwarded by mistake. It would then hide from the rules any
// header that the client names in it.
var aboutConnection = [...]string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	"Forwarded", "X-Real-Ip",
	auth.TokenHeader,
}

type originalRequest struct{}

// AuthorizePath is the path of /v1/authorize, and with Envoy the prefix of the original's target.
const AuthorizePath = "/v1/authorize"

// Authorize answers proxies that ask whether a request may pass before they forward it: nginx
// (auth_request), Caddy and Traefik (forward_auth), HAProxy, Envoy (ext_authz); see examples/.
// It accepts any method and does not read the body.
//
// The original request is in X-Original-Method, X-Original-URI and X-Original-Host, or in
// X-Forwarded-Method, X-Forwarded-Uri and X-Forwarded-Host. If the header for the host is
// missing, it is Host. Envoy's HTTP service sends the original's own method and host, and its
// target after a prefix: /v1/authorize/a?b=c asks about /a?b=c. A call that describes the request in two
// ways, or has a header twice, is refused with 400. There is no precedence: proxies forward headers that they
// do not know, so one of the two is probably the client's, and the client could choose its own key. The
// client is in X-Forwarded-For or in the header that client_header names; see httplimit.Clients. All other
// headers are the original's.
//
// Only trusted_proxies are believed. Other callers get 403, and so do callers who may not use
// the check API.
//
// The answer is 200 without a body, or the refusal of the gateway, and both have the headers of
// the decision. nginx knows only 2xx, 401 and 403, and turns all others into 500: with
// ?deny_status=403, refusals of every kind are 403, and the real status is in X-Stint-Status.
func (g *Gateway) Authorize() http.Handler {
	calls := g.authorizing(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Caddy appends the original's query to ours, so other parameters are ignored. After a
		// prefix, the whole query is the original's.
		if q := r.URL.Query(); IsPrefixed(r) {
		} else if q.Get("deny_status") == "403" {
			w = &denial403{ResponseWriter: w}
		} else if q.Has("deny_status") {
			httplimit.Problem(w, r, http.StatusBadRequest, "deny_status must be 403.")
			return
		}
		if err := g.mayAuthorize(r); err != nil {
			httplimit.Problem(w, r, http.StatusForbidden, err.Detail) // not 401: the client does not lack a token
			return
		}
		calls.ServeHTTP(w, r)
	})
}

// IsPrefixed reports whether the original's target follows AuthorizePath in r.
func IsPrefixed(r *http.Request) bool { return strings.HasPrefix(r.RequestURI, AuthorizePath+"/") }

// mayAuthorize returns why the caller may not use /v1/authorize; nil: it may.
func (g *Gateway) mayAuthorize(r *http.Request) *auth.Error {
	who, err := g.Callers.Authenticate(r, auth.Proxy)
	if err != nil {
		g.RefusedCaller(g.Callers, r, who, err)
	}
	return err
}

// authorizing decides the request that a proxy asks about, for callers who may ask, and calls
// pass if it may pass.
func (g *Gateway) authorizing(pass http.Handler) http.Handler {
	decide := g.middleware(func(r *http.Request, maxDelay time.Duration) (httplimit.Answer, error) {
		return g.decideHTTP(r.Context().Value(originalRequest{}).(*http.Request), maxDelay)
	}).Wrap(pass)
	return g.CORS.Refusals(inErrorFormat(g.Rules, g.Capped(g.Watch.Tracing.Requests("authorize", g.BelievesCaller, g.proxyAsks(decide)))))
}

// distrust is the answer to proxies that are not in trusted_proxies. It omits their address,
// because it may reach the client.
const distrust = "This proxy is not trusted: list its address in trusted_proxies of the rules."

// proxyAsks decides the request that a trusted proxy asks about.
func (g *Gateway) proxyAsks(decide http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clients := g.Clients(); !clients.Believes(r) {
			g.Notice(r)
			const text = "a proxy that is not in trusted_proxies asked about a request, and was refused"
			g.Watch.Sampled.Log(slog.LevelWarn, text, text, "address", r.RemoteAddr)
			if a := door.AskedOf(r); a != nil {
				a.Err = &auth.Error{Status: http.StatusForbidden, Detail: distrust}
			}
			httplimit.Problem(w, r, http.StatusForbidden, distrust)
			return
		}
		find := g.original
		if door.AskedOf(r) != nil {
			find = g.askedOriginal
		}
		original, err := find(r)
		if err != nil {
			g.Watch.Malformed(r.Context())
			httplimit.Problem(w, r, http.StatusBadRequest, "The original request is unknown: "+err.Error()+".")
			return
		}
		decide.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), originalRequest{}, original)))
	})
}

// original is the request that a trusted proxy asks about, as if its client had connected
// directly. Errors are for the operator of the proxy, and contain nothing that was sent.
func (g *Gateway) original(r *http.Request) (*http.Request, error) {
	method, target, host, err := said(r)
	if err != nil {
		return nil, err
	}
	clients := g.Clients()
	if clients.Header == "" {
		clients.Header = "X-Forwarded-For"
	}
	if r.Header.Values(clients.Header) == nil { // all would count as one client, the proxy
		return nil, fmt.Errorf("the proxy must send the client's address in %s", clients.Header)
	}
	return originalOf(r, &http.Request{Method: method, RequestURI: target, Host: host, Header: r.Header}, clients, clients.Addr(r)), nil
}

// originalOf returns the request o, which r asks about, as if the client at addr had connected
// directly.
func originalOf(r, o *http.Request, clients httplimit.Clients, addr netip.Addr) *http.Request {
	own := (&http.Request{
		Method:     o.Method,
		RequestURI: o.RequestURI,
		Host:       o.Host,
		Header:     originalHeader(o.Header),
		RemoteAddr: socket(addr),
	}).WithContext(r.Context())
	own.Header.Del(clients.Header) // addr was read from it
	return own
}

// said returns the original request as the proxy describes it.
func said(r *http.Request) (method, target, host string, err error) {
	names := originals[0]
	target, err = oneLine(r.Header, names.uri)
	if err != nil {
		return "", "", "", err
	}
	for _, other := range originals[1:] {
		second, err := oneLine(r.Header, other.uri)
		switch {
		case err != nil:
			return "", "", "", err
		case second == "":
		case target != "":
			return "", "", "", fmt.Errorf("%s and %s are both given; the proxy must remove the one that it does not send", names.uri, other.uri)
		default:
			names, target = other, second
		}
	}
	switch {
	case IsPrefixed(r) && target != "":
		return "", "", "", fmt.Errorf("%s is given, and a target follows %s; the proxy must send one of them", names.uri, AuthorizePath)
	case IsPrefixed(r):
		target = strings.TrimPrefix(r.RequestURI, AuthorizePath)
		return r.Method, target, r.Host, checkSaid(r.Method, target, "the method", "what follows "+AuthorizePath)
	case target == "":
		return "", "", "", fmt.Errorf("the proxy must send %s or %s", originals[0].uri, originals[1].uri)
	}
	if method, err = oneLine(r.Header, names.method); err != nil {
		return "", "", "", err
	}
	if method == "" {
		return "", "", "", fmt.Errorf("with %s, the proxy must send %s", names.uri, names.method)
	}
	if host, err = oneLine(r.Header, names.host); err != nil {
		return "", "", "", err
	}
	if host == "" {
		host = r.Host
	}
	return method, target, host, checkSaid(method, target, names.method, names.uri)
}

// checkSaid returns an error if a method or a target is malformed, with the names under which the
// proxy has sent them.
func checkSaid(method, target, methodName, targetName string) error {
	if _, err := rules.ReadMethod(method); err != nil {
		return fmt.Errorf("%s has characters that are not allowed in a method", methodName)
	}
	if _, err := rules.ReadTarget(target); err != nil {
		return fmt.Errorf("%s is not a request target, such as /a%%20b?c=d", targetName)
	}
	return nil
}

// oneLine is the value of a header that must not be given twice; "" if it is missing.
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

// socket is addr as a RemoteAddr; "" if addr is not valid.
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
