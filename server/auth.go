package server

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// principal is who calls the admin API.
type principal struct {
	// Name is that of the token or client, or "local" for whoever is on this
	// machine where the settings name nobody.
	Name  string
	Scope Scope
}

// authenticate tells who calls, or why that one may not.
func (s *Server) authenticate(r *http.Request) (principal, error) {
	admin := &s.settings.Admin
	if len(admin.Tokens)+len(admin.Clients) == 0 {
		return s.neighbour(r)
	}
	if lines, given := r.Header["Authorization"]; given {
		// It decides even if it is wrong and a certificate would do: to let a wrong
		// token pass would hide that it is wrong.
		return s.byToken(lines)
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return principal{}, &callError{status: http.StatusUnauthorized, detail: "This takes a token, as Authorization: Bearer."}
	}
	if !sameOrigin(r) { // browsers show certificates by themselves
		return principal{}, errOrigin
	}
	leaf := r.TLS.VerifiedChains[0][0]
	for _, c := range admin.Clients {
		if names(leaf, c.Name) {
			return principal(c), nil
		}
	}
	return principal{}, &callError{status: http.StatusUnauthorized, detail: "This certificate is nobody's who may use this."}
}

func (s *Server) byToken(lines []string) (principal, error) {
	scheme, token, _ := strings.Cut(lines[0], " ")
	name, scope, ok := s.tokens.Load().Find(strings.Trim(token, " "))
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") || !ok {
		return principal{}, &callError{status: http.StatusUnauthorized, detail: "This token is not known."}
	}
	return principal{name, scope}, nil
}

// names tells whether a certificate has a name.
func names(c *x509.Certificate, name string) bool {
	if c.Subject.CommonName == name {
		return true
	}
	for _, n := range c.DNSNames {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	for _, u := range c.URIs {
		if u.String() == name {
			return true
		}
	}
	return false
}

var errOrigin = &callError{status: http.StatusForbidden, detail: "A page of another origin may not use this."}

// neighbour is whoever calls from this machine, where the settings name nobody.
//
// A browser on this machine calls, too, on behalf of whatever page it shows. There
// are two ways for a page from elsewhere: it sends a request to http://127.0.0.1,
// whose answer it may not read but whose effect it may want; such a request names
// the page's origin. Or its own host name is made to lead to 127.0.0.1 (DNS
// rebinding), so that the browser takes us for the page's server; then the Host is
// that name, for a page cannot choose it.
func (s *Server) neighbour(r *http.Request) (principal, error) {
	ours := isLoopback(s.settings.Admin.Listen)
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		ours = ours && isLoopback(a.String())
	}
	switch {
	case !ours:
		return principal{}, &callError{status: http.StatusForbidden, detail: "Without tokens or clients in the settings, this is for callers on the same machine."}
	case !isLoopbackHost(canonicalHost(r.Host)):
		return principal{}, &callError{status: http.StatusForbidden, detail: "Without tokens or clients in the settings, this is only for hosts such as localhost and 127.0.0.1."}
	case !sameOrigin(r):
		return principal{}, errOrigin
	}
	return principal{"local", Write}, nil
}

// sameOrigin tells whether no page of another origin sent r.
func sameOrigin(r *http.Request) bool {
	lines, given := r.Header["Origin"]
	if !given {
		return true
	}
	if len(lines) != 1 {
		return false
	}
	u, err := url.Parse(lines[0])
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// complainOfCaller logs that a caller was refused, unless one was just now.
func (s *Server) complainOfCaller(r *http.Request, p principal, err error) {
	if d, _ := s.complaints.Allow(context.Background(), "admin", complaint); d.Allowed {
		s.log.Warn("the admin API refused a caller", "address", r.RemoteAddr, "name", p.Name, "why", err)
	}
}
